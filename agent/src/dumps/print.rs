//! The stacks of all threads as text, for `tickwalk dump-stacks` and for dumps that an option triggers
//! ([`crate::dumps::triggers`]).
//!
//! Problem: the VM's own thread dumps wait for a safepoint and have no native frames; a debugger stops the whole
//! process.
//! Approach: one thread after the other is held in a signal handler ([`hold`](crate::dumps::hold)) while its stack
//! is copied; the copies are walked and printed afterwards by the sampler's walker
//! (`sampler_thread::walk::printed`). The stacks are those of slightly different moments. The thread in which the
//! process dies waits in its handler, and its stack is printed before another thread is held.
//! Invariants: one dump at a time; after the deadline the rest of the threads are listed as not reached; the
//! signal's action is restored.
//! Decision: `design/control.md`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profile::dictionary::symbol::function_text;
use sampler_thread::characters::shown;
use sampler_thread::native::maps;
use sampler_thread::native::variables::HiddenSymbols;
use sampler_thread::proof::code_freeing::CodeFreeing;
use sampler_thread::proof::redefinition::Redefinition;
use sampler_thread::proof::unloading::{Detector, Unloading};
use sampler_thread::walk::printed::StackPrinter;
use sampler_thread::walk::snapshot::{Snapshot, SnapshotHead};
use sampler_thread::walk::vm::Vm as ReadVm;
use stackwalk::{Capture, Frozen, HotSpot, LiveMemory, Memory, ThreadOffsets};

use crate::dumps::hold::{self, Holder, NotHeld};
use crate::dumps::request::Dying;
use crate::handler::install::Mask;
use crate::handler::memory;
use crate::handler::own_stack::BlockOffset;
use crate::handler::ucontext;
use crate::jvmti::vm::Vm;
use crate::jvmti::{thread_names, vm_memory};
use crate::threads::kernel;

/// Longest time for all copies.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time after which the stacks of a dying process are not printed any more: less than it waits
/// (`crate::dumps::request::LONGEST_WAIT_NS`).
const DYING_DEADLINE: Duration = Duration::from_secs(8);
/// Longest wait for a thread; one that runs or sleeps gets its signal within microseconds, if it gets a processor.
const FIRST_WAIT_NS: u64 = 100_000_000;
/// The same for threads that did not answer: on a machine with 50 busy threads a processor, one waits
/// for 200 ms.
const SECOND_WAIT_NS: u64 = 1_000_000_000;
/// Most stack bytes that are copied: at the speed of process_vm_readv(2), 0.2 ms.
const MOST_BYTES: usize = 1 << 20;
/// Longest wait for a command that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait of a dying process for another dump.
const OTHER_DUMP: Duration = Duration::from_secs(1);
/// The reason why threads are missing.
const DEADLINE_OVER: &str = "the deadline was over";

/// Writes the stacks of all threads to the socket at `reply`, or one line `error: ...`.
///
/// # Errors
/// As connecting and writing.
pub fn answer(vm: Vm, reply: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(reply)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut text = Vec::new();
    let dumped =
        StackDumper::new(vm).and_then(|dumper| dumper.dump(None, &thread_names::of_running(vm), &mut text));
    if let Err(reason) = dumped {
        text = format!("error: {reason}\n").into_bytes();
    }
    stream.write_all(&text)
}

/// A thread whose stack was copied.
struct Copied {
    tid: i32,
    head: SnapshotHead,
    stack: Vec<u8>,
    ticks: u64,
}

/// Makes dumps of this process.
pub struct StackDumper {
    hotspot: Arc<HotSpot>,
    memory: &'static LiveMemory,
    unloading: Arc<Unloading>,
    block: Option<BlockOffset>,
    /// Signals that the thread which has made this blocks, as other threads of the program may.
    mask: Mask,
}

impl StackDumper {
    /// Reads the layout of a VM that is initialised, on one of its threads.
    ///
    /// # Errors
    /// The reason, in one line.
    pub fn new(vm: Vm) -> Result<Self, String> {
        let library = vm.library().ok_or("the VM's library was not found")?;
        let memory = vm_memory::of_library(&library);
        let mut hotspot =
            HotSpot::read_tables(|name| library.symbol(name), memory).map_err(|error| error.to_string())?;
        vm_memory::start(&mut hotspot, memory).map_err(|error| error.to_string())?;
        let jni = vm.jni().map_err(|error| error.to_string())?;
        let (path, bias) = library.origin();
        let symbols = Arc::new(HiddenSymbols::new(path, bias));
        let unloading = Unloading::new(
            Detector::choose_without_events(&hotspot, memory, &symbols),
            CodeFreeing::choose(&hotspot, memory, Arc::clone(&symbols)),
            Redefinition::choose(&hotspot, memory, symbols),
            Duration::ZERO,
            ucontext::cycles,
            jni.permanent_loaders(),
        );
        let block = memory::block_offset();
        let mask = Mask::own().map_err(|error| error.to_string())?;
        Ok(Self { hotspot: Arc::new(hotspot), memory, unloading: Arc::new(unloading), block, mask })
    }

