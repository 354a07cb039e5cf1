//! One workload, run with or without a profiler, and what came out of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::collector::summary_of;
use crate::process::{self, Finished};
use crate::stacks::Stacks;
use crate::starvation::Starved;
use crate::summary::Summary;
use crate::tolerance::{binomial_tolerance, stretch_tolerance_ns};
use crate::truth::{self, Truth};
use crate::{Jdk, binaries, workload};

/// Option of the JVM for workloads that read their carrier's clock, which is closed to virtual threads but by this door.
pub const CARRIER_CLOCK: &str = "--add-opens=java.management/sun.management=ALL-UNNAMED";

/// A workload about to run: its arguments and the options of JVM and profiler.
#[derive(Debug, Clone)]
pub struct Workload {
    class: &'static str,
    arguments: Vec<String>,
    jvm_options: Vec<String>,
    record_options: Vec<String>,
    kill_after_cpu_ns: Option<u64>,
    pin_after_cpu_ns: Option<u64>,
    pending_signals: Option<u64>,
}

impl Workload {
    /// The workload of this name in `workloads/`.
    pub fn new(class: &'static str) -> Self {
        Self {
            class,
            arguments: Vec::new(),
            jvm_options: Vec::new(),
            record_options: Vec::new(),
            kill_after_cpu_ns: None,
            pin_after_cpu_ns: None,
            pending_signals: None,
        }
    }

    /// Adds an argument of the workload; the first is its CPU time in seconds.
    pub fn argument(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string());
        self
    }

    /// Adds an option of the JVM.
    pub fn jvm(mut self, option: &str) -> Self {
        self.jvm_options.push(option.to_owned());
        self
    }

    /// Adds an option of `tickwalk record`.
    pub fn record_option(mut self, option: &str) -> Self {
        self.record_options.push(option.to_owned());
        self
    }

    /// Kills the JVM with SIGKILL once the workload has told of this much burnt CPU time.
    pub fn kill_after_cpu_ns(mut self, nanos: u64) -> Self {
        self.kill_after_cpu_ns = Some(nanos);
        self
    }

    /// Leaves the JVM one processor once the workload has told of this much burnt CPU time.
    pub fn pin_after_cpu_ns(mut self, nanos: u64) -> Self {
        self.pin_after_cpu_ns = Some(nanos);
        self
    }

    /// Limits the signals that may be pending, and with them the timers, to this many more than the user has now.
    pub fn pending_signals(mut self, more: u64) -> Self {
        self.pending_signals = Some(more);
        self
    }

    /// Runs it without a profiler.
    pub fn run_alone(&self, jdk: &Jdk) -> Finished {
        let mut command = Command::new(jdk.java());
        command.args(self.java_arguments(None));
        self.finish(command)
    }

    /// As [`run_alone`](Self::run_alone); `on_progress` gets its process id and each amount of CPU time, in nanoseconds,
    /// that a workload with a process id in its truth tells of.
    pub fn run_alone_watched(&self, jdk: &Jdk, mut on_progress: impl FnMut(i32, u64)) -> Finished {
        let mut command = Command::new(jdk.java());
        command.args(self.java_arguments(None));
        run_watched(command, |pid, cpu_ns| on_progress(pid.as_raw(), cpu_ns))
    }

    /// Runs it with the bare agent and this option string.
    pub fn run_with_agent(&self, jdk: &Jdk, options: &str) -> Finished {
        let mut command = Command::new(jdk.java());
        command.args(self.java_arguments(Some(options)));
        self.finish(command)
    }

    /// As [`run_with_agent`](Self::run_with_agent); `on_progress` gets each amount of CPU time, in nanoseconds, that a
    /// workload with a process id in its truth tells of.
    pub fn run_with_agent_watched(
        &self,
        jdk: &Jdk,
        options: &str,
        mut on_progress: impl FnMut(u64),
    ) -> Finished {
        let mut command = Command::new(jdk.java());
        command.args(self.java_arguments(Some(options)));
        run_watched(command, |_, cpu_ns| on_progress(cpu_ns))
    }

    /// Runs it under `tickwalk record`.
    pub fn record(&self, jdk: &Jdk) -> Run {
        let folder = scratch();
        let recording = folder.path().join("recording.tickwalk");
        let summary = folder.path().join("summary.json");
        let mut command = match self.pending_signals {
            None => Command::new(binaries::tickwalk()),
            Some(more) => {
                let limit = pending_now() + more;
                let mut command = Command::new("prlimit");
                command.arg(format!("--sigpending={limit}")).arg(binaries::tickwalk());
                command
            }
        };
        command.arg("record").arg("--summary").arg(&summary).arg("-o").arg(&recording);
        command.arg("--flamegraph").arg(folder.path().join("flamegraph.html"));
        command.args(&self.record_options);
        command.arg("--").arg(jdk.java()).args(self.java_arguments(None));
        let finished = self.finish(command);
        Run::new(finished, recording, Some(&summary), folder)
    }

    /// Runs it with the bare agent writing a recording file, no collector involved.
    pub fn record_to_file(&self, jdk: &Jdk, more_options: &str) -> Run {
        let folder = scratch();
        let recording = folder.path().join("recording.tickwalk");
        let separator = if more_options.is_empty() { "" } else { "," };
        let options = format!("mode=cputime,file={}{separator}{more_options}", recording.display());
        let finished = self.run_with_agent(jdk, &options);
        Run::new(finished, recording, None, folder)
    }

    fn java_arguments(&self, agent_options: Option<&str>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        if let Some(options) = agent_options {
            arguments.push(format!("-agentpath:{}={options}", binaries::agent().display()).into());
        }
        arguments.extend(self.jvm_options.iter().map(OsString::from));
        arguments.push("-cp".into());
        arguments.push(workload::classes().into());
        arguments.push(self.class.into());
        arguments.extend(self.arguments.iter().map(OsString::from));
        arguments
    }

    fn finish(&self, command: Command) -> Finished {
        let (mut killed, mut pinned) = (false, false);
        run_watched(command, |pid, cpu_ns| {
            if self.pin_after_cpu_ns.is_some_and(|limit| cpu_ns >= limit) && !pinned {
                pin(pid);
                pinned = true;
            }
            if self.kill_after_cpu_ns.is_some_and(|limit| cpu_ns >= limit) && !killed {
                kill(pid, Signal::SIGKILL).expect("the JVM still runs");
                killed = true;
            }
        })
    }
}

