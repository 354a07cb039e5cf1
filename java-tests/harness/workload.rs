//! Configures a workload and runs it with or without the profiler.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::jdk::{Jdk, crate_folder};
use crate::process::{self, Finished};
use crate::processors::{pending_signals, pin_process};
use crate::run::Run;
use crate::{binaries, java_classes, truth, visible};

/// JVM option that lets a virtual thread read the CPU clock of its carrier.
pub const CARRIER_CLOCK_OPTION: &str = "--add-opens=java.management/sun.management=ALL-UNNAMED";

/// A workload with its arguments and the options of the JVM and the profiler.
#[derive(Debug, Clone)]
pub struct Workload {
    /// A class of `workloads`; a real program has its own among the arguments.
    class: Option<&'static str>,
    arguments: Vec<String>,
    jvm_options: Vec<String>,
    record_options: Vec<String>,
    kill_after_cpu_ns: Option<u64>,
    pin_after_cpu_ns: Option<u64>,
    more_pending_signals: Option<u64>,
    file_size: Option<u64>,
    launcher: Vec<String>,
}

impl Workload {
    /// Creates the workload `workloads/CLASS.java`.
    pub fn new(class: &'static str) -> Self {
        Self { class: Some(class), ..Self::with_arguments(Vec::new()) }
    }

    /// Creates a workload that burns for some seconds of CPU time and until the file `end_file` exists.
    pub fn burner(seconds: u32, end_file: &Path) -> Self {
        Self::new("Burner").argument(seconds).argument(end_file.display())
    }

