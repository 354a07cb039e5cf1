//! Reads the registers of the interrupted code and the moving fields of its `JavaThread`, and copies its stack.
//!
//! Problem: pc, sp, fp, the thread state and the frame anchor are valid only at the instant of the signal.
//! Approach: copy them into a [`Capture`] by plain loads.
//! Invariant: nothing here can fault: the ucontext is on the stack, and the `JavaThread` of the running thread exists.
//! Sources: HotSpot `javaThread.hpp`, `javaFrameAnchor.hpp` through
//! the offsets of the VM's own tables (`design/hotspot.md`).

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use stackwalk::{Capture, ThreadOffsets};

use super::cpu::{copy_stack, prefetch_line};
pub use super::cpu::{cycles, registers, repeat_wait, thread_pointer};

/// Adds thread state, frame anchor, frame being deoptimised, continuation entry and last polled instruction of the running
/// Java thread.
///
/// # Safety
/// `thread` is the `JavaThread*` of the calling thread, between its ThreadStart and ThreadEnd events.
pub unsafe fn add_java_state(capture: &mut Capture, thread: u64, offsets: &ThreadOffsets) {
    capture.thread = thread;
    // SAFETY: the field lies inside the caller's JavaThread.
    capture.thread_state = u64::from(unsafe { load::<u32>(thread, offsets.state) });
    // SAFETY: as above.
    capture.anchor_sp = unsafe { load(thread, offsets.anchor_sp) };
    // SAFETY: as above.
    capture.anchor_pc = unsafe { load(thread, offsets.anchor_pc) };
    // SAFETY: as above.
    capture.anchor_fp = unsafe { load(thread, offsets.anchor_fp) };
    // SAFETY: as above.
    let replacing: u64 = unsafe { load(thread, offsets.vframe_array_head) };
    if replacing != 0 {
        // SAFETY: the thread frees the record only in the deoptimisation after the one that has cleared the pointer.
        capture.deoptimized_sp = unsafe { load(replacing, offsets.deoptimized_sp) };
        // SAFETY: as above.
        capture.deoptimized_pc = unsafe { load(replacing, offsets.deoptimized_sp.wrapping_add(8)) };
    }
    if let Some(offset) = offsets.cont_entry {
        // SAFETY: as above.
        capture.cont_entry = unsafe { load(thread, offset) };
    }
    if let Some(offset) = offsets.saved_exception_pc {
        // SAFETY: as above.
        capture.saved_exception_pc = unsafe { load(thread, offset) };
    }
}

/// Loads a field of a living object of the VM.
///
/// # Safety
/// `offset` is inside the object at `base`, which is readable.
pub unsafe fn load<T: Copy>(base: u64, offset: u32) -> T {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: by the caller's promise; volatile because the VM's own code writes it behind the compiler's back.
    unsafe { address.read_volatile() }
}

/// Reads the monotonic clock, in nanoseconds. Signal safe.
#[cold]
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; clock_gettime is signal safe (signal-safety(7)), and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
    seconds.wrapping_add(time.tv_nsec.cast_unsigned())
}

/// Prefetches `lines` cache lines from `address` on; never faults.
///
/// Between two ticks the program has replaced our lines in the near caches. Misses one after the other cost hundreds of
/// cycles each; lines that are prefetched together arrive together.
#[inline(always)]
pub fn prefetch(address: *const libc::c_void, lines: usize) {
    for line in 0..lines {
        let line = address.wrapping_byte_add(line.wrapping_mul(64));
        prefetch_line(line);
    }
}

/// Copies `bytes` bytes and clears the padding behind them.
///
/// # Safety
/// `from` is readable for `bytes` bytes, `to` is aligned to 16 and writable for `padded(bytes)`.
pub(super) unsafe fn copy_padded(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes & 15 != 0 {
        let last = to.wrapping_add(bytes & !15).cast::<u128>();
        // SAFETY: the last 16 of the padded bytes, at a multiple of 16.
        unsafe { last.write(0) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_stack(from, to, bytes) };
}
