//! Cost of walks of stacks that are hardly ever alike: many nmethods with inlined methods, more pcs than the cache
//! holds.
//!
//! Problem: a benchmark that repeats a stack measures the best case only.
//! Approach: random stacks of 64 frames through generated nmethods in the layouts of JDK 17 and 25. Reads of blocks
//! outside the code cache are system calls, as in an agent. Each walk is compared with the generated stack.
//!
//! `cargo bench -p stackwalk --bench cold` prints times and reads; `-- --once MODE JDK` makes the walks of one mode,
//! which `stackwalk/benches/instructions` counts with callgrind. Results are in `design/verification.md`.

#[path = "../tests/support/fixture.rs"]
mod fixture;
#[path = "../tests/support/synthetic.rs"]
mod synthetic;

use std::time::Instant;

use fixture::Fixture;
use stackwalk::{Capture, Frame, Group, Limits, ScopeCache, Walker};
use synthetic::{Process, Random, Shape};

const DEPTH: usize = 64;

/// Kind of measured walks: the code they meet, and what the cache holds of it.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    nmethods: usize,
    pcs: u64,
    /// Walks before the measured ones, and measured ones.
    walks: (usize, usize),
    /// True if each frame has a pc of its own.
    distinct: bool,
}

const MODES: &[Mode] = &[
    Mode { name: "warm", nmethods: 400, pcs: 10, walks: (3_000, 500), distinct: false },
    Mode { name: "new-pc", nmethods: 100, pcs: 200, walks: (50, 250), distinct: true },
    Mode { name: "new-nmethod", nmethods: 6_400, pcs: 30, walks: (0, 100), distinct: true },
    Mode { name: "flood", nmethods: 1_000, pcs: 200, walks: (4_000, 1_000), distinct: false },
];

/// Frames of one stack: random, or each nmethod in turn with its next pc.
fn frames(mode: &Mode, walk: usize, random: &mut Random) -> Vec<(usize, u64)> {
    let next = |position: usize, random: &mut Random| {
        if mode.distinct {
            let at = walk * DEPTH + position;
            (at % mode.nmethods, (at / mode.nmethods) as u64 % mode.pcs)
        } else {
            (random.below(mode.nmethods as u64) as usize, random.below(mode.pcs))
        }
    };
    (0..DEPTH).map(|position| next(position, random)).collect()
}

/// Walks one stack; callgrind counts this.
#[inline(never)]
fn measured(
    process: &Process,
    cache: &mut ScopeCache,
    (capture, stack): &(Capture, Vec<u8>),
    (frames, groups): (&mut Vec<Frame>, &mut Vec<Group>),
) -> usize {
    let mut walker = Walker::new(&process.hotspot, process, cache, Limits::default());
    frames.clear();
    groups.clear();
    walker.frames(capture, stack).append_to(frames, groups);
    frames.len()
}

fn check(process: &Process, cache: &mut ScopeCache, frames: &[(usize, u64)]) {
    let (capture, stack) = process.stack(frames);
    let mut walker = Walker::new(&process.hotspot, process, cache, Limits::default());
    let found: Vec<_> = walker
        .frames(&capture, &stack)
        .map(|frame| match frame {
            Frame::Compiled { method, bci: Some(bci), .. } => (method.0, bci.0),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: Vec<_> = frames.iter().flat_map(|&frame| process.chain(frame).clone()).collect();
    assert_eq!(found, expected);
}

fn run(mode: &Mode, fixture: &Fixture) {
    let mut process = Process::new(fixture, mode.nmethods, |index| Shape {
        compile_id: index as u32 + 1,
        pcs: mode.pcs,
        seed: index as u64 * 77 + 5,
    });
    process.real_calls = true;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut cache = Box::new(ScopeCache::new());
    let (before, count) = mode.walks;
    for walk in 0..before {
        check(&process, &mut cache, &frames(mode, walk, &mut random));
    }
    let stacks: Vec<_> =
        (before..before + count).map(|walk| process.stack(&frames(mode, walk, &mut random))).collect();
    let (stats, checked) = (cache.stats(), process.checked.get());
    let start = Instant::now();
    let (mut frames, mut groups) = (Vec::new(), Vec::new());
    let mut walk = |stack| measured(&process, &mut cache, stack, (&mut frames, &mut groups));
    let found: usize = stacks.iter().map(&mut walk).sum();
    let nanos = start.elapsed().as_nanos() as f64;
    let (after, physical) = (cache.stats(), count * DEPTH);
    let misses = after.pc_misses + after.pc_stale - stats.pc_misses - stats.pc_stale;
    let checked = process.checked.get() - checked;
    println!(
        "| {} | {} | {physical} | {:.1} | {misses} | {checked} | {:.0} |",
        process.hotspot.jdk_major(),
        mode.name,
        found as f64 / physical as f64,
        nanos / physical as f64
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str, distance: usize| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + distance)
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}", load.trim());
    println!("| JDK | walks | physical frames | methods each | misses | calls | ns per frame |");
    println!("|---|---|---|---|---|---|---|");
    for file in fixture::all() {
        let jdk = file.parent().and_then(|folder| folder.file_name()).expect("a folder").to_string_lossy();
        let wanted = after("--once", 2).map_or("17 25", |jdk| jdk);
        if !wanted.split(' ').any(|wanted| jdk == format!("jdk{wanted}-x86_64")) {
            continue;
        }
        let fixture = Fixture::load(&file);
        for mode in MODES {
            let once = after("--once", 1);
            if once.is_none_or(|name| name == mode.name) {
                run(mode, &fixture);
            }
        }
    }
}
