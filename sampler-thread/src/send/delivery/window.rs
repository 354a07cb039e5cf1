//! Messages until the collector has acknowledged them.
//!
//! Problem: the sampler must never wait for the network; when a connection breaks, no message may be lost or counted
//! twice.
//! Approach: one queue of framed messages. The sampler appends; the sending thread sends, repeats after a reconnection,
//! and removes acknowledged messages.
//! Invariant: a message is removed only after an acknowledgement of its sequence number.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::wake::{self, WakeUps, Waker};

/// Most bytes written to the socket at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// The queue and the state of the connection.
pub struct Window {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the sending thread, which waits for this and its socket.
    waker: Mutex<Waker>,
    limit: u64,
}

#[derive(Default)]
struct State {
    /// The framed `Hello`, the first message of every connection.
    hello: Vec<u8>,
    /// Sequence numbers and framed messages, ascending.
    messages: VecDeque<(u64, Vec<u8>)>,
    bytes: u64,
    /// Highest sequence number acknowledged by the collector.
    acknowledged: u64,
    /// Highest sequence number sent on this connection.
    sent: u64,
    /// Highest sequence number sent on any connection.
    sent_ever: u64,
    connections: u64,
    is_connected: bool,
    resent: u64,
    /// The connection, counted from 1, on which the collector was found to have lost acknowledged messages.
    memory_lost_on: Option<u64>,
    closing: bool,
    given_up: bool,
    /// Why the collector is not reached, which was logged; none once it has acknowledged a message.
    trouble: Option<String>,
    sender_cpu_ns: u64,
}

/// Counts for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowFacts {
    /// Connections made so far.
    pub connections: u64,
    /// Messages sent again.
    pub resent: u64,
    /// Unacknowledged bytes.
    pub bytes: u64,
    /// CPU time of the sending thread, in nanoseconds.
    pub sender_cpu_ns: u64,
}

impl Window {
    /// An empty window for about `limit` bytes.
    pub fn new(limit: u64, waker: Waker) -> Self {
        Self { state: Mutex::new(State::default()), changed: Condvar::new(), waker: Mutex::new(waker), limit }
    }

    /// Returns the number of bytes from which on the window is full.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    // Called by the sampler.

    /// Returns whether the window is not full; a message that is appended to a full window is kept nevertheless.
    pub fn has_space(&self) -> bool {
        self.state.lock().bytes < self.limit
    }

    /// Sets the first message of every connection.
    pub fn set_hello(&self, framed: Vec<u8>) {
        self.state.lock().hello = framed;
    }

    /// Appends a message.
    pub fn push(&self, sequence: u64, framed: Vec<u8>) {
        let mut state = self.state.lock();
        state.bytes += framed.len() as u64;
        state.messages.push_back((sequence, framed));
        drop(state);
        self.wake_sender();
    }

    /// Returns the connection, counted from 1, on which the collector was found to have lost acknowledged messages;
    /// once for each loss.
    pub fn take_memory_loss(&self) -> Option<u64> {
        self.state.lock().memory_lost_on.take()
    }

    /// Returns the number of connections so far if the collector has been unreachable for long.
    pub fn long_absent(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.is_connected && state.bytes >= self.limit / 2).then_some(state.connections)
    }

    /// Returns whether the sending thread has ended although the session goes on.
    pub fn is_abandoned(&self) -> bool {
        let state = self.state.lock();
        state.given_up && !state.closing
    }

    pub fn facts(&self) -> WindowFacts {
        let state = self.state.lock();
        WindowFacts {
            connections: state.connections,
            resent: state.resent,
            bytes: state.bytes,
            sender_cpu_ns: state.sender_cpu_ns,
        }
    }

    /// Waits until everything is acknowledged, the sending thread ends, or the collector has been silent for `limit`.
    ///
    /// A connection and an acknowledgement of further messages end a silence, so the messages bound the wait.
    /// Returns the messages left.
    pub fn close(&self, limit: Duration) -> usize {
        let mut state = self.state.lock();
        state.closing = true;
        self.wake_sender();
        let mut silence = Silence { limit, progress: state.progress(), since: Instant::now() };
        while !state.messages.is_empty()
            && !state.given_up
            && silence.is_bearable(state.progress(), Instant::now())
        {
            self.changed.wait_until(&mut state, silence.end());
        }
        state.messages.len()
    }

    /// Returns the state of the connection in words, such as `connected`.
    pub fn described(&self) -> String {
        let state = self.state.lock();
        match &state.trouble {
            Some(trouble) => format!("{trouble}; {} bytes are kept for it", state.bytes),
            None if state.is_connected => "connected".to_owned(),
            None => "not connected yet".to_owned(),
        }
    }

    /// Returns whether it was logged why the collector is not reached.
    pub fn has_warned(&self) -> bool {
        self.state.lock().trouble.is_some()
    }

    fn wake_sender(&self) {
        self.waker.lock().wake();
    }

    // Called by the sending thread.

    /// Makes a new pair if the program has closed an end of the one that `wake_ups` belongs to.
    ///
    /// # Errors
    /// As [`wake::pair`].
    pub fn keep_awake(&self, wake_ups: &mut WakeUps) -> io::Result<()> {
        let mut waker = self.waker.lock();
        if !waker.is_intact() || !wake_ups.is_intact() {
            (*waker, *wake_ups) = wake::pair()?;
        }
        Ok(())
    }

    /// Returns the first message of every connection.
    pub fn hello(&self) -> Vec<u8> {
        self.state.lock().hello.clone()
    }

    /// Records the answer to the first message of a connection: the collector has everything up to `sequence`.
    pub fn resume(&self, sequence: u64) {
        let mut state = self.state.lock();
        state.connections += 1;
        state.is_connected = true;
        if sequence < state.acknowledged {
            // Another collector, or one that lost its store: acknowledged messages are lost.
            state.memory_lost_on = Some(state.connections);
        }
        state.acknowledged = sequence;
        state.forget_acknowledged();
        state.sent = sequence;
        let again = state.sent_ever;
        state.resent += state.messages.iter().take_while(|(sequence, _)| *sequence <= again).count() as u64;
        drop(state);
        self.changed.notify_all();
    }

    /// Records the end of the connection.
    pub fn disconnected(&self) {
        self.state.lock().is_connected = false;
    }

    /// Records that the collector has everything up to `sequence`.
    pub fn acknowledge(&self, sequence: u64) {
        let mut state = self.state.lock();
        // A collector cannot have messages that were not sent; a higher number would lose them.
        state.acknowledged = sequence.min(state.sent).max(state.acknowledged);
        state.forget_acknowledged();
        drop(state);
        self.changed.notify_all();
    }

    /// Fills `chunk` with the next messages to send; returns false if there are none.
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

    /// Records why the collector is not reached, which was logged.
    pub fn warned(&self, trouble: String) {
        self.state.lock().trouble = Some(trouble);
    }

    /// Records that the collector acknowledges messages again.
    pub fn recovered(&self) {
        self.state.lock().trouble = None;
    }

    pub fn closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Returns whether the session is ending and everything is acknowledged.
    pub fn done(&self) -> bool {
        let state = self.state.lock();
        state.closing && state.messages.is_empty()
    }

    /// Records that the sending thread ends, so that no acknowledgement will follow.
    pub fn give_up(&self) {
        self.state.lock().given_up = true;
        self.changed.notify_all();
    }

    /// Records the CPU time of the sending thread.
    pub fn set_sender_cpu(&self, nanos: u64) {
        self.state.lock().sender_cpu_ns = nanos;
    }
}

