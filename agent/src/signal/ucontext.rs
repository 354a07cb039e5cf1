//! Registers of the interrupted code, and the fields of its `JavaThread` that change from moment to moment.
//!
//! Problem: pc, sp, fp, the thread state and the frame anchor are true only at the instant of the signal.
//! Approach: copy them all into a [`Capture`] by plain loads.
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

use stackwalk::{Capture, ThreadOffsets};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("Tickwalk's signal handler is written for Linux on x86-64");

pub use sampler_thread::snapshot::{HEAD_BYTES, SnapshotHead};

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
        ..Capture::default()
    }
}

/// Adds thread state, frame anchor and continuation entry of the running Java thread.
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
    capture.vframe_array_head = unsafe { load(thread, offsets.vframe_array_head) };
    if let Some(offset) = offsets.cont_entry {
        // SAFETY: as above.
        capture.cont_entry = unsafe { load(thread, offset) };
    }
}

/// # Safety
/// `offset` is inside the object at `base`, which is readable.
unsafe fn load<T: Copy>(base: u64, offset: u32) -> T {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: by the caller's promise; volatile because the VM's own code writes it behind the compiler's back.
    unsafe { address.read_volatile() }
}

/// Time stamp counter.
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}
