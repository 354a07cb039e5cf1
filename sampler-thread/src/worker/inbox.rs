//! Commands to the sampler thread, and its sleep between two drains.
//!
//! Problem: the VM's thread wakes the sampler thread at the start of a pause, where it may neither allocate nor wait
//! for a lock, and the command must not be lost.
//! Approach: commands are bits of one word. A sender sets a bit and unparks the thread, which on Linux is one atomic
//! exchange, and one system call if the thread sleeps. The thread takes all bits at once.
//! Invariant: [`Inbox::wait`] does not sleep while a bit is set: a sender sets the bit before it unparks, and a thread
//! that was unparked before it sleeps does not sleep.
//! A flush is a drain with a number; its caller waits until the thread reports that number or a later one.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Thread, park_timeout};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bit of the command to drain at once: a garbage collection is about to begin.
const DRAIN: u8 = 1;
/// Bit of the command to drain all queues, to send the last messages and to end.
const STOP: u8 = 2;

/// Reason of the end if the owner of the thread gave none.
const AGENT_GONE: &str = "agent_gone";

/// Shared by the sampler thread and those who send commands to it.
#[derive(Debug, Default)]
struct Shared {
    /// Commands that the thread has not taken.
    commands: AtomicU8,
    /// Why the thread is to end.
    reason: OnceLock<&'static str>,
    /// Number of the last requested flush.
    flush_wanted: AtomicU64,
    progress: Mutex<Progress>,
    progressed: Condvar,
}

/// How far the thread has come.
#[derive(Debug, Default)]
struct Progress {
    /// Number of the last flush that is done.
    flushed: u64,
    has_ended: bool,
}

/// Why a wait for commands has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Late,
    Drain,
    /// The thread is to end, for this reason.
    End(&'static str),
}

/// The sampler thread's side. The thread counts as ended when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Arc<Shared>);

impl Inbox {
    /// Returns the other side, for commands to the thread that is about to start.
    pub(crate) fn sender(&self) -> UnstartedSender {
        UnstartedSender(Arc::clone(&self.0))
    }

    /// Waits for commands, at most for `period`; returns why the wait has ended.
    pub(crate) fn wait(&self, period: Duration) -> Woken {
        let deadline = Instant::now() + period;
        loop {
            // Acquire: pairs with `Waker::send`; what the sender did before is visible.
            let commands = self.0.commands.swap(0, Ordering::Acquire);
            if commands & STOP != 0 {
                return Woken::End(self.0.reason.get().copied().unwrap_or(AGENT_GONE));
            }
            if commands != 0 {
                return Woken::Drain;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Woken::Late;
            }
            park_timeout(left);
        }
    }

    /// Returns the number of a requested flush. To be called before the drain that the flush includes.
    pub(crate) fn wanted_flush(&self) -> Option<u64> {
        // Acquire: pairs with `Owner::flush`; the drain that follows finds what the caller has left in queues.
        let wanted = self.0.flush_wanted.load(Ordering::Acquire);
        (wanted > self.0.progress.lock().flushed).then_some(wanted)
    }

    /// Reports that every sample up to this flush was sent.
    pub(crate) fn flushed(&self, number: u64) {
        self.0.progress.lock().flushed = number;
        self.0.progressed.notify_all();
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.progress.lock().has_ended = true;
        self.0.progressed.notify_all();
    }
}

/// The senders' side before the thread runs.
#[derive(Debug)]
pub(crate) struct UnstartedSender(Arc<Shared>);

impl UnstartedSender {
    pub(crate) fn owner(self, thread: &Thread) -> Owner {
        Owner(Waker { shared: self.0, thread: thread.clone() })
    }
}

/// The owner of the sampler thread; the thread ends if this is dropped.
#[derive(Debug)]
pub(crate) struct Owner(Waker);

impl Owner {
    /// Returns a handle that wakes the thread.
    pub(crate) fn waker(&self) -> Waker {
        self.0.clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.shared.progress.lock().has_ended
    }

    /// Makes the thread send every sample taken so far, and waits for that at most for `patience`; returns whether it
    /// has.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        let Waker { shared, .. } = &self.0;
        // Release: pairs with `Inbox::wanted_flush`.
        let number = shared.flush_wanted.fetch_add(1, Ordering::Release) + 1;
        self.0.wake();
        let mut progress = shared.progress.lock();
        let is_waiting = |progress: &mut Progress| progress.flushed < number && !progress.has_ended;
        shared.progressed.wait_while_for(&mut progress, is_waiting, patience);
        progress.flushed >= number || progress.has_ended
    }

    /// Ends the thread, and waits for that at most for `patience`; returns whether it has ended.
    pub(crate) fn stop(&self, reason: &'static str, patience: Duration) -> bool {
        let Waker { shared, .. } = &self.0;
        // A second reason does not count.
        let _ = shared.reason.set(reason);
        self.0.send(STOP);
        let mut progress = shared.progress.lock();
        shared.progressed.wait_while_for(&mut progress, |progress| !progress.has_ended, patience);
        progress.has_ended
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.send(STOP);
    }
}

