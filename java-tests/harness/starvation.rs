//! Measures whether the machine delayed threads that were ready to run.
//!
//! Problem: on a shared machine the sampler thread may get no processor for longer than the queues last, and then loses
//! samples. Tests can demand zero losses only for runs without such delays.
//! Clocks are affected as well: time that a hypervisor stole from a processor is deducted only when the processor runs
//! again, so another thread that reads a CPU clock before that reads the stolen time too (`update_rq_clock_task` in
//! `kernel/sched/core.c` of Linux 6.12; `record_steal_time` in `arch/x86/kvm/x86.c`).
//! Approach: while a test's program runs, one thread per processor sleeps and wakes in the rhythm of the sampler and
//! records each late wake-up.
//! Invariant: these threads burn next to no CPU time, and losses beyond the recorded delays are a defect.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::processors::{allowed_processors, pin_thread};

/// Sleep of the monitoring threads.
const SLEEP: Duration = Duration::from_millis(5);

/// Shortest delay that is recorded.
///
/// The smallest queue holds 16 ticks of 4 ms, and the agent's second thread drains it when it was not drained for 30
/// ms: a loss takes a delay of 34 ms of both. The part of a delay that falls into a sleep is not measured.
const RECORDED_DELAY: Duration = Duration::from_millis(30);

/// Effect of a delay beyond its length: the time until it begins to be measured, and until the queues are drained.
const RECOVERY: Duration = Duration::from_millis(50);

/// The running monitor: one thread per processor.
pub struct StarvationMonitor {
    stops: Vec<Sender<()>>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

/// The delays that a monitor recorded.
#[derive(Debug, Clone, Default)]
pub struct Starvation {
    delays: Vec<Duration>,
    processors: usize,
}

impl StarvationMonitor {
    /// Starts the monitoring threads.
    ///
    /// # Panics
    /// If a thread cannot be pinned to its processor.
    pub fn start() -> Self {
        let (mut stops, mut threads) = (Vec::new(), Vec::new());
        for processor in allowed_processors() {
            let (stop, stopped) = channel();
            stops.push(stop);
            threads.push(std::thread::spawn(move || {
                pin_thread(nix::unistd::gettid(), processor);
                let mut delays = Vec::new();
                loop {
                    let start = Instant::now();
                    if stopped.recv_timeout(SLEEP) != Err(RecvTimeoutError::Timeout) {
                        return delays;
                    }
                    let delay = start.elapsed().saturating_sub(SLEEP);
                    if delay >= RECORDED_DELAY {
                        delays.push(delay);
                    }
                }
            }));
        }
        Self { stops, threads }
    }

    /// Stops the threads and returns what they recorded.
    ///
    /// # Panics
    /// If one of the threads panicked.
    pub fn stop(self) -> Starvation {
        drop(self.stops);
        let processors = self.threads.len();
        let delays = self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        Starvation { delays, processors }
    }
}

impl Starvation {
    /// Returns the most CPU time that may be lost: what all processors can burn during the delays; 0 without delays.
    pub fn allowed_loss_ns(&self) -> i64 {
        let delayed: Duration = self.delays.iter().map(|delay| *delay + RECOVERY).sum();
        let all = delayed * u32::try_from(self.processors).expect("a number of processors");
        i64::try_from(all.as_nanos()).expect("nanoseconds fit")
    }

    /// Returns the longest delay of a processor, by which a CPU clock read by another thread may be ahead.
    pub fn longest_delay_ns(&self) -> u64 {
        let longest = self.delays.iter().max().map_or(Duration::ZERO, |delay| *delay + SLEEP);
        u64::try_from(longest.as_nanos()).expect("nanoseconds fit")
    }

    /// Returns by how much the sum of CPU clocks on all processors may be ahead.
    pub fn clock_error_ns(&self) -> i64 {
        i64::try_from(self.longest_delay_ns() * self.processors as u64).expect("nanoseconds fit")
    }

    /// Asserts that the recorded delays explain the loss of `ns` of CPU time.
    ///
    /// # Panics
    /// If it is more than [`allowed_loss_ns`](Self::allowed_loss_ns).
    #[track_caller]
    pub fn assert_explains_loss(&self, ns: u64) {
        assert!(ns <= self.allowed_loss_ns().cast_unsigned(), "lost {ns} ns, {self:?}");
    }
}
