//! Tests of the cache: what is found is what was inserted, and nothing grows.

use super::*;
use crate::frame::{Bci, Method};
use std::vec::Vec;

const IDENTITY: Identity = Identity { method: 8, compile_id: 3 };

fn add(cache: &mut ScopeCache, blob: u64, identity: Identity) -> u32 {
    cache.add_code(Code::new(blob..blob + 256, identity, 32, 4, CompiledKind::Java))
}

fn scopes(pc: u64) -> Vec<u64> {
    let scope = |depth: u64| Scope { method: Method(8 * (pc + depth)), bci: Some(Bci(depth as i32)) };
    (0..1 + pc % 7).map(|depth| scope(depth).pack().unwrap()).collect()
}

fn insert(cache: &mut ScopeCache, pc: u64, number: u32) -> CompiledPc {
    cache.insert_pc(pc, PcMatch::Exact, number, &scopes(pc)).expect("it fits")
}

/// Looks a pc up; checks what is found.
fn find(cache: &mut ScopeCache, pc: u64) -> Option<CompiledPc> {
    let found = cache.find_pc(pc, PcMatch::Exact, |_| Some(IDENTITY))?;
    let expected: Vec<_> = scopes(pc).into_iter().map(Scope::unpack).collect();
    let actual: Vec<_> =
        (0..u32::from(found.count)).filter_map(|index| cache.scope(found.first + index)).collect();
    assert_eq!(actual, expected);
    assert_eq!((found.identity, found.frame_bytes, found.level), (IDENTITY, 32, 4));
    Some(found)
}

#[test]
fn the_newest_are_found_and_nothing_grows() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    let pcs = 4 * PC_CELLS as u64 / 6;
    for round in 0..pcs {
        insert(&mut cache, 0x7000_0000 + round * 13, number);
        // Used often.
        insert_if_missing(&mut cache, 0x6000_0000, number);
    }
    let newest = (pcs - 10_000..pcs).filter(|round| find(&mut cache, 0x7000_0000 + round * 13).is_some());
    assert!(newest.count() > 9_900);
    assert_eq!(find(&mut cache, 0x7000_0000), None, "given up");
    let stats = cache.stats();
    assert!(stats.pc_evictions > pcs / 2);
    assert_eq!((stats.pc_hits, stats.pc_stale), (pcs - 1 + 10_000 - missing(&stats), 0));
}

/// Lookups in [`the_newest_are_found_and_nothing_grows`] that found nothing, but for the two expected ones.
fn missing(stats: &CacheStats) -> u64 {
    stats.pc_misses - 2
}

fn insert_if_missing(cache: &mut ScopeCache, pc: u64, number: u32) {
    if find(cache, pc).is_none() {
        insert(cache, pc, number);
    }
}

#[test]
fn each_decoded_pc_has_a_number_of_its_own() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    let kept = insert(&mut cache, 0x6000_0000, number);
    let mut numbers = std::collections::BTreeSet::from([kept.number]);
    // Kept for its use while others take its place.
    for round in 0..2 * PC_CELLS as u64 / 6 {
        assert!(numbers.insert(insert(&mut cache, 0x7000_0000 + round * 13, number).number));
        assert_eq!(find(&mut cache, 0x6000_0000).map(|found| found.number), Some(kept.number));
    }
    assert!(numbers.insert(insert(&mut cache, 0x6000_0000, number).number), "decoded again");
    cache.clear();
    let number = add(&mut cache, 64, IDENTITY);
    assert!(numbers.insert(insert(&mut cache, 0x6000_0000, number).number), "decoded again");
    assert!(!numbers.contains(&0));
}

#[test]
fn replaced_code_is_forgotten() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    insert(&mut cache, 0x40, number);
    assert_eq!(cache.find_pc(0x40, PcMatch::Exact, |_| None), None);
    assert_eq!(cache.stats().pc_stale, 1);
    assert_eq!(find(&mut cache, 0x40), None);
    for _ in 0..3 {
        let inserted = insert(&mut cache, 0x40, number);
        assert_eq!(find(&mut cache, 0x40), Some(inserted));
        assert_eq!(cache.find_pc(0x40, PcMatch::Interrupted, |_| Some(IDENTITY)), None, "another match");
    }
    assert_eq!(cache.pcs.live().count(), 1);
}

#[test]
fn pcs_of_a_replaced_compilation_are_never_found() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    insert(&mut cache, 0x40, number);
    // Replaced and back again: another serial, although all else is equal.
    add(&mut cache, 64, Identity { compile_id: 4, ..IDENTITY });
    assert_eq!(add(&mut cache, 64, IDENTITY), number);
    assert_eq!(find(&mut cache, 0x40), None);
    assert_eq!(cache.stats().pc_stale, 1);
}

