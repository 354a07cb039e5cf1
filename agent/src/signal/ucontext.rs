//! Reads the registers of the interrupted code and the moving fields of its `JavaThread`, and copies its stack.
//!
//! Problem: pc, sp, fp, the thread state and the frame anchor are valid only at the instant of the signal.
//! Approach: copy them into a [`Capture`] by plain loads.
//! Invariant: nothing here can fault: the ucontext is on the stack, and the `JavaThread` of the running thread exists.
//! Sources: Linux `arch/x86/include/uapi/asm/sigcontext.h`; HotSpot `javaThread.hpp`, `javaFrameAnchor.hpp` through
//! the offsets of the VM's own tables (`design/hotspot.md`).

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use stackwalk::{Capture, Registers, ThreadOffsets};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("Tickwalk's signal handler is written for Linux on x86-64");

/// Copies the interrupted registers.
///
/// # Safety
/// `context` is the third argument of a handler installed with SA_SIGINFO.
pub unsafe fn registers(context: *const libc::c_void) -> Capture {
    // SAFETY: the caller passes the kernel's ucontext, which lives on the stack below the handler's frame.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let general = &context.uc_mcontext.gregs;
    let register = |number: i32| general.get(number as usize).copied().unwrap_or(0).cast_unsigned();
    Capture {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
        registers: Registers {
            rax: register(libc::REG_RAX),
            rbx: register(libc::REG_RBX),
            rcx: register(libc::REG_RCX),
            rdx: register(libc::REG_RDX),
            rsi: register(libc::REG_RSI),
            rdi: register(libc::REG_RDI),
            r8: register(libc::REG_R8),
            r9: register(libc::REG_R9),
            r10: register(libc::REG_R10),
            r11: register(libc::REG_R11),
            r12: register(libc::REG_R12),
            r13: register(libc::REG_R13),
            r14: register(libc::REG_R14),
            r15: register(libc::REG_R15),
        },
        ..Capture::default()
    }
}

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

/// Returns the address of the C library's description of the running thread, which lies at the high end of its stack.
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the ABI puts the thread pointer's own address at its start, for every thread that has one.
    unsafe {
        core::arch::asm!(
            "mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure)
        )
    };
    pointer
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

/// Reads the time stamp counter.
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Prefetches `lines` cache lines from `address` on; never faults.
///
/// Between two ticks the program has replaced our lines in the near caches. Misses one after the other cost hundreds of
/// cycles each; lines that are prefetched together arrive together.
#[inline(always)]
pub fn prefetch(address: *const libc::c_void, lines: usize) {
    for line in 0..lines {
        let line = address.wrapping_byte_add(line.wrapping_mul(64)).cast();
        // SAFETY: a prefetch of any address is harmless.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line) };
    }
}

/// Copies `bytes` stack bytes past the caches: another processor reads them, and loading the old content of the slab
/// first, as ordinary stores do, would only make the profiled thread wait.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes` bytes, they do not overlap, and `to` is aligned to 16.
#[inline(always)]
unsafe fn copy_stack(from: *const u8, to: *mut u8, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let words = bytes.checked_div(size_of::<__m128i>()).unwrap_or(0);
    for word in 0..words {
        // SAFETY: inside `bytes`, by the bound of the loop.
        let source = unsafe { from.cast::<__m128i>().add(word) };
        // SAFETY: as above.
        let target = unsafe { to.cast::<__m128i>().add(word) };
        // SAFETY: readable by the caller's promise, at any alignment.
        let value = unsafe { _mm_loadu_si128(source) };
        // SAFETY: writable and aligned by the caller's promise.
        unsafe { _mm_stream_si128(target, value) };
    }
    let done = words.wrapping_mul(size_of::<__m128i>());
    // SAFETY: the rest of `bytes`.
    unsafe {
        core::ptr::copy_nonoverlapping(
            from.wrapping_add(done),
            to.wrapping_add(done),
            bytes.wrapping_sub(done),
        )
    };
    // SAFETY: every x86-64 processor has the instruction; it makes the streamed bytes visible before the request.
    unsafe { _mm_sfence() };
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
