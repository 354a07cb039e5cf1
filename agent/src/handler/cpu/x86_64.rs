//! x86-64: registers of a signal's context, thread pointer, time stamp counter and copy.
//!
//! Sources: Linux `arch/x86/include/uapi/asm/sigcontext.h`; System V ABI for AMD64; Intel SDM volume 2.

use stackwalk::{Capture, Registers};

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

/// Result of a system call that a signal has interrupted.
const INTERRUPTED: u64 = (libc::EINTR as u64).wrapping_neg();
/// Instruction of a system call.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// Bytes above the stack pointer where the waiting function has its `pollfd`.
const NEAR: u64 = 512;

/// Lets the interrupted code wait again if the signal has interrupted poll(2) for one descriptor without a time limit,
/// which is how the JDK's network library calls it for `accept` (`NET_Timeout`). Before the correction of JDK-8237858
/// (JDK 15, later updates of 11) that function takes the interruption for the end of a time limit, and the kernel does
/// not repeat the call by itself (signal(7)).
///
/// # Safety
/// `context` is the third argument of a handler installed with SA_SIGINFO, on the stack of the interrupted thread.
#[inline(always)]
pub unsafe fn repeat_wait(context: *mut libc::c_void) {
    // SAFETY: the caller passes the kernel's ucontext.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let general = &mut context.uc_mcontext.gregs;
    let register = |number: i32| general.get(number as usize).copied().unwrap_or(0).cast_unsigned();
    if register(libc::REG_RAX) != INTERRUPTED {
        return;
    }
    let (count, limit_ms) = (register(libc::REG_RSI), register(libc::REG_RDX) as i32);
    let (place, sp, pc) = (register(libc::REG_RDI), register(libc::REG_RSP), register(libc::REG_RIP));
    let is_near = place & 3 == 0 && place.wrapping_sub(sp) < NEAR;
    if count != 1 || limit_ms >= 0 || !is_near {
        return;
    }
    // SAFETY: the thread has just executed an instruction that ends at its pc, and the shortest system call has two
    // bytes.
    let instruction = unsafe { (pc.wrapping_sub(2) as *const [u8; 2]).read_volatile() };
    // SAFETY: the program passed the address to the kernel, and it lies in the frame of a function that has not
    // returned.
    let wanted = unsafe { (place as *const libc::pollfd).read_volatile() };
    if instruction != SYSTEM_CALL || wanted.events != libc::POLLIN | libc::POLLERR {
        return;
    }
    let mut set = |number: i32, value: u64| {
        if let Some(register) = general.get_mut(number as usize) {
            *register = value.cast_signed();
        }
    };
    set(libc::REG_RAX, libc::SYS_poll.cast_unsigned());
    set(libc::REG_RIP, pc.wrapping_sub(2));
}

/// Returns the address of the C library's description of the running thread, at the high end of its stack.
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

/// Returns where the search for a field of that description begins: at the thread pointer.
pub fn thread_description(_bytes: u64) -> u64 {
    thread_pointer()
}

/// True if the description ends at the thread pointer.
pub const OFFSET_IS_BELOW_POINTER: bool = false;

/// Reads the time stamp counter.
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Copies `bytes` stack bytes past the caches: another processor reads them, and ordinary stores would first load the
/// slab's old content while the profiled thread waits.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes` bytes, they do not overlap, and `to` is aligned to 16.
#[inline(always)]
pub unsafe fn copy_stack(from: *const u8, to: *mut u8, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let words = bytes.checked_div(size_of::<__m128i>()).unwrap_or(0);
    for word in 0..words {
        // SAFETY: inside `bytes`, by the bound of the loop.
        let source = unsafe { from.cast::<__m128i>().add(word) };
        // SAFETY: inside `bytes`, by the bound of the loop.
        let target = unsafe { to.cast::<__m128i>().add(word) };
        // SAFETY: readable, at any alignment.
        let value = unsafe { _mm_loadu_si128(source) };
        // SAFETY: writable, and aligned to 16.
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
