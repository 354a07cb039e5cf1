//! Native unwinding through signal handlers, without a JVM: the code that a handler returns to and the instruction that
//! the signal interrupted are looked up at their pc. Return addresses are looked up one byte before.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one assembler block reads all registers of one moment"
)]

use std::path::Path;

use sampler_thread::native::NativeLibraries;
use stackwalk::{LiveMemory, NativeCode, NativeRegisters, NativeStop, PreservedRegisters, StackCopy};

/// The function that is interrupted at its first instruction, and the code that a handler returns to, each begin right
/// behind a function with a table that is wrong for them.
///
/// `restorer` calls `rt_sigreturn` by instructions that only its table describes: the interrupted sp, rbp, rbx, r12 to
/// r15 and rip in the ucontext on top of the stack (Linux `arch/x86/include/uapi/asm/sigcontext.h`).
const LIBRARY: &str = r#"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <ucontext.h>
    #include <unistd.h>

    __asm__(
        ".text\n"
        ".type before_first, @function\n before_first: .cfi_startproc\n .cfi_def_cfa_offset 80\n nop\n .cfi_endproc\n"
        ".size before_first, . - before_first\n"
        ".globl first\n .type first, @function\n first: .cfi_startproc\n ud2\n ret\n .cfi_endproc\n"
        ".size first, . - first\n"
        ".type before_restorer, @function\n before_restorer: .cfi_startproc\n .cfi_def_cfa_offset 80\n nop\n .cfi_endproc\n"
        ".size before_restorer, . - before_restorer\n"
        ".globl restorer\n .type restorer, @function\n restorer: .cfi_startproc\n .cfi_signal_frame\n"
        ".cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06\n"
        ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0x00\n"
        ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 0x01\n"
        ".cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0x00\n"
        ".cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0x00\n"
        ".cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0x00\n"
        ".cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0x00\n"
        ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01\n"
        "xorl %eax, %eax\n addl $15, %eax\n syscall\n .cfi_endproc\n"
        ".size restorer, . - restorer\n");

    void first(void);
    void restorer(void);
    static void (*call)(void *);
    static void *out;

    void handler(int number, siginfo_t *info, void *context) {
        call(out);
        // Behind `ud2`.
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    }

    void interrupted(void (*take)(void *), void *to, int own_restorer) {
        call = take;
        out = to;
        struct sigaction old, action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
        sigaction(SIGILL, &action, &old);
        if (own_restorer) {
            struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } kernel =
                {(void *)handler, SA_SIGINFO | 0x04000000, (void *)restorer, 0};
            syscall(SYS_rt_sigaction, SIGILL, &kernel, NULL, 8);
        }
        first();
        sigaction(SIGILL, &old, NULL);
    }"#;

/// Registers and stack of one moment.
struct Moment {
    registers: NativeRegisters,
    stack: Vec<u8>,
}

extern "C" fn take_moment(out: *mut Option<Moment>) {
    let mut values = [0_u64; 9];
    // SAFETY: stores registers to an array that is long enough; fs:0 is the thread pointer.
    unsafe {
        std::arch::asm!(
            "lea rax, [rip]",
            "mov [rdi], rax",
            "mov [rdi + 8], rsp",
            "mov [rdi + 16], rbp",
            "mov [rdi + 24], rbx",
            "mov [rdi + 32], r12",
            "mov [rdi + 40], r13",
            "mov [rdi + 48], r14",
            "mov [rdi + 56], r15",
            "mov rax, fs:0",
            "mov [rdi + 64], rax",
            in("rdi") values.as_mut_ptr(), out("rax") _
        );
    }
    let [pc, sp, fp, rbx, r12, r13, r14, r15, top] = values;
    let preserved = PreservedRegisters { rbx, r12, r13, r14, r15 };
    let registers = NativeRegisters { pc, sp, fp, preserved, interrupted: true };
    // SAFETY: the harness runs tests on threads whose stack holds the thread pointer at its high end.
    let stack = unsafe { std::slice::from_raw_parts(sp as *const u8, (top - sp) as usize) };
    // SAFETY: the caller passes a valid place.
    unsafe { *out = Some(Moment { registers, stack: stack.to_vec() }) };
}

/// Takes a moment in the handler of the library's own signal. Names are read from the library's file in `folder`.
fn moment(folder: &Path, own_restorer: bool) -> Moment {
    std::fs::write(folder.join("l.c"), LIBRARY).expect("writable");
    let output = std::process::Command::new("cc")
        .args(["-O1", "-fPIC", "-shared", "-w", "-Wl,-z,now", "l.c", "-o", "l.so"])
        .current_dir(folder)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.join("l.so").into_os_string().into_encoded_bytes();
    let path = std::ffi::CString::new(path).expect("a path");
    // SAFETY: the library has no initialisers of its own.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the handle is open.
    let function = unsafe { libc::dlsym(handle, c"interrupted".as_ptr()) };
    assert!(!function.is_null(), "{path:?}");
    type Interrupted = extern "C" fn(extern "C" fn(*mut Option<Moment>), *mut Option<Moment>, i32);
    // SAFETY: the source above declares it so.
    let function: Interrupted = unsafe { std::mem::transmute(function) };
    let mut moment = None;
    function(take_moment, &raw mut moment, i32::from(own_restorer));
    moment.expect("the library calls back")
}

/// The names of the frames of a moment, each looked up as the walk does, and why the walk ended.
fn names(moment: &Moment) -> (Vec<String>, NativeStop) {
    let memory = LiveMemory::new();
    let mut libraries = NativeLibraries::default();
    let stack = StackCopy::new(moment.registers.sp, &moment.stack);
    loop {
        let mut names = Vec::new();
        let mut registers = moment.registers;
        let stop = loop {
            let found = libraries.reading(&memory).caller(&registers, &stack);
            let ends_handler = found.is_ok_and(|caller| caller.interrupted);
            let pc = registers.pc - u64::from(!registers.interrupted && !ends_handler);
            names.push(libraries.name(&memory, pc).text);
            match found {
                Ok(caller) => registers = caller,
                Err(stop) => break stop,
            }
        };
        if !libraries.prepare(&memory) {
            return (names, stop);
        }
    }
}

#[test]
fn the_interrupted_instruction_and_the_code_behind_a_handler_are_looked_up_at_their_pc() {
    for own_restorer in [false, true] {
        let folder = tempfile::tempdir().expect("a writable temporary folder");
        let (names, stop) = names(&moment(folder.path(), own_restorer));
        assert_eq!(stop, NativeStop::Root, "{names:?}");
        let at = names.iter().position(|name| name == "handler").expect("the handler");
        let restorer = if own_restorer { "restorer" } else { &*names[at + 1] };
        assert_eq!(names[at..at + 4], ["handler", restorer, "first", "interrupted"], "{names:?}");
    }
}