/// How long the collector has been silent.
struct Silence {
    limit: Duration,
    progress: Progress,
    since: Instant,
}

impl Silence {
    /// Notes the progress at the moment `now`; returns false if the silence has lasted too long.
    fn is_bearable(&mut self, progress: Progress, now: Instant) -> bool {
        if progress != self.progress {
            (self.progress, self.since) = (progress, now);
        }
        now < self.end()
    }

    fn end(&self) -> Instant {
        self.since + self.limit
    }
}

/// Connections made, and the highest sequence number acknowledged.
type Progress = (u64, u64);

impl State {
    /// Returns what changes with each sign of life of the collector that brings the end nearer.
    fn progress(&self) -> Progress {
        (self.connections, self.acknowledged)
    }

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
        let (waker, _) = wake::pair().expect("pair");
        let window = Window::new(3, waker);
        (2..=last).for_each(|n| window.push(u64::from(n), vec![n]));
        window
    }

    fn chunk(window: &Window) -> Vec<u8> {
        let mut chunk = Vec::new();
        window.next_chunk(&mut chunk);
        chunk
    }

    #[test]
    fn unacknowledged_messages_are_sent_again_on_the_next_connection() {
        let window = window(5);
        assert!(!window.has_space());
        window.resume(1);
        assert_eq!(chunk(&window), [2, 3, 4, 5]);
        assert!(chunk(&window).is_empty());
        window.acknowledge(3);
        assert!(window.has_space());
        window.push(6, vec![6]);
        window.resume(3);
        assert_eq!(chunk(&window), [4, 5, 6]);
        let facts = window.facts();
        assert_eq!((facts.connections, facts.resent, facts.bytes), (2, 2, 3));
    }

    #[test]
    fn a_collector_may_have_more_than_it_acknowledged() {
        let window = window(5);
        window.resume(1);
        chunk(&window);
        window.resume(4);
        assert_eq!(chunk(&window), [5]);
        assert_eq!(window.take_memory_loss(), None);
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
        assert_eq!(window.take_memory_loss(), Some(2));
        assert_eq!(window.take_memory_loss(), None);
    }

    #[test]
    fn an_acknowledgement_of_unsent_messages_loses_nothing() {
        let window = window(3);
        window.resume(1);
        window.acknowledge(9);
        assert_eq!(chunk(&window), [2, 3]);
    }

    #[test]
    fn closing_ends_with_the_last_acknowledgement_or_the_thread() {
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

    #[test]
    fn a_silent_collector_is_given_up_whether_it_answered_before_or_not() {
        let silent = window(3);
        assert_eq!(silent.close(Duration::from_millis(1)), 2);
        let hanging = window(3);
        hanging.resume(1);
        chunk(&hanging);
        hanging.acknowledge(2);
        assert_eq!(hanging.close(Duration::from_millis(1)), 1);
    }

    #[test]
    fn each_acknowledgement_ends_a_silence() {
        let (begin, limit) = (Instant::now(), Duration::from_millis(80));
        let mut silence = Silence { limit, progress: (1, 0), since: begin };
        // A slow collector: all acknowledgements together take many times the limit.
        for sequence in 1..=40 {
            assert!(silence.is_bearable((1, sequence), begin + Duration::from_millis(50) * sequence as u32));
        }
        let last = begin + Duration::from_millis(2000);
        assert!(silence.is_bearable((1, 40), last + Duration::from_millis(79)));
        assert!(!silence.is_bearable((1, 40), last + Duration::from_millis(80)));
    }
}
