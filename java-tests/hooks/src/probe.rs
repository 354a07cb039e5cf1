//! Extra walks of each sampled stack: describe walks that ended early, walk damaged stacks, or time walks.
//!
//! Problem: errors of the walker hide in a few instructions of a few stubs, and it is robust only if arbitrary
//! registers cannot make it loop, panic or fault in a living process.
//! Approach: a [`Probe`] selects what is done. [`Probing`] describes each new place where a stack could not be walked
//! to its root, repeats every walk many times with registers, thread fields and stack words changed at random, or times
//! a walk with a full cache and one with an empty cache.
//! Invariant: samples are the same with and without a probe; a probed walk uses a cache of its own.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::time::Instant;

use proto::histogram::{Recorder, quantile};
use sampler_thread::hooks::{ObservedWalk, Probe};
use sampler_thread::walk::snapshot::Snapshot;
use stackwalk::{
    Blob, Capture, Frame, HotSpot, Limits, Memory, Method, NativeCode, Pc, Registers, ScopeCache, Stop,
    Symbol, Walker,
};

/// Age above which a sample is not probed, in nanoseconds: probing makes the sampler late, and the end of the session
/// waits for the last sample.
const MAX_AGE_NS: u64 = 1_000_000_000;
/// Places that are described; further ones are only counted.
const MAX_PLACES: usize = 200;
/// Minimum number of frames of a deep stack.
const DEEP: u64 = 100;
/// Stack words that are searched for addresses of code.
const WORDS: usize = 48;
/// Addresses that no process can read: in the first page, of the kernel, and outside of the address space.
const UNMAPPED: [u64; 5] = [16, 4085, 0xffff_ffff_8100_0000, 0x8000_0000_0000_0008, u64::MAX - 15];
/// Lengths of such reads: one that loads may do, and one that they may not.
const UNMAPPED_LENGTHS: [usize; 2] = [8, 8192];
/// Bytes of code shown before and from the pc on.
const CODE: usize = 24;

