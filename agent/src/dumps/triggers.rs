//! Dumps of all stacks without a command: when the process dies, at a signal, and when it uses much CPU time.
//!
//! Problem: the interesting moment is over before a person can start a command.
//! Approach: the options `crashstacks=`, `dumpsignal=` and `dumpcpu=` start one thread, once the VM is initialised.
//! It sleeps until a handler wakes it ([`dump_request`](crate::dumps::request)), or reads the CPU clock of the
//! process a few times in the time of `dumpcpu=`, and writes the text of `tickwalk dump-stacks`.
//! Invariants: without these options nothing is made; with them, thread and handlers stay until the process ends,
//! beside any number of profiles. A dump needs no thread of the VM. After every error the program goes on, and dies
//! as it would.
//! Decision: `design/control.md`.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use profile::export::whole_file::Readers;
use sampler_thread::clock::process_cpu_nanos;

use crate::dumps::print::StackDumper;
use crate::dumps::request::{Dying, Requests};
use crate::guest::log;
use crate::handler::install;
use crate::jvmti::vm::Vm;
use crate::jvmti::{guard, initialised, thread_names};
use agent_options::dumps::{CpuLimit, DumpOptions};
use agent_options::file_name;

/// Name of the thread that waits for the moment of a dump and writes it.
const THREAD_NAME: &str = "tickwalk-dumps";
/// Looks at the CPU clock within the time of the limit.
const LOOKS: usize = 4;
/// Shortest time between two dumps because of CPU time.
const DISTANCE: Duration = Duration::from_secs(60);
/// In place of a path.
const STANDARD_ERROR: &str = "stderr";

/// The options of the process, once they are in force.
static IN_FORCE: OnceLock<DumpOptions> = OnceLock::new();

/// Puts the options in force as soon as the VM is initialised; the first ones of a process stay. Called by one
/// thread at a time.
///
/// # Errors
/// The reason, in one line, if that is known at once; what goes wrong later is logged.
pub fn arm(vm: Vm, options: &DumpOptions, is_attached: bool) -> Result<(), String> {
    if !options.has_trigger() {
        return Ok(());
    }
    match IN_FORCE.get() {
        Some(present) if present == options => return Ok(()),
        Some(_) => {
            return Err("crashstacks=, dumpsignal= and dumpcpu= of an earlier start stay in force until the process ends; \
                        restart the program to change them"
                .to_owned());
        }
        None => {}
    }
    for pattern in [&options.crash, &options.file].into_iter().flatten() {
        check_folder(pattern)?;
    }
    let wanted = options.clone();
    let begin = move || {
        if let Err(reason) = begin(vm, wanted) {
            log::print(&format!("stacks will not be dumped: {reason}"));
        }
    };
    initialised::when(vm, is_attached, begin).map_err(|error| error.to_string())?;
    // Always empty here: starts are claimed one at a time.
    let _ = IN_FORCE.set(options.clone());
    Ok(())
}

/// Checks that a file can be made where the pattern points.
fn check_folder(pattern: &str) -> Result<(), String> {
    if pattern == STANDARD_ERROR {
        return Ok(());
    }
    let path =
        file_name::path(pattern).ok_or_else(|| format!("{pattern} names a variable that is not set"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK)
        .map_err(|error| format!("stacks cannot be written to {}: {}", path.display(), error.desc()))
}

fn begin(vm: Vm, options: DumpOptions) -> Result<(), String> {
    let dumper = StackDumper::new(vm)?;
    if let Err(error) = thread_names::follow(vm) {
        tracing::info!("dumps have the kernel's names of threads: {error}");
    }
    if let Some(signal) = options.signal.filter(|&signal| install::has_handler(signal)) {
        return Err(format!(
            "signal {signal} is that of the profile's timers; choose another one for dumpsignal="
        ));
    }
    let requests = Requests::new(options.signal.unwrap_or(0), dumper.block());
    let requests: &'static Requests = Box::leak(Box::new(requests.map_err(|error| error.to_string())?));
    let is_for_crash = options.crash.is_some();
    let mut thread = DumpThread { dumper, options, requests, readings: VecDeque::new(), last: None };
    // The new thread inherits the mask, so that no signal of the host lands on it.
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))
        .map_err(|error| error.to_string())?;
    let started = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(move || thread.run());
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(|error| error.to_string())?;
    started.map_err(|error| error.to_string())?;
    requests.install(is_for_crash).map_err(|error| error.to_string())
}

