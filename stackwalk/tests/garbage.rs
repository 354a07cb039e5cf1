//! Walks over damaged memory end, do not panic and return at most the maximum number of frames.
//!
//! Recorded walks are repeated with words of memory, stack and capture replaced, and with failing reads.

#[path = "support/fixture.rs"]
mod fixture;

use fixture::{Fixture, FrozenCopy, Thread};
use proptest::prelude::*;
use stackwalk::{
    Bci, CAPTURE_BYTES, Capture, Frozen, HotSpot, Limits, Memory, ScopeCache, Unreadable, Walker,
};

/// Memory in which about one read in `rarity` returns other bytes or fails.
struct Damaged<'m> {
    memory: &'m Fixture,
    seed: u64,
    rarity: u64,
}

impl Memory for Damaged<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let result = self.memory.read(address, into);
        let mut state = (address ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^= state >> 29;
        if !state.is_multiple_of(self.rarity) && result.is_ok() {
            return Ok(());
        }
        match (state >> 8) % 4 {
            0 => return Err(Unreadable(address)),
            1 => into.fill((state >> 16) as u8),
            2 => into.iter_mut().for_each(|byte| *byte = byte.rotate_left(1)),
            _ => into.iter_mut().zip(state.to_le_bytes().iter().cycle()).for_each(|(to, from)| *to = *from),
        }
        Ok(())
    }
}

/// Copies the frozen chunks with words replaced and the end cut off, in reverse order if `reversed`.
fn damaged_frozen(
    frozen: &FrozenCopy,
    words: &[(prop::sample::Index, u64)],
    cut: u16,
    reversed: bool,
) -> FrozenCopy {
    let mut frozen = frozen.clone();
    for (_, bytes) in &mut frozen.chunks {
        let (slots, _) = bytes.as_chunks_mut::<8>();
        for (slot, value) in words {
            let at = slot.index(slots.len());
            slots[at] = value.to_ne_bytes();
        }
        bytes.truncate(bytes.len() - usize::from(cut) % (bytes.len() + 1));
    }
    if reversed {
        frozen.chunks.reverse();
    }
    frozen
}

const MAX_FRAMES: u32 = 300;

/// Walks a stack and reads the methods found; returns the number of frames.
fn walk(
    hotspot: &HotSpot,
    memory: &impl Memory,
    cache: &mut ScopeCache,
    capture: &Capture,
    stack: &[u8],
) -> u32 {
    let walker = Walker::new(hotspot, memory, cache, Limits { max_frames: MAX_FRAMES });
    count(hotspot, memory, walker, (capture, stack), Frozen::NONE)
}

fn count<M: Memory>(
    hotspot: &HotSpot,
    memory: &M,
    mut walker: Walker<'_, M>,
    (capture, stack): (&Capture, &[u8]),
    frozen: Frozen<'_>,
) -> u32 {
    let mut frames = walker.frames_with(capture, stack, frozen);
    let found: Vec<_> = frames.by_ref().collect();
    let _ = frames.stop();
    for frame in &found {
        if let Some(method) = frame.method() {
            let _ = hotspot.line(memory, method, frame.bci().unwrap_or(Bci(0)));
            if let Ok(names) = hotspot.method(memory, method) {
                let _ = hotspot.read_symbol(memory, names.name, &mut [0; 64]);
            }
        }
    }
    found.len() as u32
}

