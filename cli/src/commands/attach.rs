//! `tickwalk attach`: profiles a running JVM and reports.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::profiling::{Results, Sampling};
use crate::agent_library;
use crate::jvm_attach::{AttachError, Jvm};
use crate::launch::AgentOptions;
use crate::option_values::Time;
use crate::output;
use crate::signals::Signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk attach                                  list the JVMs
  tickwalk attach --duration 30s 4321
  tickwalk attach --interval 1ms -o app.tickwalk $(pgrep -f app.jar)

Without a duration, the profile ends with the program or on Ctrl-C; the program itself runs on.
A JVM can be profiled any number of times, one profile at a time. --stop ends a profile that no command waits for: of an
agent loaded with -agentpath or jcmd, or of a tickwalk command that was killed.")]
pub struct Arguments {
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    results: Results,
    /// Duration of the profile, such as 30s or 5m [default: until the program ends or Ctrl-C]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Time>,
    /// End the running profile of the JVM, however it was started, and exit
    #[arg(long, conflicts_with = "duration")]
    stop: bool,
    /// Process id of the JVM; without it, list the JVMs that can be profiled
    #[arg(value_name = "PID", required_if_eq("stop", "true"))]
    pid: Option<i32>,
}

/// Cause of the end of the wait: the end of the program, a signal, or the time limit.
enum WaitEnd {
    Program,
    SignalOrTimeout,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { sampling, results, duration, stop, pid } = arguments;
    let Some(pid) = pid else {
        return list();
    };
    if stop {
        return end_profile(pid);
    }
    let library = agent_library::find(sampling.agent.as_deref())?;
    output::check_writable(&results.output)?;
    // Threads inherit the mask, so the signals are blocked before the first one starts.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let jvm = Jvm::find(pid)?;
    let process = Pid::from_raw(pid).context("the process id must be positive")?;
    let process = pidfd_open(process, PidfdFlags::empty()).context("cannot watch the process")?;

    let directory = output::temporary_directory()?;
    let socket = directory.path().join("collector");
    let server = results.receive(&socket)?;
    if jvm.owner() != (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()) {
        // The superuser may attach to the JVM of another user, which needs access to the socket.
        give_socket(directory.path(), &socket, jvm.owner())
            .context("cannot give the socket to the JVM's user")?;
    }
    let mut more = sampling.more();
    // With this option the agent returns an error code if it cannot start, besides a line on the JVM's standard error.
    more.push("strict".to_owned());
    let options = AgentOptions { library, socket, interval: sampling.interval.clone(), more: &more };
    let (library, options) = options.parts()?;
    jvm.load(&library, &options)?;
    match duration {
        Some(Time(time)) => eprintln!("tickwalk: profiling JVM {pid} for {} s", time.as_secs()),
        None => eprintln!("tickwalk: profiling JVM {pid} until it ends; Ctrl-C ends the profile only"),
    }
    if let WaitEnd::SignalOrTimeout = wait(&signals, &process, duration.map(|Time(time)| time))?
        && let Err(error) = jvm.stop(&library)
    {
        eprintln!("tickwalk: cannot end the profile cleanly, its last samples may be missing: {error}");
    }

    let sessions = server.stop();
    let Some((first, others)) = sessions.split_first() else {
        eprintln!(
            "tickwalk: the agent never connected, so nothing was recorded; read the standard error of JVM {pid} \
            and run 'tickwalk doctor'"
        );
        return Ok(ExitCode::FAILURE);
    };
    results.report(first, others)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes `socket`, in the private `directory`, usable for `owner` alone.
///
/// The directory keeps its owner: in a directory of theirs the JVM's user could replace the socket by a link, and the
/// superuser would change or remove another file. Others may only pass through it, to a socket that is not theirs.
fn give_socket(directory: &Path, socket: &Path, (user, group): (u32, u32)) -> io::Result<()> {
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    lchown(socket, Some(user), Some(group))?;
    fs::set_permissions(directory, Permissions::from_mode(0o711))
}

/// Characters of a command line that are shown, from its end, which names the program.
const SHOWN_CHARACTERS: usize = 100;

/// Lists the JVMs that can be attached to.
fn list() -> anyhow::Result<ExitCode> {
    let jvms = Jvm::all().context("cannot read /proc")?;
    if jvms.is_empty() {
        eprintln!(
            "tickwalk: no JVM of this user runs in this container; run tickwalk as the JVM's user, in its container"
        );
        return Ok(ExitCode::FAILURE);
    }
    output::print(|out| {
        jvms.iter().try_for_each(|(pid, command)| {
            let cut =
                command.char_indices().rev().nth(SHOWN_CHARACTERS).and_then(|(at, _)| command.get(at..));
            let (dots, shown) = cut.map_or(("", command.as_str()), |end| ("...", end));
            writeln!(out, "{pid:>7}  {dots}{shown}")
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the profile of a JVM, whichever copy of the agent runs it.
fn end_profile(pid: i32) -> anyhow::Result<ExitCode> {
    let jvm = Jvm::find(pid)?;
    let agents = jvm.libraries(agent_library::FILE_NAME)?;
    let outcomes: Vec<_> = agents.iter().map(|library| jvm.stop(library)).collect();
    if !outcomes.iter().any(Result::is_ok) {
        let other = |error: &AttachError| !matches!(error, AttachError::NotProfiled(_));
        let error = outcomes.into_iter().filter_map(Result::err).find(other);
        return Err(error.unwrap_or(AttachError::NotProfiled(pid)).into());
    }
    eprintln!("tickwalk: the profile of JVM {pid} has ended");
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of the program, a signal, or the end of `duration`.
fn wait(
    signals: &Signals,
    process: &rustix::fd::OwnedFd,
    duration: Option<Duration>,
) -> anyhow::Result<WaitEnd> {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).try_into());
    let left = left.transpose().context("the duration is too long")?;
    let signal = signals.descriptor();
    let mut events = [PollFd::new(process, PollFlags::IN), PollFd::new(&signal, PollFlags::IN)];
    poll(&mut events, left.as_ref()).context("cannot wait")?;
    Ok(if events[0].revents().is_empty() { WaitEnd::SignalOrTimeout } else { WaitEnd::Program })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    const NOBODY: u32 = 65_534;

    /// Runs as the superuser only, because nobody else can give a file away.
    #[test]
    fn the_jvms_user_gets_the_socket_and_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: not the superuser");
            return;
        }
        let directory = output::temporary_directory().expect("a directory");
        let socket = directory.path().join("collector");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        give_socket(directory.path(), &socket, (NOBODY, NOBODY)).expect("given");
        assert_eq!(fs::metadata(&socket).expect("a socket").uid(), NOBODY);
        let as_user = |user: u32, command: &str| {
            let mut shell = Command::new("sh");
            let status =
                shell.args(["-c", command]).uid(user).gid(user).current_dir(directory.path()).status();
            status.expect("a shell").success()
        };
        assert!(as_user(NOBODY, "test -w collector"), "the JVM's user may connect");
        assert!(!as_user(1, "test -w collector"), "others may not");
        assert!(!as_user(NOBODY, "mv collector other || ln -s /etc/passwd more"), "nothing can be replaced");
    }
}