/// Runs a workload; `on_progress` gets its process id and each amount of CPU time it tells of.
fn run_watched(command: Command, mut on_progress: impl FnMut(Pid, u64)) -> Finished {
    let mut pid = None;
    process::run(command, |line| {
        let Some(fields) = truth::parse_line(line) else {
            return;
        };
        let number = |key: &str| fields.get(key).and_then(|text| text.parse::<u64>().ok());
        pid = pid.or_else(|| number("pid"));
        if let (Some(pid), Some(cpu_ns)) = (pid, number("cpu_ns")) {
            on_progress(Pid::from_raw(i32::try_from(pid).expect("a process id")), cpu_ns);
        }
    })
}

/// Restricts all threads of a process to the first processor this one may use.
fn pin(pid: Pid) {
    let first = allowed_processors().into_iter().next().expect("a processor");
    taskset(&["--all-tasks", "--cpu-list", "--pid", &first.to_string(), &pid.to_string()]);
}

/// Restricts one thread to a processor.
pub(crate) fn pin_thread(thread: Pid, processor: u32) {
    taskset(&["--cpu-list", "--pid", &processor.to_string(), &thread.to_string()]);
}

fn taskset(arguments: &[&str]) {
    let outcome = Command::new("taskset").args(arguments).output().expect("taskset, of util-linux");
    assert!(outcome.status.success(), "{outcome:?}");
}

/// Processors that this process may use.
pub(crate) fn allowed_processors() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    let ranges = allowed.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().expect("a number");
        number(first)..=number(last)
    });
    ranges.flatten().collect()
}

/// Signals and timers that the processes of this user hold now, as the limit counts them.
fn pending_now() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let queue = status.lines().find_map(|line| line.strip_prefix("SigQ:")).expect("SigQ");
    queue.trim().split('/').next().and_then(|used| used.parse().ok()).expect("used/limit")
}

fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("tickwalk-java-").tempdir().expect("a temporary folder")
}

/// A workload that ran under the profiler.
#[derive(Debug)]
pub struct Run {
    /// Exit code of the command, as a shell would see it.
    pub exit_code: i32,
    /// Standard output of the command.
    pub stdout: String,
    /// Standard error of the command.
    pub stderr: String,
    /// What the workload says it did.
    pub truth: Truth,
    /// The recording file.
    pub recording: PathBuf,
    /// How the machine kept it from running.
    pub starved: Starved,
    summary: Option<Summary>,
    folder: TempDir,
}

