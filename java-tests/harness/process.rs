//! Runs a child process to its end, collects its output, and limits its running time.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::starvation::{Starvation, StarvationMonitor};

/// A child that runs for longer than this hangs: the longest workload takes well below 30 s on an idle machine, and a
/// machine may be ten times slower.
const TIMEOUT: Duration = Duration::from_secs(900);

/// A process that has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Complete standard output.
    pub stdout: String,
    /// Complete standard error.
    pub stderr: String,
    /// Scheduling delays of the machine while it ran.
    pub starvation: Starvation,
}

impl Finished {
    /// Returns the exit code as a shell reports it: 128 + N after death by signal N.
    pub fn exit_code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// Runs `command` to its end and calls `on_line` with each line of its standard output as it arrives.
///
/// # Panics
/// If the command cannot be started, or runs for longer than [`TIMEOUT`]; it is killed then.
pub fn run(mut command: Command, mut on_line: impl FnMut(&str)) -> Finished {
    // Inherited JVM options would change what is measured and print lines of their own.
    for variable in ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "TICKWALK_LOG"] {
        command.env_remove(variable);
    }
    // The process group allows killing a hanging JVM below `tickwalk record` together with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let monitor = StarvationMonitor::start();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    let mut stderr_pipe = child.stderr.take().expect("a piped stderr");
    let stdout_pipe = child.stdout.take().expect("a piped stdout");

    let (end, ended) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let outcome = ended.recv_timeout(TIMEOUT);
        // Without a message the test has failed, and the child would run on.
        if outcome.is_err() {
            // The child may have ended in the meantime; the error is then expected.
            let _ = killpg(group, Signal::SIGKILL);
        }
        outcome == Err(RecvTimeoutError::Timeout)
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
    let status = child.wait().expect("wait for the child");
    // The watchdog has ended after a timeout.
    let _ = end.send(());
    let starvation = monitor.stop();
    let stderr = errors.join().expect("the stderr reader does not panic");
    let hung = watchdog.join().expect("the watchdog does not panic");
    assert!(!hung, "{command:?} did not end within {TIMEOUT:?}\nstdout:\n{stdout}\nstderr:\n{stderr}");
    Finished { status, stdout, stderr, starvation }
}