    /// Creates the real program `name` of `workloads/programs/programs.sh`, with a twentieth of its work; `scratch` is
    /// for its files.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn program(name: &str, scratch: &Path) -> Self {
        const ARGUMENTS: &str =
            r#". "$0"; program_arguments "$1" short "$2"; printf '%s\0' "${program_command[@]}""#;
        let script = crate_folder().join("workloads/programs/programs.sh");
        let output = Command::new("bash")
            .args(["-euc", ARGUMENTS])
            .arg(script)
            .arg(name)
            .arg(scratch)
            .output()
            .expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("arguments in UTF-8");
        Self::with_arguments(text.split_terminator('\0').map(str::to_owned).collect())
    }

    fn with_arguments(arguments: Vec<String>) -> Self {
        Self {
            class: None,
            arguments,
            jvm_options: Vec::new(),
            record_options: Vec::new(),
            kill_after_cpu_ns: None,
            pin_after_cpu_ns: None,
            more_pending_signals: None,
            file_size: None,
            launcher: Vec::new(),
        }
    }

    /// Adds an argument of the workload; by convention the first is its CPU time in seconds.
    pub fn argument(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string());
        self
    }

    /// Adds an option of the JVM.
    pub fn jvm_option(mut self, option: &str) -> Self {
        self.jvm_options.push(option.to_owned());
        self
    }

    /// Adds an option of `tickwalk record`.
    pub fn record_option(mut self, option: &str) -> Self {
        self.record_options.push(option.to_owned());
        self
    }

    /// Kills the JVM with SIGKILL when the workload reports this much CPU time.
    pub fn kill_after_cpu_ns(mut self, nanos: u64) -> Self {
        self.kill_after_cpu_ns = Some(nanos);
        self
    }

    /// Restricts the JVM to one processor when the workload reports this much CPU time.
    pub fn pin_after_cpu_ns(mut self, nanos: u64) -> Self {
        self.pin_after_cpu_ns = Some(nanos);
        self
    }

    /// Limits pending signals, and thereby timers, to this many more than the user's processes hold at the start.
    pub fn limit_pending_signals(mut self, more: u64) -> Self {
        self.more_pending_signals = Some(more);
        self
    }

    /// Limits the size of files that `tickwalk record` and the program may write.
    pub fn limit_file_size(mut self, bytes: u64) -> Self {
        self.file_size = Some(bytes);
        self
    }

    /// Starts the JVM through another command, which is followed by that of the JVM; without `tickwalk record` only.
    pub fn launcher(mut self, command: &[&str]) -> Self {
        self.launcher = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Returns the command that starts the JVM, without its arguments.
    fn java(&self, jdk: &Jdk) -> Command {
        let mut words = self.launcher.iter();
        let Some(program) = words.next() else { return Command::new(jdk.java()) };
        let mut command = Command::new(program);
        command.args(words).arg(jdk.java());
        command
    }

    /// Runs the workload without the profiler.
    pub fn run_unprofiled(&self, jdk: &Jdk) -> Finished {
        let mut command = self.java(jdk);
        command.args(self.java_arguments(None));
        self.finish(command)
    }

    /// Runs the workload without the profiler and calls `on_progress` with its process id and the CPU time in
    /// nanoseconds each time that it reports a CPU time. Works for workloads that report their process id.
    pub fn run_unprofiled_watched(&self, jdk: &Jdk, mut on_progress: impl FnMut(i32, u64)) -> Finished {
        let mut command = self.java(jdk);
        command.args(self.java_arguments(None));
        run_watched(command, |pid, cpu_ns| on_progress(pid.as_raw(), cpu_ns))
    }

    /// Runs the workload with the agent alone (`-agentpath`) and this option string.
    pub fn run_with_agent(&self, jdk: &Jdk, options: &str) -> Finished {
        let mut command = self.java(jdk);
        command.args(self.java_arguments(Some(options)));
        self.finish(command)
    }

    /// Like [`run_with_agent`](Self::run_with_agent); calls `on_progress` with each CPU time in nanoseconds that a
    /// workload reports which also reports its process id.
    pub fn run_with_agent_watched(
        &self,
        jdk: &Jdk,
        options: &str,
        mut on_progress: impl FnMut(u64),
    ) -> Finished {
        self.run_with_agent_watched_by(jdk, options, |_, cpu_ns| on_progress(cpu_ns))
    }

    /// Like [`run_with_agent_watched`](Self::run_with_agent_watched); `on_progress` gets the process id as well.
    pub fn run_with_agent_watched_by(
        &self,
        jdk: &Jdk,
        options: &str,
        mut on_progress: impl FnMut(i32, u64),
    ) -> Finished {
        let mut command = self.java(jdk);
        command.args(self.java_arguments(Some(options)));
        run_watched(command, |pid, cpu_ns| on_progress(pid.as_raw(), cpu_ns))
    }

    /// Runs the workload under `tickwalk record`.
    pub fn record(&self, jdk: &Jdk) -> Run {
        let folder = scratch();
        let recording = folder.path().join("recording.tickwalk");
        let summary = folder.path().join("summary.json");
        let pending =
            self.more_pending_signals.map(|more| format!("--sigpending={}", pending_signals() + more));
        let file_size = self.file_size.map(|bytes| format!("--fsize={bytes}"));
        let limits: Vec<String> = pending.into_iter().chain(file_size).collect();
        let mut command =
            Command::new(if limits.is_empty() { binaries::tickwalk() } else { "prlimit".into() });
        if !limits.is_empty() {
            command.args(limits).arg(binaries::tickwalk());
        }
        command.arg("record").arg("--summary").arg(&summary).arg("-o").arg(&recording);
        command.arg("--flamegraph").arg(folder.path().join("flamegraph.html"));
        command.args(&self.record_options);
        command.arg("--").arg(jdk.java()).args(self.java_arguments(None));
        let finished = self.finish(command);
        Run::new(finished, recording, Some(&summary), folder)
    }

    /// Runs the workload with the agent alone, which writes a recording file.
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
        if let Some(class) = self.class {
            // A launcher may give the JVM another user or another file system.
            let classes = match self.launcher.is_empty() {
                true => java_classes::classes().to_owned(),
                false => visible::classes(),
            };
            arguments.extend(["-cp".into(), classes.into(), class.into()]);
        }
        arguments.extend(self.arguments.iter().map(OsString::from));
        arguments
    }

    fn finish(&self, command: Command) -> Finished {
        let (mut killed, mut pinned) = (false, false);
        run_watched(command, |pid, cpu_ns| {
            if self.pin_after_cpu_ns.is_some_and(|limit| cpu_ns >= limit) && !pinned {
                pin_process(pid);
                pinned = true;
            }
            if self.kill_after_cpu_ns.is_some_and(|limit| cpu_ns >= limit) && !killed {
                kill(pid, Signal::SIGKILL).expect("the JVM is running");
                killed = true;
            }
        })
    }
}

/// Runs a workload and calls `on_progress` with its process id and each CPU time that it reports.
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

fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("tickwalk-java-").tempdir().expect("a writable temporary folder")
}

/// Creates the file that a workload such as `Burner` waits for before it ends.
///
/// # Panics
/// If the file cannot be created.
pub fn create_end_file(path: &Path) {
    std::fs::write(path, "").expect("a writable folder");
}
