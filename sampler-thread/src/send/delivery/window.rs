//! What was sent or waits to be, until the collector has acknowledged it.
//!
//! Problem: the sampler must never wait for the network, and nothing may be lost or counted twice when a connection is.
//! Approach: one queue of framed messages between the sampler, which appends, and the link's thread, which sends,
//! repeats after a reconnect, and forgets what was acknowledged.
//! Invariant: a message leaves the window only by an acknowledgement that covers its sequence number.

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes handed to the socket at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The queue and the state of the link.
pub struct Window {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the link's thread, which waits for it and its socket together.
    wake: UnixStream,
    limit: u64,
}

#[derive(Default)]
struct State {
    /// The framed `Hello`, sent first on every connection.
    hello: Vec<u8>,
    /// Sequence numbers and framed messages, ascending.
    messages: VecDeque<(u64, Vec<u8>)>,
    bytes: u64,
    /// Highest sequence number the collector called safe.
    acknowledged: u64,
    /// Highest sequence number handed to the present connection.
    sent: u64,
    /// Highest sequence number handed to any connection.
    sent_ever: u64,
    connections: u64,
    is_connected: bool,
    resent: u64,
    /// The connection, counted from 1, on which the collector was found to have lost what it had acknowledged.
    forgotten: Option<u64>,
    closing: bool,
    given_up: bool,
    link_cpu_ns: u64,
}

/// Numbers about a window, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowFacts {
    /// Connections made so far.
    pub connections: u64,
    /// Messages sent again.
    pub resent: u64,
    /// Bytes not acknowledged.
    pub bytes: u64,
    /// CPU time of the link's thread, in nanoseconds.
    pub link_cpu_ns: u64,
}

impl Window {
    /// An empty window with room for about `limit` bytes; `wake` is written to when the link should look.
    pub fn new(limit: u64, wake: UnixStream) -> Self {
        Self { state: Mutex::new(State::default()), changed: Condvar::new(), wake, limit }
    }

    /// Bytes from which on there is no room.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    // What the sampler calls.

    /// Whether more may be appended; a soft limit, what is appended nevertheless is kept.
    pub fn room(&self) -> bool {
        self.state.lock().bytes < self.limit
    }

    /// Sets the message each connection begins with.
    pub fn set_hello(&self, framed: Vec<u8>) {
        self.state.lock().hello = framed;
    }

    /// Appends a message.
    pub fn push(&self, sequence: u64, framed: Vec<u8>) {
        let mut state = self.state.lock();
        state.bytes += framed.len() as u64;
        state.messages.push_back((sequence, framed));
        drop(state);
        self.wake_link();
    }

    /// The connection, counted from 1, on which the collector was found to have lost what it had acknowledged; told once
    /// for each loss.
    pub fn take_forgotten(&self) -> Option<u64> {
        self.state.lock().forgotten.take()
    }

