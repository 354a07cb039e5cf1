//! A `tickwalk collect` process that tests start, kill and start again.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::starvation::Starved;
use crate::{Summary, binaries, process};

/// A running collector; dropping it kills it.
pub struct CollectorProcess {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl CollectorProcess {
    /// Starts one that listens on `address` and records into `directory`, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready; shows what it said.
    pub fn start(address: &str, directory: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(binaries::tickwalk());
        command.args(["collect", "--listen", address, "--dir"]).arg(directory).args(more);
        Self::ready(command).0
    }

    /// Starts one that listens on `address` and stores into `directory`; also the address of its HTTP server.
    ///
    /// # Panics
    /// If it does not become ready; shows what it said.
    pub fn start_store(address: &str, directory: &Path) -> (Self, String) {
        Self::start_store_with(address, directory, &[], &[])
    }

    /// The same with further arguments and environment variables.
    ///
    /// # Panics
    /// If it does not become ready; shows what it said.
    pub fn start_store_with(
        address: &str,
        directory: &Path,
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> (Self, String) {
        let mut command = Command::new(binaries::tickwalk());
        command.envs(variables.iter().copied());
        Self::run_store(command, address, directory, more)
    }

    /// As [`start_store`](Self::start_store), on a file system of its own of `bytes`, which is mounted on `disk` and
    /// holds the store. `None` if processes here may not have mounts of their own.
    ///
    /// # Panics
    /// As [`start_store`](Self::start_store).
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
        Some(Self::run_store(command, address, &disk.join("store"), &[]))
    }

    fn run_store(mut command: Command, address: &str, directory: &Path, more: &[&str]) -> (Self, String) {
        command.args(["collect", "--listen", address, "--http", "127.0.0.1:0", "--store"]).arg(directory);
        command.args(more).env("NO_COLOR", "1");
        let (collector, said) = Self::ready(command);
        let http = said.split("http=127.0.0.1:").nth(1).expect("the address of the HTTP server");
        let port: String = http.chars().take_while(char::is_ascii_digit).collect();
        (collector, format!("http://127.0.0.1:{port}"))
    }

    fn ready(mut command: Command) -> (Self, String) {
        command.env("TICKWALK_LOG", "info").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the collector starts");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("a piped stderr"));
        while !said.contains("collector is ready") {
            let length = lines.read_line(&mut said).expect("text");
            assert!(length > 0, "the collector ended: {said}");
        }
        // Whoever writes to a pipe nobody reads would stop one day.
        let later = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&later);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut said = collected.lock().expect("nobody panics with it");
                said.push_str(&line);
                said.push('\n');
            }
        });
        (Self { child, said: later }, said)
    }

    /// What it has said since it was ready.
    ///
    /// # Panics
    /// If a thread that held it panicked.
    pub fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// How many sessions it has begun, or found again, since it was ready.
    ///
    /// # Panics
    /// As [`said`](Self::said).
    pub fn sessions(&self) -> usize {
        self.said().matches("session began").count()
    }

    /// `path` as the collector sees it, which may have mounts of its own.
    pub fn sees(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Ends it as a crash would: with SIGKILL.
    pub fn crash(mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("a child of ours");
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// If it fails.
    pub fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("it still runs");
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "the collector ended with {status}");
    }
}

impl Drop for CollectorProcess {
    fn drop(&mut self) {
        // It may have ended already, and then both fail.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The recordings in a collector's directory.
pub fn recordings(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the collector's directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "tickwalk")).collect()
}

/// A recording in figures; `starved` is how the machine kept its program from running.
///
/// # Panics
/// If it cannot be read.
pub fn summary_of(recording: &Path, starved: &Starved) -> Summary {
    let mut command = Command::new(binaries::tickwalk());
    command.args(["top", "--json"]).arg(recording);
    let finished = process::run(command, |_| ());
    assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
    let summary: Summary = serde_json::from_str(&finished.stdout).expect("a summary as agreed");
    Summary { starved: starved.clone(), ..summary }
}