    /// Offset at which handlers find the bounds of their stack.
    pub fn block(&self) -> Option<BlockOffset> {
        self.block
    }

    /// Writes the stacks of all threads; that of a dying process's thread first. `names` are those of Java threads; the
    /// kernel's serve for the others.
    ///
    /// # Errors
    /// The reason, in one line; as writing.
    pub fn dump(
        &self,
        dying: Option<&Dying>,
        names: &[(u64, String)],
        out: &mut dyn Write,
    ) -> Result<(), String> {
        let patience = if dying.is_some() { OTHER_DUMP } else { Duration::ZERO };
        let Some(_turn) = hold::turn(patience) else {
            return Err(
                "another dump of this JVM's stacks is in progress; try again when it is done".to_owned()
            );
        };
        let begin = Instant::now();
        vm_memory::add_code_heaps(self.memory, &self.hotspot);
        self.unloading.note(self.memory);
        let java = java_threads(&self.hotspot, self.memory);
        let vm = ReadVm { hotspot: Arc::clone(&self.hotspot), memory: self.memory };
        let name_of = |thread: &JavaThread| {
            let (_, name) = names.iter().find(|(address, _)| *address == thread.address)?;
            Some((thread.tid, name.as_str()))
        };
        let names = java.iter().filter_map(name_of).collect();
        let mut printed = Printed {
            printer: StackPrinter::new(vm, Arc::clone(&self.unloading), function_text),
            names,
            out,
            whole: 0,
            partial: 0,
        };
        let offsets = self.hotspot.thread_offsets();
        let mut stacks = Stacks {
            memory: self.memory,
            offsets: &offsets,
            java: &java,
            first_stack: first_stack(),
            buffer: vec![0; MOST_BYTES],
        };
        if let Some(dying) = dying {
            let ticks = printed.printer.now();
            let (capture, length) = stacks.copy(dying.tid, &dying.capture);
            printed.stack_of_dying(&stacks.copied(dying.tid, capture, length, ticks))?;
        }
        let without = dying.map(|dying| dying.tid);
        let (copied, mut missed) = self.copy_all(&printed.printer, &mut stacks, without, begin)?;
        let copied_in = begin.elapsed();
        for stack in &copied {
            match dying.is_some() && begin.elapsed() >= DYING_DEADLINE {
                true => missed.push((stack.tid, DEADLINE_OVER)),
                false => printed.stack(stack)?,
            }
        }
        printed.rest(&missed, copied_in, begin)
    }

    /// Copies the stacks of all threads but the calling one and `without`.
    fn copy_all(
        &self,
        printer: &StackPrinter<&'static LiveMemory>,
        stacks: &mut Stacks<'_>,
        without: Option<i32>,
        begin: Instant,
    ) -> Result<(Vec<Copied>, Missed), String> {
        let own = nix::unistd::gettid().as_raw();
        let mut holder = Holder::install(self.block, &self.mask).map_err(|error| error.to_string())?;
        let (mut copied, mut missed) = (Vec::new(), Vec::new());
        let mut left: Vec<i32> = kernel::list().into_iter().filter(|&tid| Some(tid) != without).collect();
        // On a busy machine threads wait for a processor, this one included, so missing threads get a second chance.
        for (wait_ns, is_last) in [(FIRST_WAIT_NS, false), (SECOND_WAIT_NS, true)] {
            for tid in std::mem::take(&mut left) {
                if tid == own {
                    missed.push((tid, "this thread writes the dump"));
                    continue;
                }
                if begin.elapsed() >= DEADLINE {
                    missed.push((tid, DEADLINE_OVER));
                    continue;
                }
                let ticks = printer.now();
                match holder.hold(tid, wait_ns, |capture: &Capture| stacks.copy(tid, capture)) {
                    Ok(((capture, length), true)) => {
                        copied.push(stacks.copied(tid, capture, length, ticks));
                    }
                    Ok((_, false)) | Err(NotHeld::Released) => match is_last {
                        true => missed.push((tid, "it went on before its stack was copied")),
                        false => left.push(tid),
                    },
                    Err(NotHeld::Ended) => {}
                    Err(NotHeld::Silent) => match kernel::blocks(tid, holder.signal()) {
                        Some(true) => missed.push((tid, "it blocks signals")),
                        Some(false) if is_last => {
                            missed.push((tid, "the kernel does not let it handle a signal"))
                        }
                        Some(false) => left.push(tid),
                        None => {}
                    },
                }
            }
        }
        Ok((copied, missed))
    }
}

/// Appends the lines of a stack; returns whether it reaches its root.
type Print = fn(&mut StackPrinter<&'static LiveMemory>, &Snapshot<'_>, u64, &mut String) -> bool;

