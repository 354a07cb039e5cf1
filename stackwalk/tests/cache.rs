//! A cache that has seen anything gives the same walks as an empty one, and both give what the code contains.
//!
//! Random walks through generated nmethods, some of which are replaced by others at the same address, in the layouts of
//! JDK 17 (debug information in the blob) and 25 (outside).

use crate::support::fixture;
use crate::support::fixture::{AnyMemory, Fixture};
use crate::support::synthetic::{MAX_PCS, Process, Random, Shape};
use proptest::prelude::*;
use stackwalk::{Capture, Frame, Limits, Memory, ScopeCache, Stop, Unreadable, Walker};

const NMETHODS: usize = 40;
/// Layouts: JDK 17 and 25.
const LAYOUTS: [usize; 2] = [1, 3];

fn process(layout: usize, count: usize, pcs: u64) -> Process {
    let fixture = Fixture::load(&fixture::all()[layout]);
    Process::new(&fixture, count, |index| Shape {
        compile_id: index as u32 + 1,
        pcs: pcs.min(MAX_PCS),
        seed: index as u64 * 31 + 7,
    })
}

type Walked = (Vec<Frame>, Stop);

/// Walks a stack in three ways, which must give the same.
fn walk(process: &Process, cache: &mut ScopeCache, (capture, stack): &(Capture, Vec<u8>)) -> Walked {
    let memory = AnyMemory::new(process);
    let mut walker = Walker::new(&process.hotspot, &memory, cache, Limits::default());
    let mut frames = walker.frames(capture, stack);
    let walked: Walked = (frames.by_ref().collect(), frames.stop());
    assert_eq!(at_once(&mut walker, capture, stack), walked);
    assert_eq!(at_once(&mut walker.without_known_steps(), capture, stack), walked, "each frame by itself");
    walked
}

fn at_once(walker: &mut Walker<'_, AnyMemory<'_>>, capture: &Capture, stack: &[u8]) -> Walked {
    let (mut found, mut groups) = (Vec::new(), Vec::new());
    let mut frames = walker.frames(capture, stack);
    frames.append_to(&mut found, &mut groups);
    assert_eq!(groups.iter().map(|group| group.frames as usize).sum::<usize>(), found.len());
    (found, frames.stop())
}

/// Walks a stack as an agent does.
fn walk_once(process: &Process, cache: &mut ScopeCache, (capture, stack): &(Capture, Vec<u8>)) -> Walked {
    let memory = AnyMemory::new(process);
    at_once(&mut Walker::new(&process.hotspot, &memory, cache, Limits::default()), capture, stack)
}

/// Methods and bcis of a walk.
fn methods(frames: &[Frame]) -> Vec<(u64, i32)> {
    let method = |frame: &Frame| match frame {
        Frame::Compiled { method, bci: Some(bci), .. } => (method.0, bci.0),
        other => panic!("{other:?}"),
    };
    frames.iter().map(method).collect()
}

fn expected(process: &Process, frames: &[(usize, u64)]) -> Vec<(u64, i32)> {
    frames.iter().flat_map(|&frame| process.chain(frame).clone()).collect()
}

#[derive(Clone, Debug)]
enum Action {
    Walk(u64),
    Replace(u64),
    Clear,
    /// Blocks outside the code cache fail to be read, or are readable again.
    Unreadable(bool),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => any::<u64>().prop_map(Action::Walk),
        3 => any::<u64>().prop_map(Action::Replace),
        1 => Just(Action::Clear),
        1 => any::<bool>().prop_map(Action::Unreadable),
    ]
}