    /// Whether the collector is away and was for long: how many connections there were until then.
    pub fn long_absent(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.is_connected && state.bytes >= self.limit / 2).then_some(state.connections)
    }

    /// Numbers for the statistics.
    pub fn facts(&self) -> WindowFacts {
        let state = self.state.lock();
        WindowFacts {
            connections: state.connections,
            resent: state.resent,
            bytes: state.bytes,
            link_cpu_ns: state.link_cpu_ns,
        }
    }

    /// Waits until everything is acknowledged, the link has given up, or `patience` is over; the messages left.
    pub fn close(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        state.closing = true;
        self.wake_link();
        while !state.messages.is_empty() && !state.given_up {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.messages.len()
    }

    fn wake_link(&self) {
        // A byte that cannot be written means that earlier ones wait to be read, or that the link has ended.
        let _ = (&self.wake).write(&[0]);
    }

    // What the link's thread calls.

    /// The message each connection begins with.
    pub fn hello(&self) -> Vec<u8> {
        self.state.lock().hello.clone()
    }

    /// The collector answered the `Hello` of a new connection: it has everything up to `sequence`.
    pub fn resume(&self, sequence: u64) {
        let mut state = self.state.lock();
        state.connections += 1;
        state.is_connected = true;
        if sequence < state.acknowledged {
            // Another collector, or one that lost its store: what it called safe once is gone.
            state.forgotten = Some(state.connections);
        }
        state.acknowledged = sequence;
        state.forget_acknowledged();
        state.sent = sequence;
        let again = state.sent_ever;
        state.resent += state.messages.iter().take_while(|(sequence, _)| *sequence <= again).count() as u64;
        drop(state);
        self.changed.notify_all();
    }

    /// The connection has ended.
    pub fn disconnected(&self) {
        self.state.lock().is_connected = false;
    }

    /// The collector has everything up to `sequence`.
    pub fn acknowledge(&self, sequence: u64) {
        let mut state = self.state.lock();
        // A collector can only have what was sent to it; anything beyond is a lie that would lose messages.
        state.acknowledged = sequence.min(state.sent).max(state.acknowledged);
        state.forget_acknowledged();
        drop(state);
        self.changed.notify_all();
    }

    /// Fills `chunk` with the next messages to send; false if there are none.
    pub fn next_chunk(&self, chunk: &mut Vec<u8>) -> bool {
        chunk.clear();
        let mut state = self.state.lock();
        let first = state.messages.partition_point(|(sequence, _)| *sequence <= state.sent);
        let mut sent = state.sent;
        for (sequence, framed) in state.messages.range(first..) {
            if !chunk.is_empty() && chunk.len() + framed.len() > CHUNK_BYTES {
                break;
            }
            chunk.extend_from_slice(framed);
            sent = *sequence;
        }
        state.sent = sent;
        state.sent_ever = state.sent_ever.max(sent);
        !chunk.is_empty()
    }

    /// Whether the session is ending.
    pub fn closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Whether the session is ending and everything is acknowledged.
    pub fn done(&self) -> bool {
        let state = self.state.lock();
        state.closing && state.messages.is_empty()
    }

    /// The link's thread ends; nobody need wait for acknowledgements any more.
    pub fn give_up(&self) {
        self.state.lock().given_up = true;
        self.changed.notify_all();
    }

    /// Notes the CPU time of the link's thread.
    pub fn set_link_cpu(&self, nanos: u64) {
        self.state.lock().link_cpu_ns = nanos;
    }
}

impl State {
    fn forget_acknowledged(&mut self) {
        while self.messages.front().is_some_and(|(sequence, _)| *sequence <= self.acknowledged) {
            if let Some((_, framed)) = self.messages.pop_front() {
                self.bytes -= framed.len() as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window that holds messages 2 to `last`, each one byte long and equal to its number.
    fn window(last: u8) -> Window {
        let (wake, _) = UnixStream::pair().expect("pair");
        let window = Window::new(3, wake);
        (2..=last).for_each(|n| window.push(u64::from(n), vec![n]));
        window
    }

    fn chunk(window: &Window) -> Vec<u8> {
        let mut chunk = Vec::new();
        window.next_chunk(&mut chunk);
        chunk
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_again_on_the_next_connection() {
        let window = window(5);
        assert!(!window.room());
        window.resume(1);
        assert_eq!(chunk(&window), [2, 3, 4, 5]);
        assert!(chunk(&window).is_empty());
        window.acknowledge(3);
        assert!(window.room());
        window.push(6, vec![6]);
        window.resume(3);
        assert_eq!(chunk(&window), [4, 5, 6]);
        let facts = window.facts();
        assert_eq!((facts.connections, facts.resent, facts.bytes), (2, 2, 3));
    }

    #[test]
    fn the_collector_may_know_more_than_it_could_say() {
        let window = window(5);
        window.resume(1);
        chunk(&window);
        window.resume(4);
        assert_eq!(chunk(&window), [5]);
        assert_eq!(window.take_forgotten(), None);
    }

    #[test]
    fn a_collector_without_memory_is_noticed_once() {
        let window = window(3);
        window.resume(1);
        chunk(&window);
        window.acknowledge(3);
        window.push(4, vec![4]);
        window.resume(1);
        assert_eq!(chunk(&window), [4]);
        assert_eq!(window.take_forgotten(), Some(2));
        assert_eq!(window.take_forgotten(), None);
    }

    #[test]
    fn an_acknowledgement_of_what_was_not_sent_loses_nothing() {
        let window = window(3);
        window.resume(1);
        window.acknowledge(9);
        assert_eq!(chunk(&window), [2, 3]);
    }

    #[test]
    fn closing_ends_with_the_last_acknowledgement_or_with_the_link() {
        let patience = Duration::from_secs(60);
        let acknowledged = window(3);
        let unreachable = window(4);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                acknowledged.resume(1);
                chunk(&acknowledged);
                acknowledged.acknowledge(3);
                unreachable.give_up();
            });
            assert_eq!(acknowledged.close(patience), 0);
            assert_eq!(unreachable.close(patience), 3);
        });
    }
}
