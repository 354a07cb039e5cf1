//! Recorded stacks of real JVMs, interrupted again: with the frames of other signals on top, the walk finds the same
//! Java frames.

use crate::support::fixture;
use crate::support::walks;
use stackwalk::{Capture, NativeCode, NativeRegisters, NativeStop, Registers, ScopeCache, StackCopy};

/// Addresses of a handler, of an instruction in its middle, and of the code that it returns to.
const HANDLER: u64 = 0x100;
const IN_HANDLER: u64 = 0x120;
const RESTORER: u64 = 0x200;

/// Bytes below sp that the interrupted code may use.
const RED_ZONE: u64 = 128;
/// Bytes of the frame that the kernel builds, with extended state.
const FRAME_BYTES: u64 = 1024;
/// Bytes of the handler's own frame, without its return address.
const HANDLER_FRAME_BYTES: u64 = 64;

/// Unwind tables of the handler; those of all other code are missing.
#[derive(Debug)]
struct HandlerTables;

impl NativeCode for HandlerTables {
    fn caller(
        &mut self,
        registers: &NativeRegisters,
        stack: &StackCopy<'_>,
    ) -> Result<NativeRegisters, NativeStop> {
        let sp = registers.sp + HANDLER_FRAME_BYTES + 8;
        match (registers.pc, registers.interrupted) {
            (IN_HANDLER, true) => Ok(NativeRegisters { pc: RESTORER, sp, ..NativeRegisters::default() }),
            (RESTORER, false) => {
                NativeRegisters::of_signal(registers.sp, stack).ok_or(NativeStop::NoRule(RESTORER))
            }
            (pc, _) => Err(NativeStop::NoRule(pc)),
        }
    }
}

/// A capture and the copied stack.
type Moment = (Capture, Vec<u8>);

/// The moment at which a handler begins that interrupted `capture`.
fn at_handler((capture, stack): &Moment) -> Moment {
    let sp = (capture.sp - RED_ZONE - FRAME_BYTES) / 16 * 16 - 8;
    let Registers { rax, rbx, rcx, rdx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15 } = capture.registers;
    let mut words = vec![0; ((capture.sp - sp) / 8) as usize];
    words[0] = RESTORER;
    let saved = [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, capture.fp, rbx, rdx, rax, rcx];
    words[6..21].copy_from_slice(&saved);
    words[21..25].copy_from_slice(&[capture.sp, capture.pc, 0x246, 0x002b_0000_0000_0033]);
    words[39] = 27;
    let registers = Registers { rax: 0, rdi: 27, rsi: sp + 312, rdx: sp + 8, ..capture.registers };
    let below: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let capture = Capture { pc: HANDLER, sp, stack_low: sp, registers, ..*capture };
    (capture, [&below, &**stack].concat())
}

/// A moment in the middle of the handler that begins at `entry`.
fn in_handler((entry, stack): &Moment) -> Moment {
    let sp = entry.sp - HANDLER_FRAME_BYTES;
    let frame = [0xee; HANDLER_FRAME_BYTES as usize];
    let capture =
        Capture { pc: IN_HANDLER, sp, fp: 0, stack_low: sp, registers: Registers::default(), ..*entry };
    (capture, [&frame, &**stack].concat())
}

/// Walks every recorded thread as `interrupt` changes it; the Java frames must be the recorded ones, behind `handlers`
/// frames of native code.
#[track_caller]
fn check(interrupt: impl Fn(&Moment) -> Moment, handlers: usize) {
    let mut walked = 0;
    for file in fixture::all() {
        let fixture = fixture::Fixture::load(&file);
        let hotspot = fixture.hotspot();
        let mut cache = Box::new(ScopeCache::new());
        for thread in fixture.threads.iter().filter(|thread| thread.capture.stack_low == thread.capture.sp) {
            let mut walk = |(capture, stack): &Moment| {
                let mut tables = HandlerTables;
                let (frames, stop) =
                    walks::walk_through(&hotspot, &fixture, &mut cache, &mut tables, capture, stack);
                walks::as_text(&hotspot, &fixture, &frames, stop)
            };
            let moment = (thread.capture, thread.stack.clone());
            let plain = walk(&moment);
            let expect = format!("{}{plain}", "native code\n".repeat(handlers));
            assert_eq!(walk(&interrupt(&moment)), expect, "{} {}", file.display(), thread.name);
            walked += 1;
        }
    }
    assert!(walked > 20, "{walked} recorded threads");
}

#[test]
fn handlers_that_have_not_begun_are_left_out() {
    check(at_handler, 0);
    check(|moment| at_handler(&at_handler(moment)), 0);
}

#[test]
fn a_handler_that_runs_is_above_the_frames_that_it_interrupted() {
    check(|moment| in_handler(&at_handler(moment)), 2);
}

#[test]
fn a_handler_that_has_not_begun_may_interrupt_one_that_runs() {
    check(|moment| at_handler(&in_handler(&at_handler(moment))), 2);
}