fn damaged_capture(thread: &Thread, changes: &[(usize, u64)]) -> Capture {
    let mut bytes = thread.capture.to_bytes();
    for &(word, value) in changes {
        let at = word % (CAPTURE_BYTES / 8) * 8;
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    Capture::from_bytes(&bytes).expect("same size")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn walks_of_damaged_stacks_end(
        file in 0..4_usize,
        thread in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        rarity in prop_oneof![Just(1_u64), 2..64_u64, Just(u64::MAX)],
        changes in prop::collection::vec((any::<usize>(), any::<prop::sample::Index>()), 0..6),
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..24),
        values in prop::collection::vec(any::<u64>(), 8),
    ) {
        let fixture = Fixture::load(&fixture::all()[file]);
        let hotspot = fixture.hotspot();
        let thread = thread.get(&fixture.threads);
        let Capture { pc, sp, stack_high, .. } = thread.capture;
        let mut pool = values;
        pool.extend([0, u64::MAX, u64::MAX - 7, sp, sp + 8, sp + 64, pc, pc + 1, stack_high, stack_high - 8]);
        let changes: Vec<(usize, u64)> = changes.iter().map(|(word, value)| (*word, *value.get(&pool))).collect();
        let capture = damaged_capture(thread, &changes);
        let mut stack = thread.stack.clone();
        let (slots, _) = stack.as_chunks_mut::<8>();
        for (slot, value) in &words {
            if !slots.is_empty() {
                let at = slot.index(slots.len());
                slots[at] = value.get(&pool).to_ne_bytes();
            }
        }
        let memory = Damaged { memory: &fixture, seed, rarity };
        let mut cache = Box::new(ScopeCache::new());
        for _ in 0..2 {
            prop_assert!(walk(&hotspot, &memory, &mut cache, &capture, &stack) <= MAX_FRAMES);
        }
    }

    #[test]
    fn walks_of_damaged_frozen_frames_end(
        file in any::<prop::sample::Index>(),
        thread in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        rarity in prop_oneof![Just(1_u64), 2..64_u64, Just(u64::MAX)],
        words in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..24),
        values in prop::collection::vec(any::<u64>(), 8),
        cut in prop_oneof![Just(0_u16), any::<u16>()],
        reversed in any::<bool>(),
    ) {
        let files = fixture::frozen();
        if files.is_empty() {
            // No frozen frames are recorded on aarch64.
            return Ok(());
        }
        let fixture = Fixture::load(&files[file.index(files.len())]);
        let hotspot = fixture.hotspot();
        let thread = thread.get(&fixture.threads);
        let mut pool = values;
        // Addresses and words of the chunks reach more code than random numbers.
        for (base, bytes) in &thread.frozen.chunks {
            pool.extend([*base, base + 8, base + 256, base + bytes.len() as u64]);
            let (slots, _) = bytes.as_chunks::<8>();
            pool.extend(slots.iter().take(24).map(|word| u64::from_ne_bytes(*word)));
        }
        pool.extend([0, 1, u64::MAX, u64::MAX - 7, thread.capture.sp, thread.capture.pc]);
        let words: Vec<_> = words.iter().map(|(slot, value)| (*slot, *value.get(&pool))).collect();
        let frozen = damaged_frozen(&thread.frozen, &words, cut, reversed);
        let memory = Damaged { memory: &fixture, seed, rarity };
        let mut cache = Box::new(ScopeCache::new());
        for _ in 0..2 {
            let mut tables = thread.native;
            let mut walker = Walker::new(&hotspot, &memory, &mut cache, Limits { max_frames: MAX_FRAMES });
            if let Some(tables) = &mut tables {
                walker = walker.with_native(tables);
            }
            let walked = (&thread.capture, &*thread.stack);
            prop_assert!(count(&hotspot, &memory, walker, walked, frozen.as_frozen()) <= MAX_FRAMES);
        }
    }

    #[test]
    fn damaged_tables_give_an_error_or_a_layout(seed in any::<u64>(), rarity in 1..2000_u64) {
        let fixture = Fixture::load(&fixture::all()[(seed % 4) as usize]);
        let memory = Damaged { memory: &fixture, seed, rarity };
        if let Ok(mut hotspot) = HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &memory) {
            let _ = hotspot.start(&memory);
            let _ = hotspot.flag(&memory, "UseG1GC");
            let _ = hotspot.java_threads(&memory).take(100).count();
            let mut cache = Box::new(ScopeCache::new());
            for thread in &fixture.threads {
                walk(&hotspot, &memory, &mut cache, &thread.capture, &thread.stack);
            }
        }
    }
}
