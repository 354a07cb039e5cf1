//! The stacks of all threads as text, for `tickwalk dump-stacks`.
//!
//! Problem: the VM's own thread dumps wait for a safepoint and have no native frames; a debugger stops the whole process.
//! Approach: one thread after the other is held in a signal handler ([`hold`](crate::signal::hold)) while its stack is copied;
//! the copies are walked and printed afterwards by the sampler's walker (`sampler_thread::printed`). The stacks are those of
//! slightly different moments.
//! Invariants: one dump at a time; after the deadline the rest of the threads are listed as not reached; the signal's action
//! is restored.
//! Decision: `design/stack-dumps.md`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sampler_thread::printed::StackPrinter;
use sampler_thread::validity::code_freeing::CodeFreeing;
use sampler_thread::validity::redefinition::Redefinition;
use sampler_thread::validity::unloading::{Detector, Unloading};
use sampler_thread::walk::snapshot::{Snapshot, SnapshotHead};
use sampler_thread::walk::vm::Vm as ReadVm;
use stackwalk::{Capture, Frozen, HotSpot, LiveMemory, Memory, ThreadOffsets};

use crate::jvmti::vm::Vm;
use crate::jvmti::vm_memory;
use crate::signal::hold::{self, Holder, NotHeld};
use crate::signal::ucontext;
use crate::{handler_memory, kernel_threads};

/// Longest time for all copies.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most stack bytes that are copied: at the speed of process_vm_readv(2), 0.2 ms.
const MOST_BYTES: usize = 1 << 20;
/// Longest wait for a command that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// True while a dump is made.
static DUMPING: Mutex<()> = Mutex::new(());

/// Returns the path for the answer, if the text of the options asks for the stacks.
pub fn reply(options: &str) -> Option<&Path> {
    options.strip_prefix("stacks,reply=").map(Path::new)
}

/// Writes the stacks of all threads to the socket at `reply`, or one line `error: ...`.
///
/// # Errors
/// As connecting and writing.
pub fn answer(vm: Vm, reply: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(reply)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let text = dump(vm).unwrap_or_else(|reason| format!("error: {reason}\n"));
    stream.write_all(text.as_bytes())
}

/// A thread whose stack was copied.
struct Copied {
    tid: i32,
    head: SnapshotHead,
    stack: Vec<u8>,
    ticks: u64,
}

fn dump(vm: Vm) -> Result<String, String> {
    let Some(_one) = DUMPING.try_lock() else {
        return Err("another dump of this JVM's stacks is in progress; try again when it is done".to_owned());
    };
    let begin = Instant::now();
    let library = vm.library().ok_or("the VM's library was not found")?;
    let memory = vm_memory::of_library(&library);
    let mut hotspot =
        HotSpot::read_tables(|name| library.symbol(name), memory).map_err(|error| error.to_string())?;
    hotspot.start(memory).map_err(|error| error.to_string())?;
    vm_memory::add_code_heaps(memory, &hotspot);
    let jni = vm.jni().map_err(|error| error.to_string())?;
    let unloading = Unloading::new(
        Detector::choose(&hotspot, memory, false),
        CodeFreeing::choose(&hotspot, memory),
        Redefinition::choose(&hotspot, memory, Some(library.origin())),
        Duration::ZERO,
        ucontext::cycles,
        jni.permanent_loaders(),
    );
    unloading.note(memory);
    let threads = kernel_threads::list();
    let java = java_threads(&hotspot, memory);
    let names: Vec<(u64, String)> = vm.jvmti().map_or_else(
        |_| Vec::new(),
        |jvmti| {
            jni.in_frame(2 * threads.len() + 16, || {
                let name = |thread| Some((jni.java_thread(thread)?, jni.thread_name(thread)?));
                jvmti.all_threads().into_iter().filter_map(name).collect()
            })
        },
    );
    let offsets = hotspot.thread_offsets();
    let mut printer = StackPrinter::new(ReadVm { hotspot: Arc::new(hotspot), memory }, Arc::new(unloading));
    let (copied, missed) = copy_all(&printer, (memory, &offsets, &java), &threads, begin)?;
    let copied_in = begin.elapsed();

    let mut out = String::new();
    let mut partial = 0;
    for Copied { tid, head, stack, ticks } in &copied {
        let address = head.capture.thread;
        let name = names.iter().find(|(thread, _)| *thread == address && address != 0);
        let name = name.map(|(_, name)| name.clone()).or_else(|| kernel_threads::name_of(*tid));
        let kind = if address == 0 { "native" } else { "Java" };
        // Writing to a string does not fail.
        let _ = writeln!(out, "Thread {tid} \"{}\" ({kind})", name.unwrap_or_default());
        let snapshot = Snapshot { head: *head, stack, frozen: Frozen::NONE, name: &[], is_copy: true };
        partial += usize::from(!printer.print(&snapshot, *ticks, &mut out));
        out.push('\n');
    }
    for (tid, reason) in &missed {
        let name = kernel_threads::name_of(*tid).unwrap_or_default();
        let _ = writeln!(out, "Thread {tid} \"{name}\"\n[no stack: {reason}]\n");
    }
    let (longest_ns, sum_ns) = hold::pauses();
    let micros = |ns: u64| ns as f64 / 1e3;
    let _ = writeln!(
        out,
        "{} threads: {} whole stacks, {partial} partial, {} not reached; longest pause of a thread {:.0} us, of all together \
         {:.0} us; copied in {:.1} ms, printed in {:.1} ms",
        copied.len() + missed.len(),
        copied.len() - partial,
        missed.len(),
        micros(longest_ns),
        micros(sum_ns),
        copied_in.as_secs_f64() * 1e3,
        (begin.elapsed() - copied_in).as_secs_f64() * 1e3,
    );
    Ok(out)
}

