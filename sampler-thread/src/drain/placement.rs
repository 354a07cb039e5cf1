//! On which processor the second thread runs: not on the sampler's.
//!
//! Problem: where a host takes a processor away, all that is to run on it waits, and the guest's scheduler, which does not
//! know, moves nothing. Two threads that sleep side by side on one processor are late together.
//! Approach: the second thread may run wherever the sampler may, but for where the sampler ran last. Nothing is asked of
//! the sampler, which goes where the scheduler wants, and where there is one processor only, both use it.
//! Invariant: what the sampler was restricted to from outside, the second thread is as well.
//!
//! Sources: sched_setaffinity(2), getcpu(2).

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Where this thread runs now; `None` if the kernel does not tell.
pub(crate) fn processor() -> Option<usize> {
    sched_getcpu().ok()
}

/// Where the second thread may run.
#[derive(Debug)]
pub(crate) struct Placement {
    sampler: Pid,
    kept_off: Option<usize>,
}

impl Placement {
    /// For a thread that is to run beside the calling one.
    pub(crate) fn beside_this_thread() -> Self {
        Self { sampler: gettid(), kept_off: None }
    }

    /// Whether [`keep_off`](Self::keep_off) was called with this one last.
    pub(crate) fn is_off(&self, processor: usize) -> bool {
        self.kept_off == Some(processor)
    }

    /// Keeps the calling thread off `processor`, if there is another one that the sampler may use.
    ///
    /// Best effort: a sandbox may refuse it, and then the scheduler decides as ever.
    pub(crate) fn keep_off(&mut self, processor: usize) {
        self.kept_off = Some(processor);
        if let Ok(allowed) = sched_getaffinity(self.sampler) {
            let _ = sched_setaffinity(Pid::from_raw(0), &without(allowed, processor));
        }
    }
}

/// `allowed` but for `processor`, if that leaves any.
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
            placement.keep_off(first);
            sched_getaffinity(gettid()).expect("its own")
        });
        assert_eq!(mask.join().expect("no panic"), without(allowed, first));
        assert_eq!(sched_getaffinity(gettid()), Ok(allowed), "ours is as it was");
    }
}
