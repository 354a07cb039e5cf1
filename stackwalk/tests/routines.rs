//! The caller of a routine is one whose call leads to it.
//!
//! Generated code in the layouts of JDK 17 and 25.

#![cfg(target_arch = "x86_64")]

use crate::support::fixture;
use crate::support::fixture::{AnyMemory, Fixture};
use crate::support::synthetic;
use crate::support::synthetic::{Chain, Process, Shape};
use stackwalk::{Frame, Limits, ScopeCache, Stop, Walker};

/// Layouts: JDK 17 and 25.
const LAYOUTS: [usize; 2] = [1, 3];
const ROUTINES: usize = 0;
const CALLER: (usize, u64) = (1, 4);
/// A call that has returned.
const EARLIER: (usize, u64) = (2, 4);
/// Addresses of the two routines.
const FIRST: u64 = 0;
const SECOND: u64 = 32;
/// `nop; ret`, and a jump to the second routine.
const RETURNS: &[u8] = &[0x90, 0xc3];
const JUMPS: &[u8] = &[0xeb, 30];
/// `jmp rax`, which may lead anywhere.
const JUMPS_ANYWHERE: &[u8] = &[0xff, 0xe0];

/// State of a thread in the second routine.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Interrupted,
    CallingC,
}

/// The methods and how the walk ends of a thread that is in the second routine.
///
/// The return address of an earlier call of the first routine is on top of its stack. `hidden` is the number of words
/// above it at which the routine's own return address lies, if it does.
fn walk(doing: Doing, layout: usize, first: &[u8], hidden: Option<usize>) -> (Chain, Stop, [Chain; 2]) {
    let fixture = synthetic::with_oop_map_count(Fixture::load(&fixture::all()[layout]));
    let shape = |index| Shape { compile_id: index as u32 + 1, pcs: 9, seed: index as u64 * 31 + 7 };
    let mut process = Process::new(&fixture, 3, shape);
    let mut code = vec![0xcc; 64];
    code[FIRST as usize..][..first.len()].copy_from_slice(first);
    // Four nop; ret.
    code[SECOND as usize..][..5].copy_from_slice(&[0x90, 0x90, 0x90, 0x90, 0xc3]);
    process.make_buffer(ROUTINES, "StubRoutines (2)", &code);
    let routine = |start| process.code(ROUTINES) + start;
    let (first, second) = (routine(FIRST), routine(SECOND));
    process.set_call(EARLIER, first);
    process.set_call(CALLER, second);

    let on_top = process.pc(EARLIER).to_ne_bytes();
    let own = hidden.map(|words| {
        let mut above = vec![0; words * 8];
        above[(words - 1) * 8..].copy_from_slice(&process.pc(CALLER).to_ne_bytes());
        above
    });
    let frames = [if hidden.is_some() { CALLER } else { EARLIER }];
    let (capture, stack) = process.interrupted(second + 2, &frames);
    let stack = [&on_top[..], &own.unwrap_or_default(), &stack].concat();
    let mut capture = stackwalk::Capture { stack_high: capture.stack_low + stack.len() as u64, ..capture };
    if let Doing::CallingC = doing {
        (capture.anchor_pc, capture.anchor_sp, capture.pc) = (capture.pc, capture.sp, 0);
    }

    let mut cache = ScopeCache::new();
    let memory = AnyMemory::new(&process);
    let mut walker = Walker::new(&process.hotspot, &memory, &mut cache, Limits::default());
    let mut frames = walker.frames(&capture, &stack);
    let newest = frames.next();
    assert!(matches!(newest, Some(Frame::Stub { .. })), "{newest:?} {:?}", frames.stop());
    let method = |frame: Frame| match frame {
        Frame::Compiled { method, bci: Some(bci), .. } => (method.0, bci.0),
        other => panic!("{other:?}"),
    };
    let found = frames.by_ref().map(method).collect();
    (found, frames.stop(), [EARLIER, CALLER].map(|place| process.chain(place).clone()))
}

fn everywhere() -> impl Iterator<Item = (usize, Doing)> {
    LAYOUTS.into_iter().flat_map(|layout| [(layout, Doing::Interrupted), (layout, Doing::CallingC)])
}

#[test]
fn an_old_return_address_of_another_routine_is_passed_over() {
    for (layout, doing) in everywhere() {
        let (found, stop, [_, caller]) = walk(doing, layout, RETURNS, Some(7));
        assert_eq!((found, stop), (caller, Stop::NativeCode(0)));
    }
}

#[test]
fn without_a_call_that_leads_to_the_routine_the_stack_is_cut() {
    for (layout, doing) in everywhere() {
        let (found, stop, _) = walk(doing, layout, RETURNS, None);
        assert!(found.is_empty() && matches!(stop, Stop::BadFrame(_)), "{doing:?} {found:?} {stop:?}");
    }
}

