//! Native unwinding of this test's own stack, without a JVM: frames and names are correct, a walk allocates nothing,
//! and code without tables is an error.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one assembler block reads all registers of one moment"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use sampler_thread::clock::own_cpu_nanos;
use sampler_thread::native::{NativeLibraries, Owner};
use stackwalk::{LiveMemory, NativeCode, NativeRegisters, NativeStop, PreservedRegisters, StackCopy};

thread_local! {
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    if COUNTING.get() {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    }
}

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the contract of this function.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Registers and stack of one moment.
struct Moment {
    registers: NativeRegisters,
    stack: Vec<u8>,
}

#[inline(never)]
fn innermost() -> Moment {
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
    Moment { registers, stack: stack.to_vec() }
}

#[inline(never)]
fn middle(depth: u32) -> Moment {
    let moment = if depth == 0 { innermost() } else { middle(depth - 1) };
    black_box(moment)
}

#[inline(never)]
fn outer() -> Moment {
    let moment = middle(2);
    black_box(moment)
}

/// Writes the pc of each frame, as used for lookup, to `pcs`, and returns why the walk ended; counts allocations.
fn walk(
    libraries: &mut NativeLibraries,
    memory: &LiveMemory,
    moment: &Moment,
    pcs: &mut Vec<u64>,
) -> NativeStop {
    pcs.clear();
    let stack = StackCopy::new(moment.registers.sp, &moment.stack);
    let mut registers = moment.registers;
    COUNTING.set(true);
    let stop = loop {
        pcs.push(registers.pc - u64::from(!registers.interrupted));
        match libraries.reading(memory).caller(&registers, &stack) {
            Ok(caller) => registers = caller,
            Err(stop) => break stop,
        }
    };
    COUNTING.set(false);
    stop
}

/// Walks until all tables that the walk needs are loaded.
fn complete_walk(
    libraries: &mut NativeLibraries,
    memory: &LiveMemory,
    moment: &Moment,
    pcs: &mut Vec<u64>,
) -> NativeStop {
    loop {
        let stop = walk(libraries, memory, moment, pcs);
        if !libraries.prepare(memory) {
            return stop;
        }
    }
}

#[test]
fn a_walk_to_the_root_has_all_names_and_allocates_nothing() {
    let moment = outer();
    let memory = LiveMemory::new();
    let mut libraries = NativeLibraries::default();
    let mut pcs = Vec::with_capacity(1000);
    assert_eq!(complete_walk(&mut libraries, &memory, &moment, &mut pcs), NativeStop::Root);
    // Neither cached nor uncached rules allocated.
    assert_eq!(walk(&mut libraries, &memory, &moment, &mut pcs), NativeStop::Root);
    assert_eq!(ALLOCATIONS.get(), 0);

    let names: Vec<String> = pcs.iter().map(|&pc| libraries.name(&memory, pc).text).collect();
    // Names are mangled: the length of each part is before it.
    let expect = ["9innermost", "6middle", "6middle", "6middle", "5outer"];
    assert!(
        names.iter().zip(expect).all(|(name, part)| name.contains(&format!("13native_unwind{part}"))),
        "{names:?}"
    );
    let rooted = pcs.iter().zip(&names).all(|(&pc, text)| {
        let name = libraries.name(&memory, pc);
        name.range.contains(&pc)
            && name.text == *text
            && libraries.name(&memory, name.range.start).range == name.range
            && libraries.name(&memory, name.range.end - 1).range == name.range
    });
    assert!(rooted, "a name is that of a whole function: {names:?}");
    // The frames of the test harness and the C library, down to the start of the thread.
    assert!(names.len() > 8 && names.iter().all(|name| !name.starts_with('[')), "{names:?}");
}

#[test]
fn code_without_tables_is_an_error() {
    let moment = outer();
    let memory = LiveMemory::new();
    let mut libraries = NativeLibraries::default();
    let mut pcs = Vec::with_capacity(1000);
    assert_eq!(complete_walk(&mut libraries, &memory, &moment, &mut pcs), NativeStop::Root);

    // A heap address is no code.
    let heap = Box::new(0_u64);
    let lost = NativeRegisters { pc: std::ptr::from_ref(&*heap) as u64, ..moment.registers };
    let stack = StackCopy::new(moment.registers.sp, &moment.stack);
    assert_eq!(libraries.reading(&memory).caller(&lost, &stack), Err(NativeStop::UnknownCode(lost.pc)));
    assert_eq!(libraries.name(&memory, lost.pc).owner, Owner::Nobody);

    // The error of a short stack copy contains the missing address.
    let short = Moment { registers: moment.registers, stack: moment.stack[..64].to_vec() };
    let end = moment.registers.sp + 64;
    match walk(&mut libraries, &memory, &short, &mut pcs) {
        NativeStop::Unreadable(address) => assert!(address + 8 > end, "{address:#x} was copied"),
        other => panic!("{other:?}"),
    }
}

/// Place of a test library's `.debug_frame`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DebugInformation {
    InTheLibrary,
    InASeparateFile,
    OfAnotherBuild,
}

/// A library whose functions have no unwind tables but those in `.debug_frame`.
const LIBRARY: &str = "
    __attribute__((noinline)) void inner(void (*call)(void *), void *out) {
        volatile char local[300];
        local[0] = 1;
        call(out);
        local[1] = 1;
    }
    void outer(void (*call)(void *), void *out) {
        volatile long local[20];
        local[0] = 1;
        inner(call, out);
        local[1] = 1;
    }";

