//! Records stacks with every byte that their walks read, as fixtures of the crate `stackwalk`.
//!
//! Problem: an emulated JVM cannot be read from outside, as the recorder in `stackwalk/tests` does.
//! Approach: with the environment variable [`VARIABLE`] each sample that is not like enough others is walked once more,
//! without native code, through memory that notes all reads. `java-tests/measure/aarch64 record` runs programs so.
//! Only stacks are kept whose methods the VM's own walk names as well, and at the end only those whose walk over the
//! recorded bytes alone gives the same text: code may be replaced while others are recorded.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;

use parking_lot::Mutex;
use sampler_thread::walk::snapshot::{FrozenExtent, Snapshot};
use stackwalk::{Capture, HotSpot, LiveMemory, ScopeCache, Stop};

use crate::print;

#[allow(clippy::expect_used, reason = "shared with tests")]
#[path = "../../../stackwalk/tests/support/fixture.rs"]
mod fixture;
#[allow(clippy::expect_used, reason = "shared with tests")]
#[path = "../../../stackwalk/tests/support/walks.rs"]
mod walks;

use fixture::{Fixture, FrozenCopy, Overlaid, Recorder, Thread};

/// Names the file.
const VARIABLE: &str = "TICKWALK_RECORD_STACKS";
/// If set, only stacks whose description has this text are kept: `upcall`, `frozen` or `lambda`.
const ONLY_VARIABLE: &str = "TICKWALK_RECORD_ONLY";
/// Most stacks in a file.
const STACKS: usize = 24;
/// Stacks whose newest frame is of the same kind.
const ALIKE: usize = 3;
/// Longest stack that is kept, in bytes: a file stays small.
const LONGEST: usize = 24 << 10;

type Memory = Overlaid<'static, LiveMemory>;

struct Recording {
    path: PathBuf,
    only: String,
    hotspot: HotSpot,
    fixture: &'static Fixture,
    recorder: Recorder<'static, Memory>,
    threads: Vec<Thread>,
    alike: HashMap<String, usize>,
}

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

/// Begins a recording if the variable names a file.
pub fn start(memory: &'static LiveMemory) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let (symbols, image) = fixture::reduced_tables(&symbol, memory);
    let mut fixture = Fixture { symbols, ..Fixture::default() };
    fixture.regions.insert(fixture::tables_address(), image);
    let fixture: &'static Fixture = Box::leak(Box::new(fixture));
    let live: &'static Memory = Box::leak(Box::new(Overlaid { image: fixture, process: memory }));
    let recorder = Recorder { memory: live, bytes: Default::default() };
    let tables = HotSpot::read_tables(|name| fixture.symbols.get(name).copied(), &recorder);
    let Ok(mut hotspot) = tables else { return print("recording: the tables are not complete") };
    if hotspot.start(&recorder).is_err() {
        return print("recording: the VM has not started");
    }
    *RECORDING.lock() = Some(Recording {
        path: path.into(),
        only: std::env::var(ONLY_VARIABLE).unwrap_or_default(),
        hotspot,
        fixture,
        recorder,
        threads: Vec::new(),
        alike: HashMap::new(),
    });
}

/// Returns the address of a symbol that libjvm exports.
fn symbol(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: a NUL-terminated name, looked up in what the launcher loaded.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
}

/// Records a sample that the VM's own walk agrees with.
pub fn sample(snapshot: &Snapshot<'_>) {
    let head = &snapshot.head;
    let chunks = (0..).map_while(|index| snapshot.frozen.chunk(index));
    let frozen = FrozenCopy {
        chunks: chunks.map(|chunk| (chunk.base(), chunk.all().to_vec())).collect(),
        whole: head.frozen_extent == FrozenExtent::Whole as u8,
        emptied: false,
    };
    if head.emptied == 0 && snapshot.is_copy {
        keep("sample", &head.capture, snapshot.stack, frozen);
    }
}

/// Records the stack of a thread at a quiet point, which GetStackTrace agrees with.
pub fn quiet(capture: &Capture, stack: &[u8]) {
    keep("quiet", capture, stack, FrozenCopy::default());
}

fn keep(origin: &str, capture: &Capture, stack: &[u8], frozen: FrozenCopy) {
    let mut recording = RECORDING.lock();
    let Some(recording) = recording.as_mut() else { return };
    if recording.threads.len() >= STACKS || stack.len() > LONGEST {
        return;
    }
    let walked = (capture, stack);
    let Recording { hotspot, recorder, .. } = &*recording;
    let live = recorder.memory;
    let (expected, stop) = text(hotspot, live, &mut ScopeCache::new(), walked, &frozen);
    let newest = expected.lines().next().unwrap_or("");
    // Names of stubs are few.
    let newest = if newest.starts_with("stub") { newest } else { newest.split(' ').next().unwrap_or("") };
    let is_upcall = |line: &str| line.starts_with("stub") && line.to_lowercase().contains("upcall");
    let called = if expected.lines().any(is_upcall) { ", upcall" } else { "" };
    let thawed = if frozen.chunks.is_empty() { "" } else { ", frozen" };
    let lambda = if expected.contains("$$Lambda") { ", lambda" } else { "" };
    let kind = format!("{origin} {newest}{called}{thawed}{lambda}");
    let count = recording.alike.get(&kind).copied().unwrap_or(0);
    if count >= ALIKE || !stop.is_complete() || !kind.contains(&recording.only) {
        return;
    }
    let mut cache = Box::new(ScopeCache::new());
    // Again with the cache, so that the reads that check a hit are recorded.
    let [first, second] = [(); 2].map(|()| text(hotspot, recorder, &mut cache, walked, &frozen).0);
    if first != expected || second != expected {
        return;
    }
    let name = format!("{} {kind}", recording.threads.len());
    let mut thread = Thread::on_stack(name, *capture, stack.to_vec(), expected);
    thread.frozen = frozen;
    recording.threads.push(thread);
    recording.alike.insert(kind, count + 1);
}

/// Walks a stack without native code; returns the walk as text and why it ended.
fn text(
    hotspot: &HotSpot,
    memory: &impl stackwalk::Memory,
    cache: &mut ScopeCache,
    walked: (&Capture, &[u8]),
    frozen: &FrozenCopy,
) -> (String, Stop) {
    let (frames, stop) = walks::walk_mounted(hotspot, memory, cache, None, walked, frozen.as_frozen());
    (walks::as_text(hotspot, memory, &frames, stop), stop)
}

/// Writes the file.
pub fn store() {
    let Some(recording) = RECORDING.lock().take() else { return };
    let Recording { path, fixture, recorder, threads, .. } = recording;
    let mut stored =
        Fixture { symbols: fixture.symbols.clone(), regions: fixture.regions.clone(), threads: Vec::new() };
    let mut regions = recorder.regions();
    regions.retain(|address, _| !fixture.regions.contains_key(address));
    stored.regions.extend(regions);
    let hotspot = stored.hotspot();
    let repeats = |thread: &Thread| {
        let walked = (&thread.capture, &*thread.stack);
        text(&hotspot, &stored, &mut ScopeCache::new(), walked, &thread.frozen).0 == thread.expected
    };
    let all = threads.len();
    let kept: Vec<Thread> = threads.into_iter().filter(repeats).collect();
    print(&format!("recording: {} of {all} stacks in {}", kept.len(), path.display()));
    stored.threads = kept;
    stored.store(&path);
}