#[test]
fn a_routine_may_jump_to_another() {
    for (layout, doing) in everywhere() {
        for first in [JUMPS, JUMPS_ANYWHERE] {
            let (found, stop, [earlier, _]) = walk(doing, layout, first, None);
            assert_eq!((found, stop), (earlier, Stop::NativeCode(0)));
        }
    }
}

/// The methods below the stub in which the walk begins, and how it ends.
fn methods_below_stub(process: &Process, capture: &stackwalk::Capture, stack: &[u8]) -> (Vec<u64>, Stop) {
    let mut cache = ScopeCache::new();
    let memory = AnyMemory::new(process);
    let mut walker = Walker::new(&process.hotspot, &memory, &mut cache, Limits::default());
    let mut frames = walker.frames(capture, stack);
    let newest = frames.next();
    assert!(matches!(newest, Some(Frame::Stub { .. })), "{newest:?} {:?}", frames.stop());
    let found = frames.by_ref().filter_map(|frame| Some(frame.method()?.0)).collect();
    (found, frames.stop())
}

/// The methods at these places, from the newest on.
fn methods_at(process: &Process, places: &[(usize, u64)]) -> Vec<u64> {
    places.iter().flat_map(|&place| process.chain(place)).map(|&(method, _)| method).collect()
}

/// Stubs that push registers and call C code: a return address further up, to which the frame pointer leads, is passed
/// over.
#[test]
fn a_stub_that_has_pushed_registers_is_called_directly() {
    const PUSHED: usize = 9;
    // JDK 17, where a buffer with stubs and one with routines differ by their names.
    let fixture = synthetic::with_oop_map_count(Fixture::load(&fixture::all()[LAYOUTS[0]]));
    let shape = |index| Shape { compile_id: index as u32 + 1, pcs: 9, seed: index as u64 * 31 + 7 };
    let mut process = Process::new(&fixture, 3, shape);
    process.make_buffer(ROUTINES, "zgc_load_barrier_stubs", &[0x90; 64]);
    let entry = process.code(ROUTINES);
    process.set_call(CALLER, entry);

    let pushed = [0; PUSHED * 8];
    let (capture, stack) = process.stack(&[CALLER, EARLIER]);
    let stack = [&pushed, &process.pc(CALLER).to_ne_bytes()[..], &stack].concat();
    // The record of the caller's frame, whose return address is that of a call to elsewhere.
    let fp = capture.sp + stack.len() as u64 - 64 - process.frame_bytes(EARLIER.0) - 16;
    let stack_high = capture.stack_low + stack.len() as u64;
    let capture = stackwalk::Capture { anchor_pc: entry + 32, anchor_fp: fp, stack_high, ..capture };

    let expected = (methods_at(&process, &[CALLER, EARLIER]), Stop::NativeCode(0));
    assert_eq!(methods_below_stub(&process, &capture, &stack), expected);
}

/// The routine that forwards an exception (JDK 21), by instructions, and the call of the call stub, which follows it.
const FORWARD_EXCEPTION: [&[u8]; 16] = [
    &[0x48, 0x8b, 0x3c, 0x24],
    &[0x48, 0x8b, 0xf7],
    &[0x49, 0x8b, 0xff],
    &[0x40, 0xf6, 0xc4, 0x0f],
    &[0x0f, 0x84, 0x12, 0x00, 0x00, 0x00],
    &[0x48, 0x83, 0xec, 0x08],
    &[0xe8, 0x03, 0xee, 0x48, 0x13],
    &[0x48, 0x83, 0xc4, 0x08],
    &[0xe9, 0x05, 0x00, 0x00, 0x00],
    &[0xe8, 0xf5, 0xed, 0x48, 0x13],
    &[0x48, 0x8b, 0xd8],
    &[0x5a],
    &[0x49, 0x8b, 0x47, 0x08],
    &[0x49, 0xc7, 0x47, 0x08, 0x00, 0x00, 0x00, 0x00],
    &[0xff, 0xe3],
    &[0xff, 0xd6],
];

