//! The debug information that an interrupted instruction gets: that of the range which ends at it, since the
//! instruction before it was running; that of the next range where a jump may have led to it, or where it was given up.
//!
//! Generated nmethods in the layouts of JDK 17 (debug information in the blob) and 25 (outside).

use crate::support::fixture;
use crate::support::fixture::{AnyMemory, Fixture};
use crate::support::synthetic;
use crate::support::synthetic::{Chain, Process, Shape};
use stackwalk::{Capture, Frame, Limits, ScopeCache, Stop, Walker};

/// Layouts: JDK 17 and 25.
const LAYOUTS: [usize; 2] = [1, 3];
const NMETHODS: usize = 8;
const PCS: u64 = 25;

fn process(layout: usize) -> Process {
    let fixture = synthetic::with_oop_map_count(Fixture::load(&fixture::all()[layout]));
    let shape = |index| Shape { compile_id: index as u32 + 1, pcs: PCS, seed: index as u64 * 31 + 7 };
    Process::new(&fixture, NMETHODS + 1, shape)
}

fn walk(process: &Process, cache: &mut ScopeCache, (capture, stack): &(Capture, Vec<u8>)) -> Chain {
    let memory = AnyMemory::new(process);
    let mut walker = Walker::new(&process.hotspot, &memory, cache, Limits::default());
    let mut frames = walker.frames(capture, stack);
    let method = |frame: Frame| match frame {
        Frame::Compiled { method, bci: Some(bci), .. } => (method.0, bci.0),
        other => panic!("{other:?}"),
    };
    let found = frames.by_ref().map(method).collect();
    assert_eq!(frames.stop(), Stop::NativeCode(0));
    found
}

/// The walk of a thread that is interrupted at `pc` in the first of these frames must begin with `expected`.
#[track_caller]
fn check(process: &Process, pc: u64, frames: [(usize, u64); 2], expected: &Chain) {
    let expected = [expected.clone(), process.chain(frames[1]).clone()].concat();
    let mut cache = ScopeCache::new();
    for state in ["new", "remembered"] {
        let found = walk(process, &mut cache, &process.interrupted(pc, &frames));
        assert_eq!(found, expected, "{frames:?} {state}");
    }
}

/// Calls `check` with a process and every place of its nmethods that has a range before and one behind.
fn for_each_place(mut check: impl FnMut(&mut Process, (usize, u64))) {
    for layout in LAYOUTS {
        let mut process = process(layout);
        for place in (0..NMETHODS).flat_map(|index| (0..PCS - 1).map(move |pc| (index, pc))) {
            check(&mut process, place);
        }
    }
}

fn behind((index, pc): (usize, u64)) -> (usize, u64) {
    (index, pc + 1)
}

const CALLER: (usize, u64) = (NMETHODS, 4);

#[test]
fn the_instruction_before_the_pc_was_running() {
    let mut differ = 0;
    for_each_place(|process, place| {
        let (pc, next) = (process.pc(place), behind(place));
        check(process, pc, [place, CALLER], process.chain(place));
        // Inside a range both instructions belong to it.
        check(process, pc + 2, [place, CALLER], process.chain(next));
        differ += u32::from(process.chain(place) != process.chain(next));
    });
    assert!(differ > 200, "{differ} places with different ranges on both sides");
}

#[test]
fn a_jump_target_belongs_to_the_code_behind_it() {
    for_each_place(|process, place| {
        let (pc, next) = (process.pc(place), behind(place));
        let expect_next = |process: &mut Process, at: u64, code: &[u8]| {
            process.write_code(at, code);
            check(process, pc, [place, CALLER], process.chain(next));
            process.write_code(at, &vec![0; code.len()]);
            check(process, pc, [place, CALLER], process.chain(place));
        };
        // The end of a loop that begins at the pc: `jl`, short and far.
        expect_next(process, pc + 4, &[0x7c, 0xfa]);
        let far = process.code(place.0) + 3000;
        let distance = (pc as i64 - far as i64 - 6) as i32;
        expect_next(process, far, &[&[0x0f, 0x8c][..], &distance.to_le_bytes()].concat());
        // A table in front of the code.
        expect_next(process, process.code(place.0) - 64, &pc.to_le_bytes());
    });
}

