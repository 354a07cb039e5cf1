//! Keeps the second thread off the sampler's processor.
//!
//! Problem: when a hypervisor takes a processor away, all threads on it wait, and the guest's scheduler moves none of
//! them. Two threads that sleep on the same processor are late together.
//! Approach: the second thread may run on all processors of the sampler but the one that the sampler used last. The
//! sampler sets that while the second thread sleeps. It is not restricted itself; with a single processor both use it.
//! Invariant: restrictions of the sampler from outside apply to the second thread as well.
//!
//! Sources: sched_setaffinity(2), getcpu(2).

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// The processors of the second thread.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Thread id of the second thread.
    thread: Option<Pid>,
    avoided: Option<usize>,
}

impl Placement {
    /// For the calling thread, which is the second one.
    pub(crate) fn of_this_thread() -> Self {
        Self { thread: Some(gettid()), avoided: None }
    }

    /// Keeps the second thread off the processor of the calling one, the sampler, if the sampler may use another one.
    ///
    /// Best effort: a sandbox may refuse it, and then the scheduler decides.
    pub(crate) fn leave_to_this_thread(&mut self) {
        let (Some(thread), Ok(processor)) = (self.thread, sched_getcpu()) else { return };
        if self.avoided.replace(processor) == Some(processor) {
            return;
        }
        if let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) {
            let _ = sched_setaffinity(thread, &without(allowed, processor));
        }
    }
}

/// Returns `allowed` without `processor`, or `allowed` if that would leave none.
fn without(allowed: CpuSet, processor: usize) -> CpuSet {
    let mut others = allowed;
    let is_left = |set: &CpuSet| (0..CpuSet::count()).any(|other| set.is_set(other).unwrap_or(false));
    if others.unset(processor).is_ok() && is_left(&others) { others } else { allowed }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for processor in processors {
            set.set(*processor).expect("below the limit");
        }
        set
    }

    #[test]
    fn the_only_processor_is_shared() {
        assert_eq!(without(set(&[0, 3]), 3), set(&[0]));
        assert_eq!(without(set(&[3]), 3), set(&[3]));
        assert_eq!(without(set(&[0]), 3), set(&[0]));
        assert_eq!(without(set(&[0]), CpuSet::count()), set(&[0]));
    }

    #[test]
    fn the_second_thread_leaves_the_processor() {
        let (ready, placement) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let second = std::thread::spawn(move || {
            ready.send(Placement::of_this_thread()).expect("the test waits");
            wait.recv().expect_err("dropped");
            sched_getaffinity(gettid()).expect("its own")
        });
        let mut placement = placement.recv().expect("a placement");
        let allowed = sched_getaffinity(gettid()).expect("our own");
        placement.leave_to_this_thread();
        let avoided = placement.avoided.expect("a processor");
        drop(go);
        assert_eq!(second.join().expect("no panic"), without(allowed, avoided));
        assert_eq!(sched_getaffinity(gettid()), Ok(allowed), "unchanged");
    }
}
