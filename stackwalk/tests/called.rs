//! A return address whose call leads to another method than the callee's is not followed.
//!
//! Synthetic nmethods in the layouts of JDK 17 and 25: one calls another, and the stack says that a third is running
//! there.

use crate::support::fixture;
use crate::support::fixture::{AnyMemory, Fixture};
use crate::support::synthetic::{Process, Shape};
use stackwalk::{Frame, Limits, ScopeCache, Stop, Walker};

/// Layouts: JDK 17 and 25.
const LAYOUTS: [usize; 2] = [1, 3];
/// The nmethods: two methods, one with the first's name, and their caller.
const FIRST: usize = 0;
const SECOND: usize = 1;
const NAMESAKE: usize = 2;
const CALLER: usize = 3;
/// The caller's pc after the call, and the pc of the newest frame.
const CALL: u64 = 4;

fn process(layout: usize) -> Process {
    let fixture = Fixture::load(&fixture::all()[layout]);
    let mut process = Process::new(&fixture, 4, |index| Shape {
        compile_id: index as u32 + 1,
        pcs: 16,
        seed: index as u64 * 31 + 7,
    });
    for (index, name) in [(FIRST, "first"), (SECOND, "second"), (NAMESAKE, "first"), (CALLER, "caller")] {
        process.name_method(index, name);
    }
    process
}

/// Walks a stack with `callee` above the call in the caller, which leads to `target`.
fn walk(process: &mut Process, callee: usize, target: u64) -> (usize, Stop) {
    let returns = process.pc((CALLER, CALL));
    let distance = i32::try_from(target.wrapping_sub(returns).cast_signed()).expect("near");
    process.write_code(returns - 4, &distance.to_ne_bytes());
    let frames = [(callee, CALL), (CALLER, CALL)];
    let (capture, stack) = process.stack(&frames);
    let mut cache = ScopeCache::new();
    let memory = AnyMemory::new(&*process);
    let mut walker = Walker::new(&process.hotspot, &memory, &mut cache, Limits::default());
    let mut walked = walker.frames(&capture, &stack);
    let yielded: Vec<Frame> = walked.by_ref().collect();
    let newest = process.chain(frames[0]).len();
    assert!(yielded.len() >= newest, "the newest frame is certain");
    (yielded.len() - newest, walked.stop())
}

#[test]
fn a_call_of_another_method_refuses_the_step() {
    for layout in LAYOUTS {
        let mut process = process(layout);
        let caller = process.chain((CALLER, CALL)).len();
        let entry = |process: &Process, index| process.code(index) + 8;
        let returns = process.pc((CALLER, CALL));
        for callee in [FIRST, SECOND, NAMESAKE] {
            for target in [FIRST, SECOND, NAMESAKE] {
                let entry = entry(&process, target);
                let (frames, stop) = walk(&mut process, callee, entry);
                if (callee == SECOND) == (target == SECOND) {
                    assert_eq!(frames, caller, "{callee} called as {target}: {stop:?}");
                } else {
                    assert_eq!((frames, stop), (0, Stop::BadFrame(returns)), "{callee} called as {target}");
                }
            }
        }
    }
}

/// Static call stubs lie in the caller's own code, and other targets than compiled methods tell nothing.
#[test]
fn other_targets_contradict_nothing() {
    for layout in LAYOUTS {
        let mut process = process(layout);
        let caller = process.chain((CALLER, CALL)).len();
        let own = process.code(CALLER) + 3000;
        let outside = process.code(FIRST) - 0x10_0000;
        for target in [own, outside] {
            assert_eq!(walk(&mut process, SECOND, target).0, caller);
        }
    }
}
