//! Records stacks with every byte that their walks read, as fixtures of the crate `stackwalk`.
//!
//! Problem: an emulated JVM cannot be read from outside, as the recorder in `stackwalk/tests` does.
//! Approach: with the environment variable [`VARIABLE`] each sample that is not like enough others is walked once more,
//! without native code, through memory that notes all reads. `java-tests/aarch64 record` runs programs so.
//! Only stacks are kept whose methods the VM's own walk names as well, and at the end only those whose walk over the
//! recorded bytes alone gives the same text: code may be replaced while others are recorded.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use sampler_thread::walk::snapshot::{FrozenExtent, Snapshot};
use stackwalk::{Capture, HotSpot, LiveMemory, ScopeCache};

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
/// Most stacks in a file.
const STACKS: usize = 40;
/// Stacks whose newest frame is the same, by kind and name.
const ALIKE: usize = 1;
/// Longest stack that is kept, in bytes: a file stays small.
const LONGEST: usize = 24 << 10;

type Memory = Overlaid<'static, LiveMemory>;

struct Recording {
    path: PathBuf,
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
    let path = path.into();
    let recording =
        Recording { path, hotspot, fixture, recorder, threads: Vec::new(), alike: HashMap::new() };
    *RECORDING.lock() = Some(recording);
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
    if head.emptied == 0 && !snapshot.is_copy {
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
    let mut cache = Box::new(ScopeCache::new());
    let Recording { hotspot, recorder, .. } = &*recording;
    let before = recorder.bytes.borrow().clone();
    let mut walk = || {
        let walked = (capture, stack);
        let (frames, stop) =
            walks::walk_mounted(hotspot, recorder, &mut cache, None, walked, frozen.as_frozen());
        (walks::as_text(hotspot, recorder, &frames, stop), stop)
    };
    // Again with the cache, so that the reads that check a hit are recorded.
    let (expected, stop) = walk();
    let (again, _) = walk();
    let newest = expected.lines().next().unwrap_or("").to_owned();
    let kind = format!("{origin} {newest} {}", frozen.chunks.len().min(1));
    let count = recording.alike.entry(kind.clone()).or_default();
    if *count >= ALIKE || again != expected || !stop.is_complete() {
        recording.recorder.bytes.replace(before);
        return;
    }
    *count += 1;
    let name = format!("{} {kind}", recording.threads.len());
    let mut thread = Thread::on_stack(name, *capture, stack.to_vec(), expected);
    thread.frozen = frozen;
    recording.threads.push(thread);
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
    let hotspot = Arc::new(stored.hotspot());
    let repeats = |thread: &Thread| {
        let mut cache = Box::new(ScopeCache::new());
        let walked = (&thread.capture, &*thread.stack);
        let (frames, stop) =
            walks::walk_mounted(&hotspot, &stored, &mut cache, None, walked, thread.frozen.as_frozen());
        walks::as_text(&hotspot, &stored, &frames, stop) == thread.expected
    };
    let all = threads.len();
    let kept: Vec<Thread> = threads.into_iter().filter(repeats).collect();
    print(&format!("recording: {} of {all} stacks in {}", kept.len(), path.display()));
    stored.threads = kept;
    stored.store(&path);
}