#[test]
fn copies_are_bounded_and_used_ones_stay() {
    let mut cache = ScopeCache::new();
    let debug = |size: u64| DebugInfo {
        pcs: Span { start: 0, end: 16 },
        scopes: Span { start: 16, end: 16 + size },
        metadata: Span { start: 1 << 20, end: (1 << 20) + 8 },
        is_in_blob: false,
    };
    let kept = add(&mut cache, 64, IDENTITY);
    let fill = |cache: &mut ScopeCache, number: u32, size: u64, value: u8| {
        let (first, metadata) = cache.reserve_copy(number, &debug(size)).expect("it fits");
        assert_eq!(first.len() as u64, 16 + size);
        first.fill(value);
        metadata.fill(value + 1);
    };
    fill(&mut cache, kept, 77, 1);
    for round in 0..3000_u64 {
        let number = add(&mut cache, 128 * (round + 1), IDENTITY);
        fill(&mut cache, number, 1000 + round % 3000, 5);
        cache.touch_copy(kept);
    }
    let copy = cache.copy(kept).expect("it is used");
    assert_eq!((copy.pcs, copy.scopes, copy.metadata), (&[1; 16][..], &[1; 77][..], &[2; 8][..]));
    assert!(cache.stats().copy_evictions > 2000);
    assert!(cache.reserve_copy(kept, &debug(MAX_COPY)).is_none(), "too large");
    cache.drop_copy(kept);
    assert!(cache.copy(kept).is_none());
}

#[test]
fn a_step_is_found_for_its_callee_while_the_code_is_the_same() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    // One scope fits the line, four do not.
    for pc in [0x7000_0000, 0x7000_0003] {
        let entry = insert(&mut cache, pc, number);
        cache.insert_step(pc, 8, &entry);
        let step = cache.find_step(pc, 8, |_| Some(IDENTITY)).expect("noted");
        let found = cache.step_code(step.position).expect("a line");
        assert_eq!(CompiledPc { first: 0, ..found }, CompiledPc { first: 0, ..entry });
        let words = |entry: &CompiledPc| -> Vec<_> {
            (0..u32::from(entry.count)).map(|index| cache.scope(entry.first + index)).collect()
        };
        assert_eq!(words(&found), words(&entry));
        let in_line = step.scopes().unwrap_or_default().iter().copied();
        let kept = cache.kept_scopes(step).filter(|_| step.scopes().is_none());
        assert!(in_line.chain(kept).map(|word| Some(Scope::unpack(word))).eq(words(&entry)));
        let is_found = |callee, current| cache.find_step(pc, callee, |_| current).is_some();
        assert!(!is_found(16, Some(IDENTITY)), "another callee");
        assert!(!is_found(8, Some(Identity { compile_id: 4, ..IDENTITY })) && !is_found(8, None));
    }
    cache.restrict_to_code_before(Some(0));
    assert!(!cache.has_steps());
    cache.restrict_to_code_before(None);
    assert!(cache.has_steps());
    // Scopes that are not in the line may be given up.
    for round in 0..PC_CELLS as u64 {
        insert(&mut cache, 0x6000_0000 + round * 7, number);
    }
    let is_found = |cache: &ScopeCache, pc| cache.find_step(pc, 8, |_| Some(IDENTITY)).is_some();
    assert!(!is_found(&cache, 0x7000_0003) && is_found(&cache, 0x7000_0000));
    cache.clear();
    assert!(!is_found(&cache, 0x7000_0000));
}

#[test]
fn steps_into_code_in_the_place_of_a_stub_are_not_noted() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    let entry = insert(&mut cache, 0x7000_0000, number);
    let is_found = |cache: &mut ScopeCache| {
        cache.insert_step(0x7000_0000, 8, &entry);
        cache.find_step(0x7000_0000, 8, |_| Some(IDENTITY)).is_some()
    };
    assert!(is_found(&mut cache));
    cache.set_stub_places(Arc::from([0..8, 80..90]));
    assert!(cache.find_step(0x7000_0000, 8, |_| Some(IDENTITY)).is_none(), "it may be in such a place");
    assert!(!is_found(&mut cache));
    cache.set_stub_places(Arc::from([0..8, 320..330]));
    assert!(is_found(&mut cache), "behind the code");
}

#[test]
fn most_of_many_steps_are_found_and_used_ones_stay() {
    let mut cache = ScopeCache::new();
    let number = add(&mut cache, 64, IDENTITY);
    let entry = insert(&mut cache, 0x7000_0000, number);
    // Return addresses and methods lie at such distances.
    let pair = |step: u64| (0x7000_0000 + step * 1832, 0x7f80_0000_0000 + step * 104);
    let insert = |cache: &mut ScopeCache, step| {
        let (pc, callee) = pair(step);
        cache.insert_step(pc, callee, &entry);
    };
    let found = |cache: &mut ScopeCache, steps: core::ops::Range<u64>| {
        let pairs = steps.map(pair);
        pairs.filter(|&(pc, callee)| cache.find_step(pc, callee, |_| Some(IDENTITY)).is_some()).count() as u64
    };
    let count = STEPS as u64 / 2;
    for step in (0..count).chain(0..count) {
        insert(&mut cache, step);
    }
    assert!(found(&mut cache, 0..count) > count * 85 / 100, "{}", found(&mut cache, 0..count));
    let (pc, callee) = pair(0);
    for step in count..8 * count {
        insert(&mut cache, step);
        assert_eq!(found(&mut cache, step..step + 1), 1);
        let used = cache.find_step(pc, callee, |_| Some(IDENTITY)).expect("it is used often").position;
        cache.touch_step(used);
    }
    let newest = found(&mut cache, 7 * count..8 * count);
    assert!(newest > count * 55 / 100, "{newest} of {count}");
}