/// Makes the sampler thread drain at once.
#[derive(Debug, Clone)]
pub struct Waker {
    shared: Arc<Shared>,
    thread: Thread,
}

impl Waker {
    /// Makes the sampler thread drain, if it runs. Neither allocates nor waits.
    pub fn wake(&self) {
        self.send(DRAIN);
    }

    fn send(&self, command: u8) {
        // Release: pairs with `Inbox::wait`. Before the thread is unparked: it may look at any time.
        self.shared.commands.fetch_or(command, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Far longer than any test waits.
    const LONG: Duration = Duration::from_secs(3600);

    /// Starts a thread that runs `body` with its inbox.
    fn start<T: Send + 'static>(
        body: impl FnOnce(&Inbox) -> T + Send + 'static,
    ) -> (Owner, std::thread::JoinHandle<T>) {
        let inbox = Inbox::default();
        let sender = inbox.sender();
        let thread = std::thread::spawn(move || body(&inbox));
        (sender.owner(thread.thread()), thread)
    }

    #[test]
    fn no_command_is_lost() {
        const ROUNDS: u32 = 20_000;
        let (woken, wakes) = mpsc::sync_channel(0);
        let (owner, thread) = start(move |inbox| {
            for round in 0..ROUNDS {
                assert_eq!(inbox.wait(LONG), Woken::Drain);
                // Waiting for this uses the same wake-ups as the inbox.
                woken.send(round).expect("the test waits");
            }
            inbox.wait(LONG)
        });
        let waker = owner.waker();
        for round in 0..ROUNDS {
            waker.wake();
            assert_eq!(wakes.recv(), Ok(round));
        }
        assert!(owner.stop("test", LONG));
        assert_eq!(thread.join().expect("no panic"), Woken::End("test"));
    }

    #[test]
    fn a_command_before_the_sleep_prevents_it() {
        let inbox = Inbox::default();
        let owner = inbox.sender().owner(&std::thread::current());
        owner.waker().wake();
        owner.waker().wake();
        assert_eq!(inbox.wait(LONG), Woken::Drain);
        let begin = Instant::now();
        assert_eq!(inbox.wait(Duration::from_millis(20)), Woken::Late, "both were one command");
        assert!(begin.elapsed() >= Duration::from_millis(20));
        // A wake-up without a command does not end the sleep early.
        std::thread::current().unpark();
        let begin = Instant::now();
        assert_eq!(inbox.wait(Duration::from_millis(20)), Woken::Late);
        assert!(begin.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_flush_waits_for_its_own_number() {
        let (owner, thread) = start(|inbox| {
            let mut numbers = Vec::new();
            loop {
                let end = inbox.wait(LONG);
                if let Some(number) = inbox.wanted_flush() {
                    numbers.push(number);
                    inbox.flushed(number);
                }
                if let Woken::End(_) = end {
                    return numbers;
                }
            }
        });
        assert!(owner.flush(LONG) && owner.flush(LONG));
        assert!(owner.stop("test", LONG));
        assert_eq!(thread.join().expect("no panic"), [1, 2]);
        assert!(owner.flush(LONG), "a thread that has ended has sent everything");
        let (hold, held) = mpsc::channel::<()>();
        let (owner, _thread) = start(move |_| held.recv());
        assert!(!owner.flush(Duration::from_millis(5)));
        drop(hold);
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let (owner, thread) = start(|inbox| inbox.wait(LONG));
        drop(owner);
        assert_eq!(thread.join().expect("no panic"), Woken::End(AGENT_GONE));
    }

    #[test]
    fn patience_is_limited_and_a_panic_is_an_end() {
        let (hold, held) = mpsc::channel::<()>();
        let (owner, _thread) = start(move |_| held.recv());
        assert!(!owner.stop("test", Duration::from_millis(5)));
        drop(hold);
        assert!(owner.stop("again", LONG));
        // The unwinding drops the inbox, without the message of a panic.
        let (owner, thread) = start(|_| std::panic::resume_unwind(Box::new(())));
        assert!(owner.stop("test", LONG));
        thread.join().expect_err("a panic");
    }
}