impl Run {
    fn new(finished: Finished, recording: PathBuf, summary: Option<&Path>, folder: TempDir) -> Self {
        let summary = summary.and_then(|path| std::fs::read_to_string(path).ok()).map(|text| {
            let summary: Summary = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("the summary is not as agreed: {error}\n{text}"));
            Summary { starved: finished.starved.clone(), ..summary }
        });
        Self {
            exit_code: finished.exit_code(),
            truth: Truth::parse(&finished.stdout),
            stdout: finished.stdout,
            stderr: finished.stderr,
            recording,
            summary,
            starved: finished.starved,
            folder,
        }
    }

    /// The run in figures.
    ///
    /// # Panics
    /// If no summary was written.
    #[track_caller]
    pub fn summary(&self) -> &Summary {
        self.summary
            .as_ref()
            .unwrap_or_else(|| panic!("no summary; exit {}\n{}", self.exit_code, self.stderr))
    }

    /// The flame graph page.
    pub fn flamegraph(&self) -> PathBuf {
        self.folder.path().join("flamegraph.html")
    }

    /// The stacks in the recording.
    ///
    /// # Panics
    /// If the recording cannot be exported.
    #[track_caller]
    pub fn stacks(&self) -> Stacks {
        Stacks::parse_collapsed(&self.tickwalk(&["export", "--format", "collapsed", "--unit", "ns"]))
    }

    /// As [`Run::stacks`], each stack below the name of its thread.
    ///
    /// # Panics
    /// If the recording cannot be exported.
    #[track_caller]
    pub fn stacks_by_thread(&self) -> Stacks {
        let export = ["export", "--format", "collapsed", "--unit", "ns", "--threads"];
        Stacks::parse_collapsed(&self.tickwalk(&export))
    }

    /// Asserts that the workload ended with this exit code.
    ///
    /// # Panics
    /// If not; shows what it printed.
    #[track_caller]
    pub fn assert_exit_code(&self, expected: i32) {
        assert_eq!(self.exit_code, expected, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
    }

    /// CPU time that has no stack because queues and copies of stacks could not hold it while the machine kept the profiler
    /// from running: nothing where it did not.
    ///
    /// # Panics
    /// If more lacks than that excuses.
    #[track_caller]
    pub fn starved_ns(&self) -> u64 {
        let read;
        let summary = match &self.summary {
            Some(summary) => summary,
            None => {
                read = summary_of(&self.recording, &self.starved);
                &read
            }
        };
        summary.assert_losses();
        let bare = self.stacks().ns_where(|stack| stack.stop.as_deref() == Some("pool_exhausted"));
        let ns = summary.cpu_ns.lost_before_end().cast_unsigned() + bare;
        self.starved.assert_excuses(ns);
        ns
    }

    /// Asserts that what was sampled below `method`, which ran once and without a break, is what it burnt; all of it, but
    /// what [`starved_ns`](Self::starved_ns) says.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_stretch(&self, method: &str, interval_ns: u64) {
        let (truth, sampled) = (self.truth.method_cpu_ns(method), self.stacks().ns_below(method));
        let (bound, starved) = (stretch_tolerance_ns(interval_ns), self.starved_ns());
        assert!(
            sampled <= truth + bound && truth <= sampled + starved + bound,
            "{method}: sampled {sampled}, true {truth}, tolerance {bound}, starved {starved}; {:?}, {:?}, elsewhere {:#?}",
            self.summary().cpu_ns,
            self.summary().stops,
            self.stacks().all.iter().filter(|stack| !stack.has(method)).collect::<Vec<_>>()
        );
    }

    /// Asserts that among all that was sampled below `methods`, each has the share that it burnt by the workload's clock,
    /// give or take `slack`.
    ///
    /// They take turns on the main thread, by lot, so each sample is a draw.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_shares(&self, methods: &[&str], slack: f64) {
        let stacks = self.stacks();
        let truths: Vec<f64> = methods.iter().map(|name| self.truth.method_cpu_ns(name) as f64).collect();
        let sampled: Vec<f64> = methods.iter().map(|name| stacks.ns_below(name) as f64).collect();
        let (all_truth, all_sampled) = (truths.iter().sum::<f64>(), sampled.iter().sum::<f64>());
        let samples = self.summary().thread("main").samples;
        for ((name, truth), sampled) in methods.iter().zip(truths).zip(sampled) {
            let (truth, sampled) = (truth / all_truth, sampled / all_sampled);
            let tolerance = binomial_tolerance(truth, samples) + slack;
            assert!(
                (sampled - truth).abs() <= tolerance,
                "{name}: sampled {sampled}, true {truth}, tolerance {tolerance}"
            );
        }
    }

    /// Runs `tickwalk VERB... RECORDING` and gives its standard output.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn tickwalk(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binaries::tickwalk());
        command.args(arguments).arg(&self.recording);
        let finished = process::run(command, |_| ());
        assert_eq!(finished.exit_code(), 0, "tickwalk {arguments:?}: {}", finished.stderr);
        finished.stdout
    }
}