fn random_frames(process: &Process, random: &mut Random, count: u64) -> Vec<(usize, u64)> {
    let frame = |_| {
        let index = random.below(NMETHODS as u64) as usize;
        (index, random.below(process.pcs(index)))
    };
    (0..count).map(frame).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn an_old_cache_and_an_empty_one_give_the_same_walks(
        layout in 0..2_usize,
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut process = process(LAYOUTS[layout], NMETHODS, 60);
        let mut cache = Box::new(ScopeCache::new());
        for (number, action) in actions.into_iter().enumerate() {
            match action {
                Action::Walk(seed) => {
                    let mut random = Random(seed | 1);
                    let count = 1 + random.below(30);
                    let frames = random_frames(&process, &mut random, count);
                    let stack = process.stack(&frames);
                    let old = walk(&process, &mut cache, &stack);
                    let fresh = walk(&process, &mut Box::new(ScopeCache::new()), &stack);
                    if process.unreadable.get() && layout == 1 {
                        // Known code needs no block; frames before the first unknown pc are right.
                        prop_assert!(matches!(fresh.1, Stop::Unreadable(_)));
                        let found = methods(&old.0);
                        prop_assert_eq!(&found[..], &expected(&process, &frames)[..found.len()]);
                    } else {
                        prop_assert_eq!(methods(&old.0), expected(&process, &frames));
                        prop_assert_eq!(old, fresh);
                    }
                }
                Action::Replace(seed) => {
                    let index = seed as usize % NMETHODS;
                    let shape = Shape { compile_id: 1000 + number as u32, pcs: 1 + seed % MAX_PCS, seed };
                    process.compile(index, &shape);
                }
                Action::Clear => cache.clear(),
                Action::Unreadable(unreadable) => process.unreadable.set(unreadable),
            }
        }
    }
}

#[test]
fn more_pcs_than_fit_are_walked_right_and_what_is_used_often_stays() {
    for layout in LAYOUTS {
        let process = process(layout, 600, 200);
        let mut cache = Box::new(ScopeCache::new());
        let mut random = Random(0x1234_5678_9abc_def1);
        let often: Vec<(usize, u64)> = (0..64).map(|index| (index * 9, 3)).collect();
        let mut once = (0..600).flat_map(|index| (0..200).map(move |pc| (index, pc)));
        let mut missed = 0;
        for round in 0..1400 {
            let before = cache.stats().pc_misses;
            let (found, _) = walk_once(&process, &mut cache, &process.stack(&often));
            assert_eq!(methods(&found), expected(&process, &often));
            missed += if round == 0 { 0 } else { cache.stats().pc_misses - before };
            let mut frames: Vec<_> = once.by_ref().take(80).collect();
            let place = random.below(frames.len() as u64) as usize;
            frames.rotate_left(place);
            let (found, _) = walk_once(&process, &mut cache, &process.stack(&frames));
            assert_eq!(methods(&found), expected(&process, &frames));
        }
        let stats = cache.stats();
        assert!(stats.pc_evictions > 50_000, "{stats:?}");
        // Each walk ends with a pc that is no code.
        assert!(missed <= 1400, "{missed} of {stats:?}");
    }
}

#[test]
fn a_first_meeting_takes_two_reads_and_further_pcs_none() {
    let process = process(LAYOUTS[1], 1, 200);
    let mut cache = Box::new(ScopeCache::new());
    let walked = |cache: &mut ScopeCache, pc: u64| {
        let before = process.checked.get();
        let (found, _) = walk(&process, cache, &process.stack(&[(0, pc)]));
        assert_eq!(methods(&found), expected(&process, &[(0, pc)]));
        process.checked.get() - before
    };
    assert_eq!(walked(&mut cache, 17), 2);
    assert!((0..200).all(|pc| walked(&mut cache, pc) == 0));
}

