//! Reads the registers of the interrupted code and the changing fields of its `JavaThread`, and copies its stack.
//!
//! Problem: pc, sp, fp, the thread state and the frame anchor are valid only at the instant of the signal.
//! Approach: copy them into a [`Capture`] by plain loads.
//! Invariant: nothing here can fault: the ucontext is on the stack, and the `JavaThread` of the running thread exists.
//! Sources: HotSpot `javaThread.hpp`, `javaFrameAnchor.hpp`, through the offsets in the VM's own tables
//! (`design/hotspot.md`).

use stackwalk::{Capture, ThreadOffsets};

use super::cpu::copy_stack;
pub use super::cpu::{cycles, registers, repeat_wait, thread_pointer};

/// Adds thread state, frame anchor, deoptimised frame, continuation entry and last polled instruction of the running
/// Java thread.
///
/// # Safety
/// `thread` is the `JavaThread*` of the calling thread, between its ThreadStart and ThreadEnd events.
pub unsafe fn add_java_state(capture: &mut Capture, thread: u64, offsets: &ThreadOffsets) {
    // SAFETY: every offset below is that of a word in the caller's JavaThread.
    let word = |offset: u32| -> u64 { unsafe { load(thread, offset) } };
    capture.thread = thread;
    // SAFETY: the field lies inside the caller's JavaThread.
    capture.thread_state = u64::from(unsafe { load::<u32>(thread, offsets.state) });
    capture.anchor_sp = word(offsets.anchor_sp);
    capture.anchor_pc = word(offsets.anchor_pc);
    capture.anchor_fp = word(offsets.anchor_fp);
    let replacing = word(offsets.vframe_array_head);
    if replacing != 0 {
        // SAFETY: the thread frees the record only in the deoptimisation after the one that cleared the pointer.
        capture.deoptimized_sp = unsafe { load(replacing, offsets.deoptimized_sp) };
        // SAFETY: the next word of the same record.
        capture.deoptimized_pc = unsafe { load(replacing, offsets.deoptimized_sp.wrapping_add(8)) };
    }
    capture.cont_entry = offsets.cont_entry.map_or(0, word);
    capture.saved_exception_pc = offsets.saved_exception_pc.map_or(0, word);
}

/// Loads a field of a living object of the VM.
///
/// # Safety
/// `offset` is inside the object at `base`, which is readable.
pub unsafe fn load<T: Copy>(base: u64, offset: u32) -> T {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the caller names a readable field; volatile because the VM's code changes it unseen by the compiler.
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
/// Between two ticks the program replaces our lines in the near caches. Prefetched together, they arrive together,
/// while each miss in a sequence costs hundreds of cycles.
#[inline(always)]
pub fn prefetch(address: *const libc::c_void, lines: usize) {
    for line in 0..lines {
        queue::prefetch_for_reading(address.wrapping_byte_add(line.wrapping_mul(64)));
    }
}

/// Copies `bytes` bytes and clears the padding behind them.
///
/// # Safety
/// `from` is readable for `bytes` bytes, `to` is aligned to 16 and writable for `padded(bytes)`.
pub(super) unsafe fn copy_padded(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: `to` has room for the padded bytes.
    unsafe { clear_padding(to, bytes) };
    // SAFETY: `from` is readable and `to` writable for `bytes` bytes.
    unsafe { copy_stack(from, to, bytes) };
}

/// Clears the last 16 of `padded(bytes)` bytes, if there is padding.
///
/// # Safety
/// `to` is aligned to 16 and writable for `padded(bytes)`.
#[inline(always)]
pub(super) unsafe fn clear_padding(to: *mut u8, bytes: usize) {
    if bytes & 15 != 0 {
        let last = to.wrapping_add(bytes & !15).cast::<u128>();
        // SAFETY: the last 16 of the padded bytes, at a multiple of 16.
        unsafe { last.write(0) };
    }
}
