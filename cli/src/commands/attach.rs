//! `tickwalk attach`: profiles a running JVM and reports.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use collector::ingest::Server;
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::list;
use super::profiling::{Results, Sampling};
use crate::agent_library;
use crate::jvm::agent;
use crate::jvm::attach::Jvm;
use crate::jvm::errors::AttachError;
use crate::jvm::workplace::Workplace;
use crate::launch::AgentOptions;
use crate::live::{Live, Terminal};
use crate::option_values::Time;
use crate::output;
use crate::signals::Signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk list                                    the JVMs of this machine
  tickwalk attach --duration 30s 4321
  tickwalk attach --interval 1ms -o app.tickwalk $(pgrep -f app.jar)

Without a duration, the profile ends with the program or on Ctrl-C; the program itself runs on.
A JVM can be profiled any number of times, one profile at a time; 'tickwalk stop PID' ends it from elsewhere, and this
command then reports. If this command is killed, the agent ends the profile 10 s later.")]
pub struct Arguments {
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    results: Results,
    /// Duration of the profile, such as 30s or 5m [default: until the program ends or Ctrl-C]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Time>,
    /// End the running profile of the JVM, however it was started, and exit; 'tickwalk stop' shows it as well
    #[arg(long, conflicts_with = "duration")]
    stop: bool,
    /// Process id of the JVM; without it, list the JVMs that can be profiled
    #[arg(value_name = "PID", required_if_eq("stop", "true"))]
    pid: Option<i32>,
}

/// Cause of the end of the wait: the end of the program, of the profile, or a signal or the time limit.
enum WaitEnd {
    Program,
    Profile,
    SignalOrTimeout,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { sampling, results, duration, stop, pid } = arguments;
    let Some(pid) = pid else {
        return list::run(&list::Arguments::default());
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

    let workplace = Workplace::for_socket(jvm.process(), jvm.owner());
    let workplace = workplace.map_err(|error| AttachError::NoDirectory(pid, error))?;
    let (listener, socket) = workplace.listen("collector").context("cannot make a socket for the JVM")?;
    let server = results.receive_on(listener, &socket)?;
    let mut more = sampling.more();
    // With this option the agent returns an error code if it cannot start, besides a line on the JVM's standard error.
    more.push("strict".to_owned());
    let options = AgentOptions { library, socket, interval: sampling.interval.clone(), more: &more };
    let library = agent::start(&jvm, &options.library, &options.text()?)?;
    match duration {
        Some(Time(time)) => eprintln!("tickwalk: profiling JVM {pid} for {} s", time.as_secs()),
        None => eprintln!("tickwalk: profiling JVM {pid} until it ends; Ctrl-C ends the profile only"),
    }
    let live = Live::start(server.stop_handle(), Terminal::Alone);
    let end = wait(&signals, &process, &server, duration.map(|Time(time)| time))?;
    drop(live);
    match end {
        WaitEnd::Program => {}
        WaitEnd::Profile => eprintln!("tickwalk: the profile of JVM {pid} was ended by another command"),
        WaitEnd::SignalOrTimeout => match jvm.load(&library, STOP) {
            Ok(()) | Err(AttachError::NotProfiled(_)) => {}
            Err(error) => eprintln!(
                "tickwalk: cannot end the profile cleanly, its last samples may be missing: {error}"
            ),
        },
    }

    let sessions = server.stop();
    if sessions.is_empty() {
        eprintln!(
            "tickwalk: the agent never connected, so nothing was recorded; read the standard error of JVM {pid} \
            and run 'tickwalk doctor'"
        );
        return Ok(ExitCode::FAILURE);
    }
    results.report(sessions)?;
    Ok(ExitCode::SUCCESS)
}

/// Option that ends the agent's profile.
const STOP: &str = "stop";

/// Ends the profile of a JVM, whichever copy of the agent runs it.
fn end_profile(pid: i32) -> anyhow::Result<ExitCode> {
    agent::stop(&Jvm::find(pid)?)?;
    eprintln!("tickwalk: the profile of JVM {pid} has ended");
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of the program or of the profile, a signal, or the end of `duration`.
fn wait(
    signals: &Signals,
    process: &rustix::fd::OwnedFd,
    server: &Server,
    duration: Option<Duration>,
) -> anyhow::Result<WaitEnd> {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).try_into());
    let left = left.transpose().context("the duration is too long")?;
    let (signal, session_ended) = (signals.descriptor(), server.session_ended());
    let mut events = [
        PollFd::new(process, PollFlags::IN),
        PollFd::new(&session_ended, PollFlags::IN),
        PollFd::new(&signal, PollFlags::IN),
    ];
    poll(&mut events, left.as_ref()).context("cannot wait")?;
    let [program, profile, _] = events.map(|event| !event.revents().is_empty());
    Ok(match (program, profile) {
        (true, _) => WaitEnd::Program,
        (_, true) => WaitEnd::Profile,
        _ => WaitEnd::SignalOrTimeout,
    })
}