/// The state of a probe.
pub(crate) struct Probing {
    probe: Probe,
    cache: Box<ScopeCache>,
    random: u64,
    places: HashSet<(&'static str, u64)>,
    walks: u64,
    frames: u64,
    stops: BTreeMap<&'static str, u64>,
    /// Walks that ended early: why, how far the handler came with frozen frames, in how many chunks, and whether the
    /// newest chunk was empty.
    early: BTreeMap<(&'static str, u8, u8, bool), u64>,
    /// Samples of carriers and copied words of frozen frames, by how far the handler came.
    frozen: BTreeMap<u8, (u64, u64)>,
    times: Times,
    /// Reads of unmapped memory by loads and by system calls; each was refused.
    refused: [u64; 2],
}

/// Durations of walks.
#[derive(Default)]
struct Times {
    /// Nanoseconds per frame of warm walks of deep stacks, and of all.
    warm_deep: Recorder,
    warm: Recorder,
    /// Nanoseconds per pc or method that a cold walk decoded.
    decoded: Recorder,
    /// Nanoseconds of decoding what a cold walk had to.
    cold: Recorder,
}

impl Probing {
    pub(crate) fn new(probe: Probe) -> Option<Self> {
        (probe != Probe::default()).then(|| Self {
            probe,
            cache: Box::new(ScopeCache::new()),
            random: 0x2545_f491_4f6c_dd1d,
            places: HashSet::new(),
            walks: 0,
            frames: 0,
            stops: BTreeMap::new(),
            early: BTreeMap::new(),
            frozen: BTreeMap::new(),
            times: Times::default(),
            refused: [0; 2],
        })
    }

    /// Probes a captured stack, if it is that of a Java thread.
    pub(crate) fn look<M: Memory>(&mut self, walk: ObservedWalk<'_, M>) {
        let ObservedWalk { vm, age_ns, snapshot, native, .. } = walk;
        let (hotspot, memory) = (&*vm.hotspot, &vm.memory);
        if self.probe.unmapped {
            self.read_unmapped(memory);
        }
        if self.probe.frozen && snapshot.head.capture.cont_entry != 0 {
            self.count_frozen(snapshot);
        }
        if snapshot.head.capture.thread == 0 || age_ns >= MAX_AGE_NS {
            return;
        }
        if self.probe.stops {
            self.describe_early_stop(hotspot, memory, native, snapshot);
        }
        for _ in 0..self.probe.shifted_walks {
            self.walk_shifted(hotspot, memory, snapshot);
        }
        if self.probe.times {
            self.time_walks(hotspot, memory, snapshot);
        }
    }

    /// Reads the first page, the kernel's memory and addresses that the CPU does not have.
    fn read_unmapped<M: Memory>(&mut self, memory: &M) {
        for address in UNMAPPED {
            for length in UNMAPPED_LENGTHS {
                let mut into = [0; UNMAPPED_LENGTHS[1]];
                let read = memory.read(address, into.get_mut(..length).unwrap_or_default());
                assert!(read.is_err(), "{address:x} was read");
                let by_calls = usize::from(!memory.is_loaded_directly(address, length));
                self.refused[by_calls] += 1;
            }
        }
    }

    fn count_frozen(&mut self, snapshot: &Snapshot) {
        let chunks = (0..).map_while(|index| snapshot.frozen.chunk(index));
        let bytes: u64 = chunks.map(|chunk| chunk.end() - chunk.base()).sum();
        let (samples, words) = self.frozen.entry(snapshot.head.frozen_extent).or_default();
        *samples += 1;
        *words += bytes / 8;
    }

    /// Logs the counts.
    pub(crate) fn report(&self) {
        if self.probe.unmapped {
            let [loads, calls] = self.refused;
            tracing::warn!("unmapped memory: {loads} loads and {calls} system calls were refused");
        }
        for (extent, (samples, words)) in &self.frozen {
            tracing::warn!("frozen frames: extent {extent}, {samples} samples, {words} words");
        }
        if self.walks != 0 {
            tracing::warn!("shifted walks {} frames {} stops {:?}", self.walks, self.frames, self.stops);
        }
        for ((stop, extent, chunks, emptied), count) in &self.early {
            tracing::warn!(
                "early stops: {stop}, frozen extent {extent} in {chunks} chunks, newest empty {emptied}: {count}"
            );
        }
        if self.probe.times {
            let Times { warm_deep, warm, decoded, cold } = &self.times;
            let line = |recorder: &Recorder| {
                let histogram = recorder.to_message();
                let at = |q| quantile(&histogram, q);
                format!("{} p50 {} p90 {} p99 {}", histogram.count, at(0.5), at(0.9), at(0.99))
            };
            tracing::warn!(
                "walk times, ns: warm, for 170 frames: of stacks of {DEEP} and more {}; of all {}; decoding of one pc or \
                 method {}; of a stack {}",
                line(warm_deep),
                line(warm),
                line(decoded),
                line(cold)
            );
        }
    }

    /// Walks a stack with an empty cache, then with the cache that the first walk filled.
    fn time_walks<M: Memory>(&mut self, hotspot: &HotSpot, memory: &M, snapshot: &Snapshot) {
        let (capture, stack) = (&snapshot.head.capture, snapshot.stack);
        let limits = Limits::default();
        let walk = |cache: &mut ScopeCache| {
            let start = Instant::now();
            let mut walker = Walker::new(hotspot, memory, cache, limits);
            let frames = walker.frames_with(capture, stack, snapshot.frozen).count();
            (u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), frames as u64)
        };
        walk(&mut self.cache);
        self.cache.clear();
        let before = self.cache.stats();
        let (cold, _) = walk(&mut self.cache);
        let after = self.cache.stats();
        let (warm, frames) = walk(&mut self.cache);
        if frames == 0 {
            return;
        }
        self.times.warm.record(warm * 170 / frames);
        if frames >= DEEP {
            self.times.warm_deep.record(warm * 170 / frames);
        }
        let decoded = after.pc_misses + after.method_misses - before.pc_misses - before.method_misses;
        let extra = cold.saturating_sub(warm);
        if let Some(each) = extra.checked_div(decoded) {
            self.times.decoded.record(each);
            self.times.cold.record(extra);
        }
    }

    fn describe_early_stop<M: Memory>(
        &mut self,
        hotspot: &HotSpot,
        memory: &M,
        native: &mut dyn NativeCode,
        snapshot: &Snapshot,
    ) {
        let (capture, stack) = (&snapshot.head.capture, snapshot.stack);
        let limits = Limits::default();
        let mut walker = Walker::new(hotspot, memory, &mut self.cache, limits).with_native(native);
        let mut frames = walker.frames_with(capture, stack, snapshot.frozen);
        let found: Vec<Frame> = frames.by_ref().collect();
        let stop = frames.stop();
        if stop.is_complete() {
            return;
        }
        let head = &snapshot.head;
        let kind = (stop.name(), head.frozen_extent, head.chunks, head.emptied != 0);
        *self.early.entry(kind).or_default() += 1;
        let place = (stop.name(), found.last().map_or(capture.pc, |frame| frame.place().pc.0));
        if self.places.len() < MAX_PLACES && self.places.insert(place) {
            let text = Description { hotspot, memory, capture, stack }.text(stop, &found);
            let (_, extent, chunks, emptied) = kind;
            tracing::warn!(
                "early stop {text}\n  frozen extent {extent} in {chunks} chunks, newest empty {emptied}"
            );
        }
    }

    fn walk_shifted<M: Memory>(&mut self, hotspot: &HotSpot, memory: &M, snapshot: &Snapshot) {
        let (mut capture, stack) = (snapshot.head.capture, snapshot.stack);
        for _ in 0..=self.random() % 3 {
            self.shift(&mut capture, stack);
        }
        let mut walker = Walker::new(hotspot, memory, &mut self.cache, Limits::default());
        let mut frames = walker.frames_with(&capture, stack, snapshot.frozen);
        let count = frames.by_ref().count() as u64;
        assert!(count <= u64::from(Limits::default().max_frames), "a walk of {count} frames");
        *self.stops.entry(frames.stop().name()).or_default() += 1;
        self.walks += 1;
        self.frames += count;
    }

    /// Changes one register or thread field: by a few words or bytes, or to something found on the stack.
    fn shift(&mut self, capture: &mut Capture, stack: &[u8]) {
        let choice = self.random();
        let words = stack.as_chunks::<8>().0;
        let at = usize::try_from(self.random()).unwrap_or(0) % words.len().max(1);
        let on_stack = words.get(at).map_or(choice, |word| u64::from_ne_bytes(*word));
        let near = (choice >> 32) % 129;
        let target = match choice % 16 {
            0..=3 => &mut capture.pc,
            4..=6 => &mut capture.sp,
            7..=9 => &mut capture.fp,
            10..=12 => {
                let value = [on_stack, choice, capture.sp.wrapping_add(near * 8)];
                return self.shift_register(capture, value[(choice >> 8) as usize % 3]);
            }
            13 => &mut capture.anchor_sp,
            14 => &mut capture.anchor_pc,
            _ => &mut capture.anchor_fp,
        };
        *target = match (choice >> 8) % 8 {
            0..=2 => target.wrapping_add(near.wrapping_mul(8)).wrapping_sub(512),
            3..=4 => target.wrapping_add(near).wrapping_sub(64),
            5..=6 => on_stack,
            _ => choice,
        };
        if choice >> 60 == 0 {
            capture.thread_state ^= choice & 0xf;
        }
    }

    /// Replaces one of the general registers, whose number differs by CPU.
    fn shift_register(&mut self, capture: &mut Capture, value: u64) {
        let mut bytes = capture.to_bytes();
        let (words, _) = bytes.as_chunks_mut::<8>();
        let first = offset_of!(Capture, registers) / 8;
        if let Some(registers) = words.get_mut(first..first + size_of::<Registers>() / 8) {
            let at = usize::try_from(self.random()).unwrap_or(0) % registers.len().max(1);
            if let Some(register) = registers.get_mut(at) {
                *register = value.to_ne_bytes();
            }
        }
        *capture = Capture::from_bytes(&bytes).unwrap_or(*capture);
    }

    /// The next number of a xorshift generator: the same in every run, so that a failure can be repeated.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Describes a stack that was not walked to its root.
struct Description<'a, M> {
    hotspot: &'a HotSpot,
    memory: &'a M,
    capture: &'a Capture,
    stack: &'a [u8],
}

impl<M: Memory> Description<'_, M> {
    fn text(&self, stop: Stop, frames: &[Frame]) -> String {
        let Capture { thread_state, pc, sp, fp, anchor_sp, anchor_pc, anchor_fp, .. } = self.capture;
        let Capture { registers, stack_high, deoptimized_sp, deoptimized_pc, .. } = self.capture;
        let (before, after) = self.code(*pc);
        let mut text = format!(
            "{stop:x?} state {thread_state} pc {pc:x} in {} sp {sp:x} fp {fp:x} anchor sp {anchor_sp:x} pc \
             {anchor_pc:x} fp {anchor_fp:x} deoptimized sp {deoptimized_sp:x} pc {deoptimized_pc:x} {registers:x?} base {stack_high:x}\n  code {before:02x?} | {after:02x?}\n  frames",
            self.blob_name(*pc)
        );
        for frame in frames.iter().take(6).chain(frames.iter().skip(6).rev().take(2).rev()) {
            let _ = write!(text, " {}", self.frame(frame));
        }
        let _ = write!(text, " ({} in all)\n  stack", frames.len());
        for (index, word) in self.stack.as_chunks::<8>().0.iter().take(WORDS).enumerate() {
            let word = u64::from_ne_bytes(*word);
            if self.hotspot.blob_at(self.memory, Pc(word)).is_ok() {
                let (call, _) = self.code(word);
                let call = call.get(call.len().saturating_sub(6)..).unwrap_or_default();
                let _ = write!(text, "\n    {index}: {word:x} {} after {call:02x?}", self.blob_name(word));
            }
        }
        text
    }

