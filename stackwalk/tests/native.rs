//! Native code between Java frames, on recorded stacks of real JVMs: wrong unwind tables neither remove nor add a Java
//! frame.

use crate::support::fixture;
use crate::support::walks;
use stackwalk::{Frame, Limits, NativeCode, NativeRegisters, NativeStop, ScopeCache, StackCopy, Stop};

/// Unwind tables given by a function.
#[derive(Debug)]
struct Tables {
    caller: fn(&NativeRegisters) -> Result<NativeRegisters, NativeStop>,
    calls: u32,
}

impl Tables {
    fn new(caller: fn(&NativeRegisters) -> Result<NativeRegisters, NativeStop>) -> Self {
        Self { caller, calls: 0 }
    }
}

impl NativeCode for Tables {
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        _stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        self.calls += 1;
        (self.caller)(registers).map(|caller| NativeRegisters { interrupted: false, ..caller })
    }
}

/// Walks every recorded thread with these tables; the Java frames must equal the recorded ones.
#[track_caller]
fn check(tables: fn(&NativeRegisters) -> Result<NativeRegisters, NativeStop>, expect_gaps: bool) {
    let (mut calls, mut gaps) = (0, 0);
    for file in fixture::all() {
        let fixture = fixture::Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        for thread in &fixture.threads {
            let mut native = Tables::new(tables);
            let (capture, stack) = (&thread.capture, &*thread.stack);
            let (frames, stop) =
                walks::walk_through(&hotspot, &fixture, &mut cache, &mut native, capture, stack);
            let text = walks::as_text(&hotspot, &fixture, &frames, stop);
            let java: String = text
                .lines()
                .filter(|line| !matches!(*line, "native code" | "gap"))
                .map(|line| format!("{line}\n"))
                .collect();
            gaps += text.lines().filter(|line| *line == "gap").count();
            assert_eq!(java, thread.expected, "{} {}\n{text}", file.display(), thread.name);
            calls += native.calls;
        }
    }
    assert!(calls > 0, "no recorded thread runs native code");
    assert_eq!(gaps > 0, expect_gaps);
}

#[test]
fn java_frames_are_kept_without_tables() {
    check(|registers| Err(NativeStop::NoRule(registers.pc)), true);
}

#[test]
fn java_frames_are_kept_with_tables_that_read_unreadable_memory() {
    check(|_| Err(NativeStop::Unreadable(8)), true);
}

#[test]
fn java_frames_are_kept_with_tables_that_skip_them() {
    check(|registers| Ok(NativeRegisters { sp: registers.sp + (1 << 40), ..*registers }), true);
}

#[test]
fn a_native_thread_without_a_stack_copy_is_cut() {
    let fixture = fixture::Fixture::load(&fixture::all()[0]);
    let hotspot = fixture.hotspot();
    let mut cache = Box::new(ScopeCache::new());
    let mut native = Tables::new(|registers| Err(NativeStop::Unreadable(registers.sp)));
    let capture =
        stackwalk::Capture { pc: 0x1234, sp: 0x7000, stack_high: 0x8000, ..stackwalk::Capture::ZERO };
    let (frames, stop) = walks::walk_through(&hotspot, &fixture, &mut cache, &mut native, &capture, &[]);
    assert_eq!(stop, Stop::CopyEnd);
    assert_eq!(walks::as_text(&hotspot, &fixture, &frames, stop), "native code\ngap\ncopy_end\n");
}

/// Walks a thread whose pc is `offset` bytes into a routine at 0x800 without tables, and whose return address, 0x105,
/// follows a call of `target`. Each of `code` is machine code with its address.
fn in_assembler(offset: u64, target: u32, code: &[(u64, Vec<u8>)]) -> (String, Stop) {
    let mut fixture = fixture::Fixture::load(&fixture::all()[0]);
    let mut call = vec![0xe8];
    call.extend(target.wrapping_sub(0x105).to_le_bytes());
    fixture.regions.insert(0x100, call);
    fixture.regions.extend(code.iter().cloned());
    let hotspot = fixture.hotspot();
    let mut cache = Box::new(ScopeCache::new());
    let tables = |registers: &NativeRegisters| match registers.pc {
        0x105 => Ok(NativeRegisters { pc: 0x200, sp: registers.sp + 16, ..*registers }),
        0x200 => Err(NativeStop::Root),
        // Functions that jump to the routine or call it, and one that is close to it.
        pc @ (0x280..0x400 | 0x600..0x700) => Ok(NativeRegisters { pc, sp: registers.sp + 8, ..*registers }),
        pc => Err(NativeStop::NoRule(pc)),
    };
    let capture = stackwalk::Capture {
        pc: 0x800 + offset,
        sp: 0x7000,
        stack_low: 0x7000,
        stack_high: 0x8000,
        ..stackwalk::Capture::ZERO
    };
    let mut stack = vec![0; 0x1000];
    stack[..8].copy_from_slice(&0x105_u64.to_le_bytes());
    let mut native = Tables::new(tables);
    let (frames, stop) = walks::walk_through(&hotspot, &fixture, &mut cache, &mut native, &capture, &stack);
    (walks::as_text(&hotspot, &fixture, &frames, stop), stop)
}

