//! Cost of a walk with a filled and an empty cache, and of decoding one pc or method.
//!
//! Walks recorded stacks over memory that is found by a binary search, instead of the direct loads and system calls
//! of an agent. Run with `cargo bench -p stackwalk`. Times are unreliable on a shared machine, so
//! `stackwalk/benches/instructions` counts the instructions of one walk with callgrind. Results are in
//! `design/verification.md`.

#[path = "../tests/support/fixture.rs"]
mod fixture;

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

use fixture::Fixture;
use stackwalk::{Capture, Frame, Group, HotSpot, Limits, Memory, ScopeCache, Unreadable, Walker};

const ROUNDS: usize = 401;
const WALKS: usize = 50;
/// Depth of the stack for which the target of 10 microseconds per walk holds.
const DEEP: usize = 170;

/// More than the methods inlined into one frame of the recursion.
const MAX_INLINED: usize = 8;

/// The regions of a fixture, sorted.
struct Flat(Vec<(u64, Vec<u8>)>);

impl Memory for Flat {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        let (start, bytes) = after.checked_sub(1).and_then(|at| self.0.get(at)).ok_or(Unreadable(address))?;
        let offset = (address - start) as usize;
        let found = bytes.get(offset..).and_then(|rest| rest.get(..into.len())).ok_or(Unreadable(address))?;
        into.copy_from_slice(found);
        Ok(())
    }
}

/// One stack to walk.
struct Subject {
    hotspot: HotSpot,
    memory: Flat,
    capture: Capture,
    stack: Vec<u8>,
    /// Memory for the frames of a walk.
    found: RefCell<(Vec<Frame>, Vec<Group>)>,
}

impl Subject {
    /// Returns the recursion of a fixture, made [`DEEP`] frames deep by repeating its compiled frames, which hold no
    /// pointers into the stack that a walk follows, or as deep as that leads; and the number of frames.
    fn deep(fixture: &Fixture) -> (Self, usize) {
        let thread =
            fixture.threads.iter().find(|thread| thread.name == "quiet-recursion").expect("recorded");
        let hotspot = fixture.hotspot();
        let memory = Flat(fixture.regions.iter().map(|(start, bytes)| (*start, bytes.clone())).collect());
        let mut subject = Self {
            hotspot,
            memory,
            capture: thread.capture,
            stack: thread.stack.clone(),
            found: RefCell::default(),
        };
        let mut cache = Box::new(ScopeCache::new());
        let mut frames = subject.walk(&mut cache);
        while frames < DEEP {
            subject.repeat_frames(DEEP - frames, &mut cache);
            let deeper = subject.walk(&mut cache);
            if deeper <= frames {
                break;
            }
            frames = deeper;
        }
        (subject, frames)
    }

    /// Adds about `count` frames by repeating those in the middle of the stack, which must have equal sizes.
    fn repeat_frames(&mut self, count: usize, cache: &mut ScopeCache) {
        let stack_low = self.capture.stack_low;
        let mut walker = Walker::new(&self.hotspot, &self.memory, cache, Limits::default());
        let mut walk = walker.frames(&self.capture, &self.stack);
        let frames: Vec<_> = walk.by_ref().collect();
        let places: Vec<u64> = frames.iter().map(|frame| frame.place().sp).collect();
        // Fewer might be methods inlined into a single physical frame.
        let count = count.clamp(MAX_INLINED, places.len() / 3);
        let (low, high) = (places[places.len() / 2], places[places.len() / 2 + count]);
        let range = (low - stack_low) as usize..(high - stack_low) as usize;
        let copy = self.stack[range.clone()].to_vec();
        let added = copy.len() as u64;
        // The newer part and the copies move down, so that no address in the older part changes.
        self.stack.splice(range.start..range.start, copy);
        self.capture.stack_low -= added;
        for register in [
            &mut self.capture.sp,
            &mut self.capture.fp,
            &mut self.capture.anchor_sp,
            &mut self.capture.anchor_fp,
        ] {
            if *register >= stack_low && *register < low {
                *register -= added;
            }
        }
        let below = (low - stack_low) as usize + added as usize;
        for word in self.stack[..below].as_chunks_mut::<8>().0 {
            let value = u64::from_ne_bytes(*word);
            if value >= stack_low && value < low {
                *word = (value - added).to_ne_bytes();
            }
        }
    }

