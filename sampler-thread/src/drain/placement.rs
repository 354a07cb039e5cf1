//! Keeps the second thread off the sampler's processor.
//!
//! Problem: when a hypervisor takes a processor away, all threads on it wait, and the guest's scheduler moves none of
//! them. Two threads that sleep on the same processor are late together.
//! Approach: the second thread may run on all processors of the sampler but the one that the sampler used last. The
//! sampler itself is not restricted; with a single processor both threads use it.
//! Invariant: restrictions of the sampler from outside apply to the second thread as well.
//!
//! Sources: sched_setaffinity(2), getcpu(2).

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Returns the processor of the calling thread; `None` if it is unknown.
pub(crate) fn processor() -> Option<usize> {
    sched_getcpu().ok()
}

/// The processors of the second thread.
#[derive(Debug)]
pub(crate) struct Placement {
    sampler: Pid,
    avoided: Option<usize>,
}

impl Placement {
    /// For a second thread; the calling one is the sampler.
    pub(crate) fn beside_this_thread() -> Self {
        Self { sampler: gettid(), avoided: None }
    }

    /// Whether `processor` was the argument of the last [`avoid`](Self::avoid).
    pub(crate) fn avoids(&self, processor: usize) -> bool {
        self.avoided == Some(processor)
    }

    /// Keeps the calling thread off `processor`, if the sampler may use another one.
    ///
    /// Best effort: a sandbox may refuse it, and then the scheduler decides.
    pub(crate) fn avoid(&mut self, processor: usize) {
        self.avoided = Some(processor);
        if let Ok(allowed) = sched_getaffinity(self.sampler) {
            let _ = sched_setaffinity(Pid::from_raw(0), &without(allowed, processor));
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
        let sampler = Placement::beside_this_thread();
        let allowed = sched_getaffinity(sampler.sampler).expect("our own");
        let first =
            (0..CpuSet::count()).find(|&processor| allowed.is_set(processor) == Ok(true)).expect("one");
        let mask = std::thread::spawn(move || {
            let mut placement = sampler;
            placement.avoid(first);
            sched_getaffinity(gettid()).expect("its own")
        });
        assert_eq!(mask.join().expect("no panic"), without(allowed, first));
        assert_eq!(sched_getaffinity(gettid()), Ok(allowed), "unchanged");
    }
}