    fn code(&self, pc: u64) -> (Vec<u8>, Vec<u8>) {
        let read = |address| {
            let mut bytes = vec![0; CODE];
            self.memory.read(address, &mut bytes).map_or(Vec::new(), |()| bytes)
        };
        (read(pc.wrapping_sub(CODE as u64)), read(pc))
    }

    fn blob_name(&self, pc: u64) -> String {
        let Ok(blob) = self.hotspot.blob_at(self.memory, Pc(pc)) else {
            return "no code".to_owned();
        };
        format!("{}+{:x}", self.name_of(blob), pc.wrapping_sub(blob.0))
    }

    fn name_of(&self, blob: Blob) -> String {
        let mut bytes = [0; 64];
        let length = self.hotspot.blob_name(self.memory, blob, &mut bytes).unwrap_or(0);
        String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned()
    }

    fn frame(&self, frame: &Frame) -> String {
        match *frame {
            Frame::Interpreted { method, .. } => format!("i:{}", self.method(method)),
            Frame::Compiled { method, level, inlined, .. } => {
                format!("{}{}:{}", level.0, if inlined { "in" } else { "" }, self.method(method))
            }
            Frame::NativeMethod { method, .. } => format!("n:{}", self.method(method)),
            Frame::Stub { blob, .. } => format!("[{}]", self.name_of(blob)),
            Frame::Entry { .. } => "entry".to_owned(),
            Frame::Native { place, .. } => format!("native {:x}", place.pc.0),
            Frame::Gap { .. } => "gap".to_owned(),
        }
    }

