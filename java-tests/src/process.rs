//! Runs a child process to its end with its output collected and a bound on how long it may take.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::starvation::{Starvation, Starved};

/// A child still running after this long hangs; the longest workload takes well below 30 s on a machine of its own, and
/// one that is ten times slower is waited for.
const PATIENCE: Duration = Duration::from_secs(900);

/// A process that has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
    /// How the machine kept it from running.
    pub starved: Starved,
}

impl Finished {
    /// Exit code as a shell would see it: 128 + N after death by signal N.
    pub fn exit_code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// Runs `command` to its end; `on_line` sees each line of its standard output at once.
///
/// # Panics
/// If the command cannot be started, or does not end in [`PATIENCE`] (it is killed then).
pub fn run(mut command: Command, mut on_line: impl FnMut(&str)) -> Finished {
    // JVM options from outside would change what is measured and print lines of their own.
    for variable in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "TICKWALK_LOG"] {
        command.env_remove(variable);
    }
    // A process group of its own, so that a hanging JVM below `tickwalk record` can be ended with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let starvation = Starvation::watch();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    let mut stderr_pipe = child.stderr.take().expect("a piped stderr");
    let stdout_pipe = child.stdout.take().expect("a piped stdout");

    let (ended, watch) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hangs = matches!(watch.recv_timeout(PATIENCE), Err(RecvTimeoutError::Timeout));
        if hangs {
            // It may have ended just now; then there is nothing to kill.
            let _ = killpg(group, Signal::SIGKILL);
        }
        hangs
    });
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stderr_pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });

    let mut stdout = String::new();
    for line in BufReader::new(stdout_pipe).split(b'\n') {
        let Ok(bytes) = line else { break };
        let line = String::from_utf8_lossy(&bytes);
        on_line(&line);
        stdout.push_str(&line);
        stdout.push('\n');
    }
    let status = child.wait().expect("waiting for a child of ours");
    drop(ended);
    let starved = starvation.end();
    let stderr = errors.join().expect("the stderr reader");
    let hung = watchdog.join().expect("the watchdog");
    assert!(!hung, "{command:?} did not end within {PATIENCE:?}\nstdout:\n{stdout}\nstderr:\n{stderr}");
    Finished { status, stdout, stderr, starved }
}