/// A `JavaThread`.
struct JavaThread {
    tid: i32,
    address: u64,
    /// One past the highest address of its stack.
    stack_high: u64,
}

/// Returns all `JavaThread`s.
fn java_threads(hotspot: &HotSpot, memory: &LiveMemory) -> Vec<JavaThread> {
    let offsets = hotspot.thread_offsets();
    let facts = |address: u64| {
        let tid = i32::try_from(hotspot.thread_id(memory, address)?).ok()?;
        let stack_high = memory.read_u64(address + u64::from(offsets.stack_base)).ok()?;
        Some(JavaThread { tid, address, stack_high })
    };
    hotspot.java_threads(memory).filter_map(facts).collect()
}

type Missed = Vec<(i32, &'static str)>;

/// Copies the stacks of all threads but the calling one.
fn copy_all(
    printer: &StackPrinter<&'static LiveMemory>,
    (memory, offsets, java): (&'static LiveMemory, &ThreadOffsets, &[JavaThread]),
    threads: &[i32],
    begin: Instant,
) -> Result<(Vec<Copied>, Missed), String> {
    let own = nix::unistd::gettid().as_raw();
    let first_stack = first_stack();
    let mut holder = Holder::install(handler_memory::block_offset()).map_err(|error| error.to_string())?;
    let (mut copied, mut missed) = (Vec::new(), Vec::new());
    // Made before a thread is held.
    let mut buffer = vec![0; MOST_BYTES];
    for &tid in threads {
        if tid == own {
            missed.push((tid, "this thread writes the dump"));
            continue;
        }
        if begin.elapsed() >= DEADLINE {
            missed.push((tid, "the deadline was over"));
            continue;
        }
        let known = java.iter().find(|java| java.tid == tid);
        let ticks = printer.now();
        let copy = |capture: &Capture| {
            let mut capture = *capture;
            if let Some(java) = known {
                add_java_state(&mut capture, java.address, memory, offsets);
                capture.stack_high = java.stack_high;
            } else if capture.stack_high == 0 && first_stack.0 <= capture.sp && capture.sp < first_stack.1 {
                capture.stack_high = first_stack.1;
            }
            let bytes = usize::try_from(capture.stack_high.saturating_sub(capture.sp)).unwrap_or(0);
            let place = buffer.get_mut(..bytes.min(MOST_BYTES)).unwrap_or_default();
            let length = memory.read(capture.sp, place).map_or(0, |()| place.len());
            (capture, length)
        };
        match holder.hold(tid, copy) {
            Ok(((capture, length), was_held)) => {
                if !was_held {
                    missed.push((tid, "it went on before its stack was copied"));
                    continue;
                }
                let stack = buffer.get(..length).unwrap_or_default().to_vec();
                let head = SnapshotHead { capture, stack_bytes: length as u64, ..SnapshotHead::default() };
                copied.push(Copied { tid, head, stack, ticks });
            }
            Err(NotHeld::Ended) => {}
            Err(NotHeld::Silent) => {
                missed.push((tid, "it blocks signals, or the kernel does not let it handle one"))
            }
        }
    }
    Ok((copied, missed))
}

/// Adds the fields of a held thread's `JavaThread`, by checked reads: a thread that ends frees it.
fn add_java_state(capture: &mut Capture, thread: u64, memory: &LiveMemory, offsets: &ThreadOffsets) {
    let word = |offset: u32| memory.read_u64(thread.wrapping_add(u64::from(offset))).unwrap_or(0);
    let Ok(state) = memory.read_u32(thread.wrapping_add(u64::from(offsets.state))) else { return };
    capture.thread = thread;
    capture.thread_state = u64::from(state);
    (capture.anchor_sp, capture.anchor_pc) = (word(offsets.anchor_sp), word(offsets.anchor_pc));
    capture.anchor_fp = word(offsets.anchor_fp);
    let replacing = word(offsets.vframe_array_head);
    if replacing != 0 {
        let record = |offset: u32| memory.read_u64(replacing.wrapping_add(u64::from(offset))).unwrap_or(0);
        capture.deoptimized_sp = record(offsets.deoptimized_sp);
        capture.deoptimized_pc = record(offsets.deoptimized_sp.wrapping_add(8));
    }
    capture.cont_entry = offsets.cont_entry.map_or(0, word);
    capture.saved_exception_pc = offsets.saved_exception_pc.map_or(0, word);
}

/// Returns the bounds of the process's first stack, which the C library did not make; zeros if they are unknown.
fn first_stack() -> (u64, u64) {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let text = String::from_utf8_lossy(&maps);
    let found = sampler_thread::walk::native::maps::parse(&text).find(|mapping| mapping.path == "[stack]");
    found.map_or((0, 0), |mapping| (mapping.start, mapping.end))
}