fn run(program: &str, arguments: &[&str], folder: &std::path::Path) {
    let output = std::process::Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

extern "C" fn take_moment(out: *mut Option<Moment>) {
    // SAFETY: the caller passes a valid place.
    unsafe { *out = Some(outer()) };
}

/// Calls through a library whose tables are there; returns the names of the frames and why the walk ended.
fn walk_through_library(debug: DebugInformation, options: &[&str]) -> (Vec<String>, NativeStop) {
    let folder = tempfile::tempdir().expect("a writable temporary folder");
    std::fs::write(folder.path().join("l.c"), LIBRARY).expect("writable");
    let compile = |output: &str, more: &[&str]| {
        let without_tables = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"];
        let common =
            ["-O2", "-g", "-fPIC", "-shared", "-fomit-frame-pointer", "-Wl,--build-id", "l.c", "-o", output];
        run("cc", &[&without_tables[..], &common, options, more].concat(), folder.path());
    };
    compile("l.so", &[]);
    if debug != DebugInformation::InTheLibrary {
        let of_another = debug == DebugInformation::OfAnotherBuild;
        compile("other.so", if of_another { &["-Wl,--build-id=0x1234"] } else { &[] });
        run("objcopy", &["--only-keep-debug", "other.so", "l.debug"], folder.path());
        run("objcopy", &["--strip-debug", "--add-gnu-debuglink=l.debug", "l.so"], folder.path());
    }
    let path = folder.path().join("l.so").into_os_string().into_encoded_bytes();
    let path = std::ffi::CString::new(path).expect("a path");
    // SAFETY: the library has no initialisers of its own.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the handle is open.
    let function = unsafe { libc::dlsym(handle, c"outer".as_ptr()) };
    assert!(!function.is_null(), "{path:?}");
    // SAFETY: the source above declares it so.
    let function: extern "C" fn(extern "C" fn(*mut Option<Moment>), *mut Option<Moment>) =
        unsafe { std::mem::transmute(function) };
    let mut moment = None;
    function(take_moment, &raw mut moment);
    let moment = moment.expect("the library calls back");
    let memory = LiveMemory::new();
    let mut libraries = NativeLibraries::default();
    let mut pcs = Vec::with_capacity(1000);
    let stop = complete_walk(&mut libraries, &memory, &moment, &mut pcs);
    ALLOCATIONS.set(0);
    assert_eq!((walk(&mut libraries, &memory, &moment, &mut pcs), ALLOCATIONS.get()), (stop, 0));
    (pcs.iter().map(|&pc| libraries.name(&memory, pc).text).collect(), stop)
}

#[test]
fn debug_frames_of_a_library_or_of_its_debug_file_are_used() {
    for debug in [DebugInformation::InTheLibrary, DebugInformation::InASeparateFile] {
        for options in [["-gz=none"], ["-gz=zlib"]] {
            let (names, stop) = walk_through_library(debug, &options);
            assert_eq!(stop, NativeStop::Root, "{names:?}");
            let chain = names.windows(2).any(|pair| pair == ["inner", "outer"]);
            assert!(chain && names.len() > 12, "{names:?}");
        }
    }
    let (names, stop) = walk_through_library(DebugInformation::OfAnotherBuild, &["-gz=none"]);
    assert!(matches!(stop, NativeStop::NoRule(_)), "the file belongs to another build: {stop:?}");
    assert_eq!(names.last().map(String::as_str), Some("inner"), "{names:?}");
}

/// Prints the cost of a native frame with cached rules, and of loading the VM's tables and symbols:
/// `TICKWALK_MEASURE=path/to/libjvm.so cargo test --release -p sampler-thread --test native_unwind -- --nocapture`
#[test]
fn cost() {
    let Some(libjvm) = std::env::var_os("TICKWALK_MEASURE") else {
        eprintln!("not measured: set TICKWALK_MEASURE to the path of a libjvm.so");
        return;
    };
    let moment = outer();
    let memory = LiveMemory::new();
    let mut libraries = NativeLibraries::default();
    let mut pcs = Vec::with_capacity(1000);
    complete_walk(&mut libraries, &memory, &moment, &mut pcs);
    let rounds: u32 = 20_000;
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(walk(&mut libraries, &memory, &moment, &mut pcs));
    }
    let per_frame = start.elapsed().as_nanos() / u128::from(rounds) / pcs.len() as u128;
    eprintln!("warm: {per_frame} ns per frame, {} frames", pcs.len());

    let path = std::ffi::CString::new(libjvm.into_encoded_bytes()).expect("a path");
    // SAFETY: loads the VM's library, whose initialisers start no VM.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "cannot load {path:?}");
    // SAFETY: the handle is open.
    let pc = unsafe { libc::dlsym(handle, c"JNI_CreateJavaVM".as_ptr()) } as u64 + 8;
    let before = libraries.bytes();
    let registers = NativeRegisters { pc, ..moment.registers };
    let stack = StackCopy::new(moment.registers.sp, &moment.stack);
    let start = Instant::now();
    let mut loaded = 0;
    while let Err(NativeStop::UnknownCode(_) | NativeStop::NoRule(_)) =
        libraries.reading(&memory).caller(&registers, &stack)
    {
        // The list of libraries is read at most ten times a second.
        loaded += u32::from(libraries.prepare(&memory));
        assert!(start.elapsed().as_secs() < 5, "the library is not found");
    }
    let begin = own_cpu_nanos();
    let name = libraries.name(&memory, pc);
    let (loading, symbols) = (own_cpu_nanos() - begin, libraries.bytes() - before);
    eprintln!("{loaded} loads; symbols: {symbols} bytes, {} us of CPU time: {name:?}", loading / 1000);
    let begin = own_cpu_nanos();
    (0..100).for_each(|_| _ = black_box(libraries.name(&memory, pc + 1)));
    eprintln!("a name: {} ns", (own_cpu_nanos() - begin) / 100);
}