/// The jump to this routine comes from wherever the VM has left an exception, so the call before the return address
/// leads elsewhere. A word that aligns the stack is an old return address here, and so is what lies behind the own one.
#[test]
fn an_exception_is_forwarded_from_the_return_address_that_the_routine_keeps() {
    const ALIGNED: std::ops::RangeInclusive<usize> = 6..=7;
    const POPPED: usize = 12;
    /// Calls of the VM, by the instruction behind, and that of the call stub.
    const BEHIND_CALLS: [usize; 2] = [7, 10];
    const CALL_STUB: usize = 15;
    let starts = |index: usize| FORWARD_EXCEPTION[..index].iter().map(|code| code.len() as u64).sum::<u64>();
    let places = (0..CALL_STUB)
        .map(|index| (index, Doing::Interrupted))
        .chain(BEHIND_CALLS.map(|index| (index, Doing::CallingC)));
    for ((index, doing), layout) in places.flat_map(|place| LAYOUTS.map(|layout| (place, layout))) {
        let fixture = synthetic::with_oop_map_count(Fixture::load(&fixture::all()[layout]));
        let shape = |index| Shape { compile_id: index as u32 + 1, pcs: 9, seed: index as u64 * 31 + 7 };
        let mut process = Process::new(&fixture, 3, shape);
        process.make_buffer(ROUTINES, "StubRoutines (1)", &FORWARD_EXCEPTION.concat());
        let routine = process.code(ROUTINES);
        process.set_call_stub_return(&fixture, routine + starts(CALL_STUB) + 2);
        // Calls of other compiled code.
        process.set_call(CALLER, process.code(EARLIER.0));
        process.set_call(EARLIER, process.code(CALLER.0));

        let old = process.pc(EARLIER).to_ne_bytes();
        let own = process.pc(CALLER).to_ne_bytes();
        let (capture, mut stack) = process.interrupted(routine + starts(index), &[CALLER]);
        stack[..8].copy_from_slice(&old);
        let mut capture = capture;
        if index < POPPED {
            let above: &[u8] = if ALIGNED.contains(&index) { &old } else { &[] };
            stack = [above, &own, &stack].concat();
        } else {
            capture.registers.rdx = process.pc(CALLER);
        }
        capture.stack_high = capture.stack_low + stack.len() as u64;
        if let Doing::CallingC = doing {
            (capture.anchor_pc, capture.anchor_sp, capture.pc) = (capture.pc, capture.sp, 0);
        }

        let expected = (methods_at(&process, &[CALLER]), Stop::NativeCode(0));
        assert_eq!(methods_below_stub(&process, &capture, &stack), expected, "{index} {doing:?}");
    }
}

/// The interpreter's entry of `Math.sin` has no frame: it calls a routine, and returns by `pop rax; mov rsp, r13; jmp
/// rax`; that of a checksum may align sp for the call. The compiled code that called it is found, whatever fp is, or
/// the stack is cut.
#[test]
fn a_routine_that_an_entry_without_a_frame_has_called_leads_to_its_caller() {
    const ARGUMENTS: usize = 16;
    let cases = [(0, true), (0, false), (1, true), (1, false)];
    for (layout, (pad, is_sp_kept)) in LAYOUTS.into_iter().flat_map(|layout| cases.map(|case| (layout, case)))
    {
        let fixture = synthetic::with_oop_map_count(Fixture::load(&fixture::all()[layout]));
        let shape = |index| Shape { compile_id: index as u32 + 1, pcs: 9, seed: index as u64 * 31 + 7 };
        let mut process = Process::new(&fixture, 3, shape);
        process.make_buffer(ROUTINES, "StubRoutines (1)", &[0x90; 64]);
        let routine = process.code(ROUTINES);
        let entry = process.interpreter() + (1 << 16);
        let call = [&[0x90; 8][..], &[0xe8], &(routine.wrapping_sub(entry) as u32).to_ne_bytes()].concat();
        let released: &[u8] = &[0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, 0, 0, 0, 0];
        let released = if pad == 0 { &[] } else { released };
        let returns = [released, &[0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe0], &[0x90; 32]].concat();
        process.add_region(entry - call.len() as u64, &[call, returns].concat());

        let (capture, stack) = process.interrupted(routine + 8, &[CALLER, EARLIER]);
        // The word of alignment is an old return address.
        let above = [&[entry][..], &[process.pc(EARLIER)][..pad], &[process.pc(CALLER)]].concat();
        let above: Vec<u8> = above.into_iter().flat_map(u64::to_ne_bytes).collect();
        let stack = [&above[..], &[0; ARGUMENTS], &stack, &[8; 128]].concat();
        let stack_high = capture.stack_low + stack.len() as u64;
        // An older frame of the interpreter, with a word where its method would be.
        let mut capture = stackwalk::Capture { fp: stack_high - 32, stack_high, ..capture };
        capture.registers.r13 = capture.sp + (above.len() + ARGUMENTS) as u64;
        if !is_sp_kept {
            capture.registers.r13 += 96;
        }

        let (found, stop) = methods_below_stub(&process, &capture, &stack);
        if is_sp_kept {
            assert_eq!(found, methods_at(&process, &[CALLER, EARLIER]));
        } else {
            assert!(found.is_empty() && matches!(stop, Stop::BadFrame(_)), "{stop:?}");
        }
    }
}