#[test]
fn code_that_was_met_later_ends_a_restricted_walk() {
    for layout in LAYOUTS {
        let mut process = process(layout, 2, 20);
        let mut cache = Box::new(ScopeCache::new());
        let (known, unknown) = (process.stack(&[(0, 1), (0, 2)]), process.stack(&[(0, 1), (1, 2)]));
        walk(&process, &mut cache, &process.stack(&[(0, 1)]));
        let generation = cache.next_generation();
        cache.restrict_to_code_before(Some(generation));
        // The second pc of the first is new, its code is not.
        assert_eq!(walk(&process, &mut cache, &known).0.len(), expected(&process, &[(0, 1), (0, 2)]).len());
        assert!(matches!(walk(&process, &mut cache, &unknown).1, Stop::CodeReplaced(_)));
        cache.clear();
        assert!(!matches!(walk(&process, &mut cache, &known).1, Stop::CodeReplaced(_)));
        process.compile(0, &Shape { compile_id: 99, pcs: 20, seed: 3 });
        assert!(matches!(walk(&process, &mut cache, &known).1, Stop::CodeReplaced(_)));
        cache.restrict_to_code_before(None);
        assert_eq!(methods(&walk(&process, &mut cache, &known).0), expected(&process, &[(0, 1), (0, 2)]));
    }
}

/// Code that was compiled where a stub was may be younger than the sample, so it counts for samples only that are taken
/// after it was met.
#[test]
fn code_in_the_place_of_a_stub_that_is_met_ends_a_walk_of_an_older_sample() {
    for layout in LAYOUTS {
        let process = process(layout, 2, 20);
        let mut cache = Box::new(ScopeCache::new());
        let stack = process.stack(&[(0, 1), (1, 2)]);
        let code = process.code(1);
        cache.set_stub_places([code + 16..code + 32, code + 40..code + 64].into());
        let sampled = cache.next_generation();
        cache.restrict_in_stub_places(sampled);
        for _ in 0..2 {
            let (found, stop) = walk(&process, &mut cache, &stack);
            assert_eq!(methods(&found), expected(&process, &[(0, 1)]));
            assert!(matches!(stop, Stop::CodeReplaced(_)), "{stop:?}");
        }
        let sampled = cache.next_generation();
        cache.restrict_in_stub_places(sampled);
        assert_eq!(methods(&walk(&process, &mut cache, &stack).0), expected(&process, &[(0, 1), (1, 2)]));
    }
}

/// Memory in which a method has become another.
struct Replaced<'a> {
    fixture: &'a Fixture,
    old: u64,
    new: u64,
}

/// Bytes of a `Method` that describe its bytecodes.
const METHOD_BYTES: u64 = 64;

impl Memory for Replaced<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let in_old = address >= self.old && address < self.old + METHOD_BYTES;
        self.fixture.read(if in_old { address - self.old + self.new } else { address }, into)
    }
}

/// A bytecode pointer proves a remembered method; a native method has none.
#[test]
fn a_native_method_is_not_trusted_from_the_cache() {
    let fixture = Fixture::load(&fixture::all()[LAYOUTS[1]]);
    let hotspot = fixture.hotspot();
    let mut found = 0;
    for thread in &fixture.threads {
        let mut cache = ScopeCache::new();
        let recorded = AnyMemory::new(&fixture);
        let mut walker = Walker::new(&hotspot, &recorded, &mut cache, Limits::default());
        let frames: Vec<Frame> = walker.frames(&thread.capture, &thread.stack).collect();
        let native = |frame: &Frame| matches!(frame, Frame::NativeMethod { compiled: false, .. });
        let java = |frame: &Frame| matches!(frame, Frame::Interpreted { .. });
        let Some(old) = frames.iter().find(|frame| native(frame)).and_then(Frame::method) else { continue };
        let Some(new) = frames.iter().find(|frame| java(frame)).and_then(Frame::method) else { continue };
        let memory = Replaced { fixture: &fixture, old: old.0, new: new.0 };
        let memory = AnyMemory::new(&memory);
        let mut walker = Walker::new(&hotspot, &memory, &mut cache, Limits::default());
        let mut frames = walker.frames(&thread.capture, &thread.stack);
        let trusted = frames.by_ref().any(|frame| native(&frame) && frame.method() == Some(old));
        assert!(!trusted, "{}: {old:?} is no native method", thread.name);
        assert_eq!(frames.stop(), Stop::InvalidMethod(old.0));
        found += 1;
    }
    assert!(found > 0, "no recorded thread is in an interpreted native method");
}
