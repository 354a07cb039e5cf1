//! The handler finds the method that a compiler thread compiles. The test makes the VM's objects itself, without a JVM.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls that read the test's own memory")]

use std::sync::atomic::AtomicU64;

use stackwalk::CompilerOffsets;
use tickwalk::handler::compilation::{Compilers, ENV_TO_TASK};

const ENV: u32 = 16;
const TASK: u32 = 8;
const METHOD: u32 = 24;

/// Sets the value of the key for the running thread.
fn set(key: libc::pthread_key_t, value: u64) {
    // SAFETY: a key of this test, whose values are not followed by the library.
    assert_eq!(unsafe { libc::pthread_setspecific(key, value as *const libc::c_void) }, 0);
}

fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of) as u64
}

#[test]
fn the_method_of_the_present_task_is_read() {
    let mut key = 0;
    // SAFETY: `key` is writable.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, None) }, 0);
    let compilers = Compilers { key, offsets: CompilerOffsets { env: ENV, task: TASK, method: METHOD } };
    let task = [1, 2, 3, 0x7000_u64];
    // The environment, and a word of an older frame.
    let stack = [9, address(&task), 9];
    let frames = address(&stack)..address(&stack) + 24;
    let mut thread = [7, 7, address(&stack), 7, address(&task)];
    assert_eq!(ENV + ENV_TO_TASK, 32, "the last word of the thread");
    // SAFETY: the objects above are alive.
    let method = |thread: &[u64; 5], frames: &std::ops::Range<u64>| unsafe {
        compilers.method(&AtomicU64::new(address(thread)), frames.clone())
    };
    assert_eq!(method(&thread, &frames), 0, "another thread");
    set(key, address(&thread));
    assert_eq!(method(&thread, &frames), 0x7000);
    assert_eq!(
        method(&thread, &(frames.start + 8..frames.end)),
        0,
        "the environment is in no frame any more"
    );
    assert_eq!(method(&thread, &(frames.start..frames.start + 8)), 0, "its task is beyond the stack");
    thread[4] = address(&stack);
    assert_eq!(method(&thread, &frames), 0, "the environment has an old task");
    thread[4] = 0;
    assert_eq!(method(&thread, &frames), 0, "the thread has dropped its task");
    (thread[2], thread[4]) = (0, address(&task));
    assert_eq!(method(&thread, &frames), 0, "no environment");
    thread[2] = address(&stack) + 1;
    assert_eq!(method(&thread, &frames), 0, "not aligned");
    set(key, 0);
}