/// The thread that writes stacks.
struct DumpThread {
    dumper: StackDumper,
    options: DumpOptions,
    requests: &'static Requests,
    /// The last readings of the process's CPU clock, the oldest first.
    readings: VecDeque<(Instant, u64)>,
    /// When CPU time was the reason of a dump for the last time.
    last: Option<Instant>,
}

impl DumpThread {
    fn run(&mut self) {
        self.requests.written_here();
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if let Some(dying) = self.requests.dying() {
                guard::entry_point((), || self.dump_of_death(&dying));
                self.requests.dumped();
                return;
            }
            if self.requests.take_arrived() {
                let signal = self.options.signal.unwrap_or(0);
                self.dump(&format!("signal {signal}"));
            }
            if let Some(limit) = self.options.cpu
                && let Some(percent) = self.exceeded(limit)
            {
                self.dump(&format!("CPU time {percent:.0} % of a processor over {:?}", limit.time));
            }
        }
    }

    /// Sleeps until a handler requests a dump, or the next look at the CPU clock is due; returns how often one was
    /// asked for.
    fn wait(&self, seen: u32) -> u32 {
        let pause = self.options.cpu.map(|limit| (limit.time / LOOKS as u32).max(Duration::from_millis(1)));
        self.requests.wait(seen, pause)
    }

    /// Returns the CPU time over the time of the limit in percent of a processor, if it is more than the limit and
    /// no dump was made for that recently.
    fn exceeded(&mut self, limit: CpuLimit) -> Option<f64> {
        let now = Instant::now();
        self.readings.push_back((now, process_cpu_nanos()));
        // The newest reading that is old enough.
        while self.readings.get(1).is_some_and(|(time, _)| now.duration_since(*time) >= limit.time) {
            self.readings.pop_front();
        }
        let (begin, cpu_before) = *self.readings.front()?;
        let elapsed = now.duration_since(begin);
        if elapsed < limit.time || self.last.is_some_and(|last| now.duration_since(last) < DISTANCE) {
            return None;
        }
        let (_, cpu_now) = *self.readings.back()?;
        let percent = cpu_now.saturating_sub(cpu_before) as f64 / elapsed.as_nanos() as f64 * 100.0;
        let is_exceeded = percent > f64::from(limit.percent);
        if is_exceeded {
            self.last = Some(now);
        }
        is_exceeded.then_some(percent)
    }

    fn dump(&self, reason: &str) {
        let pattern = self.options.file.as_deref().unwrap_or(DumpOptions::DEFAULT_FILE);
        self.write(pattern, reason, None);
    }

    fn dump_of_death(&self, dying: &Dying) {
        let Some(pattern) = self.options.crash.as_deref() else { return };
        let own = std::process::id().cast_signed();
        let mut reason = format!("SIGABRT in thread {}", dying.tid);
        if dying.sender != own {
            reason.push_str(&format!(", sent by process {}", dying.sender));
        }
        self.write(pattern, &reason, Some(dying));
    }

    /// Appends a dump to the file, or to standard error if there is none.
    fn write(&self, pattern: &str, reason: &str, dying: Option<&Dying>) {
        let path = file_name::path(pattern).filter(|_| pattern != STANDARD_ERROR);
        let mode = Readers::Owner.mode();
        let open = |path: &PathBuf| OpenOptions::new().create(true).append(true).mode(mode).open(path);
        let mut out: Box<dyn Write> = match path.as_ref().map(open) {
            None => Box::new(io::stderr()),
            Some(Ok(file)) => Box::new(file),
            Some(Err(error)) => {
                log::print(&format!("cannot write stacks to {pattern}: {error}; they follow here"));
                Box::new(io::stderr())
            }
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = format!("Stacks of process {} at {}: {reason}\n\n", std::process::id(), now.as_secs());
        let written = out.write_all(head.as_bytes()).map_err(|error| error.to_string());
        let dumped = written.and_then(|()| self.dumper.dump(dying, &thread_names::known(), &mut *out));
        if let Err(error) = dumped {
            log::print(&format!("the stacks of this process are incomplete: {error}"));
        }
    }
}
