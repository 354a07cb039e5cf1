//! Starts, stops and kills `tickwalk collect` processes.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::binaries;
use crate::command::succeed;
use crate::starvation::Starvation;
use crate::summary::Summary;

/// Longest wait for a line of the log: a collector repeats failed uploads after a minute at most.
const LOG_TIMEOUT: Duration = Duration::from_secs(120);

/// A running collector; it is killed when dropped.
pub struct CollectorProcess {
    child: Child,
    log: Arc<Log>,
}

/// Lines that a collector has logged.
#[derive(Default)]
struct Log {
    text: Mutex<String>,
    changed: Condvar,
}

impl CollectorProcess {
    /// Starts a collector that listens on `address` and writes recordings into `directory`; returns when it is ready.
    ///
    /// # Panics
    /// If it does not become ready; the message holds its log.
    pub fn start(address: &str, directory: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(binaries::tickwalk());
        command.args(["collect", "--listen", address, "--dir"]).arg(directory).args(more);
        Self::spawn(command).0
    }

    /// Starts a collector that listens on `address` and stores into `directory`; returns it and the address of its HTTP
    /// server.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    pub fn start_store(address: &str, directory: &Path) -> (Self, String) {
        Self::start_store_with(address, directory, &[], &[])
    }

    /// Like [`start_store`](Self::start_store), with further arguments and environment variables.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    pub fn start_store_with(
        address: &str,
        directory: &Path,
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> (Self, String) {
        let mut command = Command::new(binaries::tickwalk());
        command.envs(variables.iter().copied());
        Self::spawn_store(command, address, directory, more)
    }

    /// Like [`start_store`](Self::start_store), with the store on a file system of `bytes` that only the collector
    /// sees, mounted on `disk`. Returns `None` if mount namespaces are not permitted on this machine.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    pub fn start_store_on_small_disk(address: &str, disk: &Path, bytes: u64) -> Option<(Self, String)> {
        let mut trial = Command::new("unshare");
        trial.args(["-Urm", "true"]).stderr(Stdio::null());
        if !trial.status().is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = Command::new("unshare");
        let script = r#"mount -t tmpfs -o size="$1" small "$2" && shift 2 && exec "$@""#;
        command.args(["-Urm", "sh", "-c", script, "sh"]).arg(bytes.to_string()).arg(disk);
        command.arg(binaries::tickwalk());
        Some(Self::spawn_store(command, address, &disk.join("store"), &[]))
    }

    fn spawn_store(mut command: Command, address: &str, directory: &Path, more: &[&str]) -> (Self, String) {
        command.args(["collect", "--listen", address, "--http", "127.0.0.1:0", "--store"]).arg(directory);
        command.args(more).env("NO_COLOR", "1");
        let (collector, log) = Self::spawn(command);
        let http =
            log.split("http=127.0.0.1:").nth(1).expect("the collector logs the address of its HTTP server");
        let port: String = http.chars().take_while(char::is_ascii_digit).collect();
        (collector, format!("http://127.0.0.1:{port}"))
    }

    /// Starts the collector and returns it with the log lines up to the one that reports readiness.
    fn spawn(mut command: Command) -> (Self, String) {
        command.env("TICKWALK_LOG", "info").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the collector starts");
        let mut start = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("a piped stderr"));
        while !start.contains("collector is ready") {
            let length = lines.read_line(&mut start).expect("text");
            assert!(length > 0, "the collector ended: {start}");
        }
        // The collector would block when the pipe is full, so a thread reads it to the end.
        // An agent that waits for this address may have been accepted before the collector said that it is ready.
        let log = Arc::new(Log { text: Mutex::new(start.clone()), ..Log::default() });
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut text = writer.text.lock().expect("no thread panics with the lock");
                text.push_str(&line);
                text.push('\n');
                writer.changed.notify_all();
            }
        });
        (Self { child, log }, start)
    }

    /// Returns what the collector has logged.
    ///
    /// # Panics
    /// If a thread panicked while it held the log.
    pub fn log(&self) -> String {
        self.log.text.lock().expect("no thread panics with the lock").clone()
    }

    /// Waits until the collector has logged a line with `text`.
    ///
    /// # Panics
    /// If it does not within two minutes, or as [`log`](Self::log).
    pub fn wait_for_log(&self, text: &str) {
        let log = self.log.text.lock().expect("no thread panics with the lock");
        let lacks = |log: &mut String| !log.contains(text);
        let waited = self.log.changed.wait_timeout_while(log, LOG_TIMEOUT, lacks);
        let (log, result) = waited.expect("no thread panics with the lock");
        assert!(!result.timed_out(), "the collector did not log '{text}': {log}");
    }

    /// Returns how many sessions the collector has begun or resumed since it was ready.
    ///
    /// # Panics
    /// Like [`log`](Self::log).
    pub fn sessions(&self) -> usize {
        self.log().matches("session began").count()
    }

    /// Returns the path by which this process reaches `path` of the collector's mount namespace.
    pub fn path_in_namespace(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Stops the collector from running without ending it: it keeps its connections and answers nothing.
    ///
    /// # Panics
    /// If it has ended.
    pub fn hang(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, Signal::SIGSTOP).expect("the collector is running");
    }

    /// Kills the collector with SIGKILL.
    pub fn crash(mut self) {
        self.child.kill().expect("the collector is running");
        self.child.wait().expect("wait for the collector");
    }

    /// Stops the collector with SIGTERM.
    ///
    /// # Panics
    /// If it does not end successfully.
    pub fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("the collector is running");
        let status = self.child.wait().expect("wait for the collector");
        assert!(status.success(), "the collector ended with {status}");
    }
}

impl Drop for CollectorProcess {
    fn drop(&mut self) {
        // Both fail if the collector has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the recordings in a collector's directory.
pub fn recordings(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the collector's directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "tickwalk")).collect()
}

/// Returns the summary of a recording whose program ran with the delays in `starvation`.
///
/// # Panics
/// If the recording cannot be read.
pub fn summary_of(recording: &Path, starvation: &Starvation) -> Summary {
    let finished = succeed(&["top", "--json", &recording.display().to_string()]);
    let summary: Summary = serde_json::from_str(&finished.stdout).expect("a summary in the expected form");
    Summary { starvation: starvation.clone(), ..summary }
}

/// Runs `tickwalk ARGUMENTS...` and parses its standard output as JSON.
///
/// # Panics
/// If the command fails; the message holds its standard error.
#[track_caller]
pub fn tickwalk_json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeed(arguments).stdout).expect("JSON")
}
