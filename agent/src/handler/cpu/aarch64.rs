//! aarch64: registers of a signal's context, thread pointer, counter and copy.
//!
//! The counter runs at a fixed frequency (`CNTFRQ_EL0`, 24 MHz to 1 GHz), the same on all processors; the sampler
//! relates it to the monotonic clock. Linux lets user space read it.
//! Sources: Linux `arch/arm64/include/uapi/asm/sigcontext.h`, `arch/arm64/kernel/cpufeature.c`; Arm Architecture
//! Reference Manual for A-profile, chapter D12 (the generic timer).

use stackwalk::{Capture, Registers};

/// Copies the interrupted registers.
///
/// # Safety
/// `context` is the third argument of a handler installed with SA_SIGINFO.
pub unsafe fn registers(context: *const libc::c_void) -> Capture {
    // SAFETY: the caller passes the kernel's ucontext, which lives on the stack below the handler's frame.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let libc::mcontext_t { regs, sp, pc, .. } = context.uc_mcontext;
    let [x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, rest @ ..] = regs;
    let [x16, x17, x18, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, fp, lr] = rest;
    #[rustfmt::skip]
    let registers = Registers {
        x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, x16, x17, x18, x19, x20, x21, x22,
        x23, x24, x25, x26, x27, x28, lr,
    };
    Capture { pc, sp, fp, registers, ..Capture::default() }
}

/// Does nothing: the registers do not have the first argument of an interrupted system call.
///
/// # Safety
/// None are needed; the name is that of the other processor's function.
#[inline(always)]
pub unsafe fn repeat_wait(_context: *mut libc::c_void) {}

/// Returns the address of the C library's description of the running thread, at the high end of its stack.
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register that user space may read.
    unsafe {
        core::arch::asm!(
            "mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags, pure)
        )
    };
    pointer
}

/// Returns where the search for a field of that description, of at most `bytes` bytes, begins: it ends at the thread
/// pointer.
///
/// Source: AArch64 TLS (variant I); glibc `sysdeps/aarch64/nptl/tls.h` (`TLS_PRE_TCB_SIZE`).
pub fn thread_description(bytes: u64) -> u64 {
    thread_pointer().wrapping_sub(bytes)
}

/// True if the description ends at the thread pointer.
pub const OFFSET_IS_BELOW_POINTER: bool = true;

/// Reads the counter of the generic timer.
pub fn cycles() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets user space read.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

/// Copies `bytes` stack bytes by ordinary stores: processors detect such a stream and do not load old content. The
/// release store that publishes the snapshot orders them on this CPU.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes` bytes, they do not overlap, and `to` is aligned to 16.
#[inline(always)]
pub unsafe fn copy_stack(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: both ranges are valid for `bytes` bytes and apart.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
}