    fn method(&self, method: Method) -> String {
        let Ok(names) = self.hotspot.method(self.memory, method) else {
            return "?".to_owned();
        };
        let text = |symbol: Symbol| {
            let mut bytes = [0; 128];
            let length = self.hotspot.read_symbol(self.memory, symbol, &mut bytes).unwrap_or(0);
            String::from_utf8_lossy(bytes.get(..length.min(128)).unwrap_or_default()).into_owned()
        };
        format!("{}.{}", text(names.class), text(names.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_change_captures_reproducibly() {
        let probe = Probe { shifted_walks: 1, ..Probe::default() };
        let changed = || {
            let mut probing = Probing::new(probe).expect("a probe");
            let stack: Vec<u8> = (0..=255).collect();
            let mut captures = Vec::new();
            for _ in 0..1000 {
                let mut capture = Capture { pc: 1 << 20, sp: 1 << 30, ..Capture::ZERO };
                probing.shift(&mut capture, &stack);
                captures.push(capture.to_bytes());
            }
            captures
        };
        let captures = changed();
        assert_eq!(captures, changed(), "the same walks in every run");
        let different: HashSet<_> = captures.iter().collect();
        assert!(different.len() > 700, "{} different captures of 1000", different.len());
    }

    #[test]
    fn the_default_probe_does_nothing() {
        assert!(Probing::new(Probe::default()).is_none());
    }
}