#[track_caller]
fn assert_whole((text, stop): &(String, Stop)) {
    assert_eq!((*stop, text.contains("gap")), (Stop::EndOfStack, false), "{text}");
    assert_eq!(text.lines().filter(|line| *line == "native code").count(), 3);
}

#[track_caller]
fn assert_cut((text, stop): &(String, Stop)) {
    assert!(text.contains("gap") && *stop != Stop::EndOfStack, "{text}");
}

#[test]
fn assembler_without_tables_is_unwound_if_its_return_address_follows_a_call_of_it() {
    for offset in [0, 0x40, 0x300] {
        assert_whole(&in_assembler(offset, 0x800, &[]));
    }
    // The call has another target: after the pc, too far before it, in code with tables.
    for target in [0x850, 0x10, 0x600] {
        assert_cut(&in_assembler(0x40, target, &[]));
    }
}

/// A function at `start` of the fewest bytes that are searched, which begins with `first` and a jump to `target`.
fn jumping(start: u64, first: &[u8], target: u64) -> (u64, Vec<u8>) {
    let mut code = [first, &[0xe9]].concat();
    let distance = target.wrapping_sub(start + code.len() as u64 + 4) as u32;
    code.extend(distance.to_le_bytes());
    code.resize(128, 0x90);
    (start, code)
}

#[test]
fn assembler_without_tables_is_unwound_if_the_function_that_was_called_jumps_to_it() {
    // As in libjvm: `push rbp; mov rbp, rsp; pop rbp; jmp` (JDK 11), or a jump alone.
    const FRAME: [u8; 5] = [0x55, 0x48, 0x89, 0xe5, 0x5d];
    for first in [&FRAME[..], &[]] {
        assert_whole(&in_assembler(0x40, 0x280, &[jumping(0x280, first, 0x800)]));
    }
    // `test cl, 7; je` to the last jump: the function chooses between routines.
    let choice = [&[0xf6, 0xc1, 7, 0x74, 5, 0xe9][..], &0x1000_u32.to_le_bytes()].concat();
    assert_whole(&in_assembler(0x40, 0x280, &[jumping(0x280, &choice, 0x800)]));
    // One function jumps to the next.
    let two = [jumping(0x280, &[], 0x300), jumping(0x300, &FRAME, 0x800)];
    assert_whole(&in_assembler(0x40, 0x280, &two));

    // Jumps to other places: after the pc, too far before it, in code with tables, and three jumps.
    for target in [0x850, 0x10, 0x600] {
        assert_cut(&in_assembler(0x40, 0x280, &[jumping(0x280, &[], target)]));
    }
    let three = [jumping(0x280, &[], 0x300), jumping(0x300, &[], 0x380), jumping(0x380, &[], 0x800)];
    assert_cut(&in_assembler(0x40, 0x280, &three));
    assert_cut(&in_assembler(0x40, 0x280, &[]));
}

#[test]
fn a_native_thread_ends_at_its_root() {
    let fixture = fixture::Fixture::load(&fixture::all()[0]);
    let hotspot = fixture.hotspot();
    let mut cache = Box::new(ScopeCache::new());
    let tables = |registers: &NativeRegisters| match registers.pc {
        pc @ 0x100..0x105 => Ok(NativeRegisters { pc: pc + 1, sp: registers.sp + 16, ..*registers }),
        _ => Err(NativeStop::Root),
    };
    let capture =
        stackwalk::Capture { pc: 0x100, sp: 0x7000, stack_high: 0x8000, ..stackwalk::Capture::ZERO };
    let (frames, stop) =
        walks::walk_through(&hotspot, &fixture, &mut cache, &mut Tables::new(tables), &capture, &[]);
    assert_eq!((frames.len(), stop), (6, Stop::EndOfStack));
}

/// Native frames that are wanted only as far as Java are above the first Java frame, and all Java frames are there.
#[test]
fn native_frames_end_at_the_newest_java_frame() {
    let mut followed = 0;
    for file in fixture::all() {
        let fixture = fixture::Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        for thread in &fixture.threads {
            let mut native = Tables::new(|registers| Err(NativeStop::NoRule(registers.pc)));
            let memory = fixture::AnyMemory::new(&fixture);
            let walker = stackwalk::Walker::new(&hotspot, &memory, &mut cache, Limits::default());
            let mut walker = walker.with_native_until_java(&mut native);
            let mut frames = walker.frames(&thread.capture, &thread.stack);
            let found: Vec<Frame> = frames.by_ref().collect();
            let stop = frames.stop();
            let is_java = |frame: &Frame| frame.method().is_some();
            let is_native = |frame: &Frame| matches!(frame, Frame::Native { .. } | Frame::Gap { .. });
            let newest = found.iter().position(is_java).expect("recorded in Java");
            assert!(!found[newest..].iter().any(is_native), "{} {}", file.display(), thread.name);
            followed += found[..newest].iter().filter(|frame| is_native(frame)).count();
            let (whole, expected) =
                walks::walk(&hotspot, &fixture, &mut cache, &thread.capture, &thread.stack);
            let without: Vec<&Frame> = found.iter().filter(|frame| !is_native(frame)).collect();
            assert!(without.into_iter().eq(whole.iter().map(|(frame, _)| frame)), "{}", thread.name);
            assert_eq!(stop, expected);
        }
    }
    assert!(followed > 0, "no recorded thread runs native code");
}
