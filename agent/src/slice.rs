//! Short time slices for the profiler's own threads.
//!
//! Problem: a garbage collection pause waits 200 us for the sampler, which sleeps until it is woken; where other threads
//! want all processors, the scheduler lets a woken thread wait for up to a tick (1 to 10 ms).
//! Approach: a thread may ask for slices shorter than the others', without any privilege. It gets no more processor time
//! for it, but sooner and in smaller pieces: what is woken with a shorter slice takes the place of what runs.
//! Linux does so since 6.12; before, the kernel ignores what is asked for.
//! Invariant: policy and priority stay what they are, and a refusal changes nothing.
//! Sources: sched_setattr(2); Linux 6.12, `kernel/sched/syscalls.c` (`__setparam_fair`), `kernel/sched/fair.c`
//! (`PREEMPT_SHORT`).

use std::mem::{MaybeUninit, size_of};

/// The shortest slice there is: the kernel takes 0.1 to 100 ms.
const SLICE_NS: u64 = 100_000;

/// Asks for short slices for the calling thread; whether the kernel took it.
pub fn shorten() -> bool {
    let Some(mut present) = present() else { return false };
    if i32::try_from(present.sched_policy) != Ok(libc::SCHED_OTHER) {
        return false;
    }
    present.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads `present`, whose size is in it; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const present, 0) == 0 }
}

/// How the calling thread is scheduled.
fn present() -> Option<libc::sched_attr> {
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
    fn nothing_but_the_slice_changes() {
        let before = present().expect("an ordinary thread");
        assert_eq!(shorten(), i32::try_from(before.sched_policy) == Ok(libc::SCHED_OTHER));
        let after = present().expect("an ordinary thread");
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        // Kernels before 6.12 say 0, other policies what they have.
        assert!(
            [0, SLICE_NS, before.sched_runtime].contains(&after.sched_runtime),
            "{} ns",
            after.sched_runtime
        );
    }
}