    #[inline(never)]
    fn walk(&self, cache: &mut ScopeCache) -> usize {
        let mut walker = Walker::new(&self.hotspot, &self.memory, cache, Limits::default());
        let mut walk = walker.frames(black_box(&self.capture), black_box(&self.stack));
        let (frames, groups) = &mut *self.found.borrow_mut();
        frames.clear();
        groups.clear();
        walk.append_to(frames, groups);
        assert!(walk.stop().is_complete(), "{:?} after {}", walk.stop(), frames.len());
        frames.len()
    }
}

/// One walk, which callgrind counts.
#[inline(never)]
fn measured(subject: &Subject, cache: &mut ScopeCache) -> usize {
    subject.walk(cache)
}

/// Returns the median, tenth and ninetieth percentile of what `operation` returns, in nanoseconds.
fn nanos(mut operation: impl FnMut() -> f64) -> (f64, f64, f64) {
    let mut nanos: Vec<f64> = (0..ROUNDS).map(|_| operation()).collect();
    nanos.sort_by(f64::total_cmp);
    let at = |share: f64| nanos[((ROUNDS - 1) as f64 * share) as usize];
    (at(0.5), at(0.1), at(0.9))
}

fn report(jdk: u32, what: &str, frames: usize, (median, low, high): (f64, f64, f64)) {
    println!(
        "| {jdk} | {what} | {frames} | {:.0} | {low:.0} .. {high:.0} | {:.1} |",
        median,
        median / frames as f64
    );
}

fn bench(fixture: &Fixture) {
    let (subject, frames) = Subject::deep(fixture);
    let jdk = subject.hotspot.jdk_major();
    let mut cache = Box::new(ScopeCache::new());
    subject.walk(&mut cache);
    let warm = nanos(|| {
        let start = Instant::now();
        (0..WALKS).for_each(|_| assert_eq!(measured(&subject, &mut cache), frames));
        start.elapsed().as_nanos() as f64 / WALKS as f64
    });
    report(jdk, "warm", frames, warm);
    let before = cache.stats();
    let cold = nanos(|| {
        cache.clear();
        let start = Instant::now();
        assert_eq!(measured(&subject, &mut cache), frames);
        start.elapsed().as_nanos() as f64
    });
    report(jdk, "empty cache", frames, cold);
    let after = cache.stats();
    let decoded =
        (after.pc_misses + after.method_misses - before.pc_misses - before.method_misses) as usize / ROUNDS;
    let (cold, warm) = (cold.0, warm.0);
    println!(
        "| {jdk} | for each decoded pc or method | {decoded} | {:.0} | | |",
        (cold - warm) / decoded as f64
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let once =
        arguments.iter().position(|argument| argument == "--once").and_then(|at| arguments.get(at + 1));
    if let Some(kind) = once {
        // JDK 17. Callgrind does not count the other walks, because they do not go through `measured`.
        let (subject, frames) = Subject::deep(&Fixture::load(&fixture::all()[1]));
        let mut cache = Box::new(ScopeCache::new());
        if kind == "warm" {
            subject.walk(&mut cache);
        }
        assert_eq!(measured(&subject, &mut cache), frames);
        let stats = cache.stats();
        println!("{kind}: {frames} frames, {stats:?}");
        return;
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}; cache of {} bytes", load.trim(), size_of::<ScopeCache>());
    println!("| JDK | walk | frames | median ns | p10 .. p90 | ns per frame |\n|---|---|---|---|---|---|");
    fixture::all().iter().for_each(|file| bench(&Fixture::load(file)));
}