/// x86-64 only: elsewhere no access is known to be given up.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_access_to_memory_that_was_given_up_was_running() {
    // Two nop and shr r11d, 8; mov r11d, [r10 + rdx * 4 + 0x10]. They take the place of the call before the pc.
    let (quick, load) = ([0x90, 0x90, 0x41, 0xc1, 0xeb, 8], [0x45, 0x8b, 0x5c, 0x92, 0x10]);
    for_each_place(|process, place| {
        let (pc, next) = (process.pc(place), behind(place));
        process.set_oop_maps(place.0, 0);
        process.write_code(pc - 6, &quick);
        process.write_code(pc, &load);
        check(process, pc, [place, CALLER], process.chain(next));
        assert!(!is_moved(process, pc, [place, CALLER]), "the range has the instruction in it");
        // Where the instruction before may have waited, that one was running.
        process.write_code(pc - 6, &[&[0x90][..], &load].concat());
        check(process, pc, [place, CALLER], process.chain(place));
        process.write_code(pc - 6, &[0, 0xe8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
}

#[test]
fn code_that_leads_nowhere_before_the_pc_has_not_run() {
    for_each_place(|process, place| {
        let (pc, next) = (process.pc(place), behind(place));
        let mut call = [0; 5];
        call[0] = 0xe8;
        // `nop`, then a jump to elsewhere.
        process.write_code(pc - 6, &[0x90, 0xe9, 0, 8, 0, 0]);
        check(process, pc, [place, CALLER], process.chain(next));
        process.write_code(pc - 6, &[0; 6]);
        process.write_code(pc - 5, &call);
    });
}

/// Returns whether the newest frame at `pc` is marked as that of a later instruction, new and remembered.
fn is_moved(process: &Process, pc: u64, frames: [(usize, u64); 2]) -> bool {
    let mut cache = ScopeCache::new();
    let (capture, stack) = process.interrupted(pc, &frames);
    let memory = AnyMemory::new(process);
    let [first, second] = [(); 2].map(|()| {
        let mut walker = Walker::new(&process.hotspot, &memory, &mut cache, Limits::default());
        let frames: Vec<Frame> = walker.frames(&capture, &stack).collect();
        let place = frames[0].place();
        let (newest, callers) = frames.split_at(frames.partition_point(|frame| frame.place() == place));
        assert!(!callers.is_empty() && !callers.iter().any(Frame::is_moved), "callers are at their calls");
        assert!(newest.iter().all(|frame| frame.is_moved() == newest[0].is_moved()));
        newest[0].is_moved()
    });
    assert_eq!(first, second, "new and remembered");
    first
}

#[test]
fn frames_of_a_later_point_are_marked() {
    for_each_place(|process, place| {
        // Each of the twelve walks at a place needs an empty cache; a quarter of the places has every kind.
        if place.1 % 4 != 0 {
            return;
        }
        let (pc, entry) = (process.pc(place), process.code(place.0));
        // Fewer oop maps than entries: some entries end ranges. As many: all are safepoints.
        for (maps, is_next_safepoint) in [(0, false), (PCS as u32 - 1, false), (PCS as u32, true)] {
            process.set_oop_maps(place.0, maps);
            assert!(
                !is_moved(process, entry, [place, CALLER]),
                "nothing but the method's own code can have run"
            );
            assert!(!is_moved(process, pc, [place, CALLER]), "the range or call that ends at the pc");
            assert_eq!(is_moved(process, pc + 2, [place, CALLER]), is_next_safepoint, "{maps} maps");
            process.write_code(pc + 4, &[0x7c, 0xfa]);
            assert!(is_moved(process, pc, [place, CALLER]), "the range behind a jump target");
            process.write_code(pc + 4, &[0; 2]);
        }
    });
}

#[test]
fn a_method_that_is_being_entered_runs_no_inlined_one() {
    for layout in LAYOUTS {
        let process = process(layout);
        for index in 0..NMETHODS {
            let own = process.chain((index, 0)).last().expect("the nmethod's own method").0;
            check(&process, process.code(index), [(index, 0), CALLER], &vec![(own, 0)]);
        }
    }
}

/// Like the code of Debian's builds of JDK 26 and 28: the entry lies behind the call of the stub and jumps back to it.
#[test]
fn a_deoptimisation_handler_stands_for_the_call_that_it_replaces() {
    let mut process = process(LAYOUTS[1]);
    for place in (0..NMETHODS).flat_map(|index| (0..PCS).map(move |pc| (index, pc))) {
        let entry = process.code(place.0) + 3000;
        process.set_deopt_handler(place.0, entry);
        process.write_code(entry - 5, &[0xe8, 1, 2, 3, 4, 0xeb, 0xf9]);
        for pc in [entry, entry - 5] {
            let (capture, mut stack) = process.interrupted(pc, &[place, CALLER]);
            // The frame keeps the return address that the entry has replaced.
            stack[..8].copy_from_slice(&process.pc(place).to_ne_bytes());
            let expected = [process.chain(place).clone(), process.chain(CALLER).clone()].concat();
            assert_eq!(walk(&process, &mut ScopeCache::new(), &(capture, stack)), expected, "{place:?}");
        }
    }
}

#[test]
fn the_same_pc_is_another_place_as_a_return_address() {
    for_each_place(|process, place| {
        let (pc, next) = (process.pc(place), behind(place));
        process.write_code(pc + 4, &[0x7c, 0xfa]);
        // Interrupted at the header of a loop, in a method that called itself in front of that loop.
        check(process, pc, [place, place], process.chain(next));
        process.write_code(pc + 4, &[0; 2]);
    });
}

#[test]
fn a_word_in_the_interpreter_where_no_call_returns_is_no_return_address() {
    // `mov rsp, [rbp - 16]; mov qword [rbp - 16], 0; mov r13, [rbp - 64]`, as a bytecode's call returns.
    let entry = [0x48, 0x8b, 0x65, 0xf0, 0x48, 0xc7, 0x45, 0xf0, 0, 0, 0, 0, 0x4c, 0x8b, 0x6d, 0xc0];
    let call = [&[0x90; 11][..], &[0xff, 0xd0]].concat();
    let [nothing, something] = [[0x90; 13].to_vec(), [0x90; 32].to_vec()];
    for layout in LAYOUTS {
        for (before, after, returns) in
            [(&nothing, &entry[..], true), (&call, &something, true), (&nothing, &something, false)]
        {
            let mut process = process(layout);
            let pc = process.interpreter() + (1 << 16);
            let code: Vec<u8> = before.iter().chain(after).copied().chain([0x90; 32]).collect();
            process.add_region(pc - before.len() as u64, &code);
            let place = (0, 3);
            let (capture, mut stack) = process.interrupted(process.pc(place), &[place]);
            // Behind the frame: the words that would be its caller's frame, with the method, then the return address.
            let record = stack.len() - 64 - 16;
            stack.resize(stack.len() + 256, 8);
            let fp = capture.sp + stack.len() as u64 - 64;
            stack[record..record + 8].copy_from_slice(&fp.to_ne_bytes());
            stack[record + 8..record + 16].copy_from_slice(&pc.to_ne_bytes());
            let method = stack.len() - 64 - 24;
            stack[method..method + 8].copy_from_slice(&0x1000_u64.to_ne_bytes());
            let capture = Capture { stack_high: capture.stack_low + stack.len() as u64, ..capture };
            let mut cache = ScopeCache::new();
            let memory = AnyMemory::new(&process);
            let mut walker = Walker::new(&process.hotspot, &memory, &mut cache, Limits::default());
            let mut frames = walker.frames(&capture, &stack);
            assert!(frames.by_ref().count() > 0);
            // The method that the frame names does not exist.
            let expected =
                if returns { Stop::InvalidMethod(0x1000) } else { Stop::BadFrame(process.pc(place)) };
            assert_eq!(frames.stop(), expected);
        }
    }
}
