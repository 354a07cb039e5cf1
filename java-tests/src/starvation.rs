//! Whether the machine let a thread run that wanted to.
//!
//! Problem: the sampler loses samples where it gets no processor for longer than queues last, and on a machine that
//! others use as well it does; that losses are none can only be demanded of a time in which nothing like that happened.
//! Nor are clocks exact there: what a host took from a processor is only told when it gives the processor back, and who
//! reads the clock of a thread on it before gets the time that was taken as well (`update_rq_clock_task` in the kernel's
//! `kernel/sched/core.c`, 6.12; `record_steal_time` in `arch/x86/kvm/x86.c`).
//! Approach: on each processor a thread sleeps and wakes as the sampler does, and notes how late it was; while any
//! program of a test runs.
//! Invariant: the threads burn next to nothing, and losses beyond what was too late by their notes are a defect.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::recording::{allowed_processors, pin_thread};

/// How long the threads sleep.
const NAP: Duration = Duration::from_millis(5);

/// Lateness that counts.
///
/// The smallest queue holds 16 ticks of 4 ms, and the agent's second thread empties it when nobody has for 30 ms: both
/// must be 34 ms late for a loss. The part of that which falls into a nap goes unnoticed.
const LATE: Duration = Duration::from_millis(30);

/// What a delay costs beyond its length: the time until it is noticed, and until the queues are empty again.
const AROUND: Duration = Duration::from_millis(50);

/// Threads that watch, one for each processor.
pub struct Starvation {
    stops: Vec<Sender<()>>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

/// What they saw.
#[derive(Debug, Clone, Default)]
pub struct Starved {
    /// Each time that a thread woke up too late, by how much.
    delays: Vec<Duration>,
    processors: usize,
}

impl Starvation {
    /// Begins to watch.
    ///
    /// # Panics
    /// If a thread cannot be restricted to its processor.
    pub fn watch() -> Self {
        let (mut stops, mut threads) = (Vec::new(), Vec::new());
        for processor in allowed_processors() {
            let (stop, stopped) = channel();
            stops.push(stop);
            threads.push(std::thread::spawn(move || {
                pin_thread(nix::unistd::gettid(), processor);
                let mut delays = Vec::new();
                loop {
                    let begun = Instant::now();
                    if stopped.recv_timeout(NAP) != Err(RecvTimeoutError::Timeout) {
                        return delays;
                    }
                    let delay = begun.elapsed().saturating_sub(NAP);
                    if delay >= LATE {
                        delays.push(delay);
                    }
                }
            }));
        }
        Self { stops, threads }
    }

    /// What was seen until now.
    ///
    /// # Panics
    /// If a watching thread did.
    pub fn end(self) -> Starved {
        drop(self.stops);
        let processors = self.threads.len();
        let delays = self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        Starved { delays, processors }
    }
}

impl Starved {
    /// Most CPU time that may be lost: what all processors burnt in the delays. Nothing, where there were none.
    pub fn excused_ns(&self) -> i64 {
        let late: Duration = self.delays.iter().map(|delay| *delay + AROUND).sum();
        let all = late * u32::try_from(self.processors).expect("a number of processors");
        i64::try_from(all.as_nanos()).expect("a time")
    }

    /// The longest time that a processor was away for: by so much a clock that another thread reads may be ahead.
    pub fn longest_ns(&self) -> u64 {
        let longest = self.delays.iter().max().map_or(Duration::ZERO, |delay| *delay + NAP);
        u64::try_from(longest.as_nanos()).expect("a time")
    }

    /// What all processors may be ahead by.
    pub fn all_away_ns(&self) -> i64 {
        i64::try_from(self.longest_ns() * self.processors as u64).expect("a time")
    }

    /// Asserts that CPU time which lacks something, for want of memory until the sampler came, is no more than is excused.
    ///
    /// # Panics
    /// If it is.
    #[track_caller]
    pub fn assert_excuses(&self, ns: u64) {
        assert!(ns <= self.excused_ns().cast_unsigned(), "{ns} ns, {self:?}");
    }
}
