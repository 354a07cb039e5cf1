//! Short scheduler time slices for the profiler's threads.
//!
//! Problem: a garbage collection pause waits 200 us for the sampler thread, but on a busy machine a woken thread may
//! wait for up to a tick (1 to 10 ms).
//! Approach: any thread may request shorter time slices. It gets the same processor time, in smaller pieces and sooner:
//! once woken it replaces a thread with a longer slice. Linux does so from 6.12 on; older kernels ignore the request.
//! Invariant: policy and priority do not change, and a refusal changes nothing.
//! Sources: sched_setattr(2); Linux 6.12, `kernel/sched/syscalls.c` (`__setparam_fair`), `kernel/sched/fair.c`
//! (`PREEMPT_SHORT`).

use std::mem::{MaybeUninit, size_of};

/// The shortest time slice: the kernel accepts 0.1 to 100 ms.
const TIME_SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread; returns whether the kernel accepted.
pub fn shorten_time_slices() -> bool {
    let Some(mut attributes) = attributes() else { return false };
    if i32::try_from(attributes.sched_policy) != Ok(libc::SCHED_OTHER) {
        return false;
    }
    attributes.sched_runtime = TIME_SLICE_NS;
    // SAFETY: the kernel reads `attributes`, whose size is in it; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// Returns how the calling thread is scheduled.
fn attributes() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes to `attributes`; 0 is the calling thread.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) };
    // SAFETY: numbers only, all of them zero before the call.
    (outcome == 0).then(|| unsafe { attributes.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_slice_changes() {
        let before = attributes().expect("an ordinary thread");
        assert_eq!(shorten_time_slices(), i32::try_from(before.sched_policy) == Ok(libc::SCHED_OTHER));
        let after = attributes().expect("an ordinary thread");
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        // Kernels before 6.12 return 0, other policies their own value.
        assert!(
            [0, TIME_SLICE_NS, before.sched_runtime].contains(&after.sched_runtime),
            "{} ns",
            after.sched_runtime
        );
    }
}