/// The text of a dump.
struct Printed<'a> {
    printer: StackPrinter<&'static LiveMemory>,
    /// Names of Java threads by their kernel ids.
    names: HashMap<i32, &'a str>,
    out: &'a mut dyn Write,
    whole: usize,
    partial: usize,
}

impl Printed<'_> {
    /// Returns the name in Java, or the kernel's, as one line.
    fn name(&self, tid: i32) -> String {
        let known = self.names.get(&tid).map(|name| (*name).to_owned());
        let name = known.or_else(|| kernel::name_of(tid)).unwrap_or_default();
        shown(&name).into_owned()
    }

    fn stack(&mut self, copied: &Copied) -> Result<(), String> {
        self.write_stack(copied, StackPrinter::print)
    }

    /// Writes the stack of the thread in which the process dies.
    fn stack_of_dying(&mut self, copied: &Copied) -> Result<(), String> {
        self.write_stack(copied, StackPrinter::print_dying)
    }

    /// Writes a stack at once: a dying process may not get further.
    fn write_stack(
        &mut self,
        Copied { tid, head, stack, ticks }: &Copied,
        print: Print,
    ) -> Result<(), String> {
        let kind = if head.capture.thread == 0 { "native" } else { "Java" };
        let mut text = format!("Thread {tid} \"{}\" ({kind})\n", self.name(*tid));
        let snapshot = Snapshot { head: *head, stack, frozen: Frozen::NONE, name: &[], is_copy: true };
        match print(&mut self.printer, &snapshot, *ticks, &mut text) {
            true => self.whole += 1,
            false => self.partial += 1,
        }
        text.push('\n');
        self.write(&text)
    }

    /// Writes the threads without a stack, and the line of counts and times.
    fn rest(mut self, missed: &Missed, copied_in: Duration, begin: Instant) -> Result<(), String> {
        let mut text = String::new();
        for (tid, reason) in missed {
            let name = self.name(*tid);
            // Writing to a string does not fail.
            let _ = writeln!(text, "Thread {tid} \"{name}\"\n[no stack: {reason}]\n");
        }
        let (longest_ns, sum_ns) = hold::pauses();
        let micros = |ns: u64| ns as f64 / 1e3;
        let _ = writeln!(
            text,
            "{} threads: {} whole stacks, {} partial, {} not reached; longest pause of a thread {:.0} us, of all together \
             {:.0} us; copied in {:.1} ms, printed in {:.1} ms",
            self.whole + self.partial + missed.len(),
            self.whole,
            self.partial,
            missed.len(),
            micros(longest_ns),
            micros(sum_ns),
            copied_in.as_secs_f64() * 1e3,
            (begin.elapsed() - copied_in).as_secs_f64() * 1e3,
        );
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|error| format!("cannot write the stacks: {error}"))
    }
}

/// Memory for copies of stacks; made before a thread is held.
struct Stacks<'a> {
    memory: &'static LiveMemory,
    offsets: &'a ThreadOffsets,
    java: &'a [JavaThread],
    first_stack: (u64, u64),
    buffer: Vec<u8>,
}

impl Stacks<'_> {
    /// Copies the stack of a thread that is held, without allocating or locking. Returns what was captured,
    /// completed by the fields of its `JavaThread`, and the number of bytes in the buffer.
    fn copy(&mut self, tid: i32, capture: &Capture) -> (Capture, usize) {
        let mut capture = *capture;
        if let Some(java) = self.java.iter().find(|java| java.tid == tid) {
            add_java_state(&mut capture, java.address, self.memory, self.offsets);
            capture.stack_high = java.stack_high;
        } else if capture.stack_high == 0 && (self.first_stack.0..self.first_stack.1).contains(&capture.sp) {
            capture.stack_high = self.first_stack.1;
        }
        let bytes = usize::try_from(capture.stack_high.saturating_sub(capture.sp)).unwrap_or(0);
        let place = self.buffer.get_mut(..bytes.min(MOST_BYTES)).unwrap_or_default();
        let length = self.memory.read(capture.sp, place).map_or(0, |()| place.len());
        (capture, length)
    }

    fn copied(&self, tid: i32, capture: Capture, length: usize, ticks: u64) -> Copied {
        let stack = self.buffer.get(..length).unwrap_or_default().to_vec();
        let head = SnapshotHead { capture, stack_bytes: length as u64, ..SnapshotHead::default() };
        Copied { tid, head, stack, ticks }
    }
}

/// A `JavaThread`.
struct JavaThread {
    tid: i32,
    address: u64,
    /// One past the highest address of its stack.
    stack_high: u64,
}

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
    let text = maps::read().unwrap_or_default();
    let found = maps::parse(&text).find(|mapping| mapping.path == "[stack]");
    found.map_or((0, 0), |mapping| (mapping.start, mapping.end))
}
