//! `tickwalk attach`: profiles a running JVM and reports.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use super::attachment::{Attachment, WaitEnd};
use super::list;
use super::profiling::{Results, Sampling};
use crate::commands::live::{Live, Terminal};
use crate::jvm::agent;
use crate::jvm::attach::Jvm;
use crate::jvm::target::Target;
use crate::options::values::Time;
use crate::output::tell;

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
    /// End the running profile of the JVM, however it was started, and exit; 'tickwalk stop' also shows it
    #[arg(long, conflicts_with = "duration")]
    stop: bool,
    /// End the profile at the end of standard input, as 'tickwalk record --ssh' needs on the other machine
    #[arg(long, hide = true)]
    until_input_ends: bool,
    /// Process id of the JVM, or a part of its command such as the main class or jar; without it, list the JVMs
    #[arg(value_name = "PID|NAME", required_if_eq("stop", "true"))]
    jvm: Option<Target>,
}

impl Arguments {
    /// Returns the arguments for a profile of JVM `pid`.
    pub fn of(sampling: Sampling, results: Results, duration: Option<Time>, jvm: Target) -> Self {
        Arguments { sampling, results, duration, stop: false, until_input_ends: false, jvm: Some(jvm) }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { sampling, results, duration: time, stop, until_input_ends, jvm } = arguments;
    let Some(jvm) = jvm else {
        return list::run(&list::Arguments::default());
    };
    let pid = jvm.pid()?;
    if stop {
        return end_profile(pid);
    }
    results.check()?;
    let mut attachment = Attachment::begin(pid, &sampling, results.recording()?)?;
    if until_input_ends {
        attachment.end_with_input();
    }
    match &time {
        Some(time) => tell!("tickwalk: profiling JVM {pid} for {time}"),
        None => tell!("tickwalk: profiling JVM {pid} until it ends; Ctrl-C ends the profile only"),
    }
    let live = Live::start(attachment.server().stop_handle(), Terminal::Alone);
    let end = attachment.wait(time.map(|Time(time)| Instant::now() + time))?;
    drop(live);
    if end == WaitEnd::Profile {
        tell!("tickwalk: the profile of JVM {pid} was ended by another command");
    }
    let sessions = attachment.finish(end);
    if sessions.is_empty() {
        tell!(
            "tickwalk: the agent never connected, so nothing was recorded; read the standard error of JVM {pid} \
            and run 'tickwalk doctor'"
        );
        return Ok(ExitCode::FAILURE);
    }
    results.report(sessions)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the profile of a JVM, whichever copy of the agent runs it.
fn end_profile(pid: i32) -> anyhow::Result<ExitCode> {
    agent::stop(&Jvm::find(pid)?)?;
    tell!("tickwalk: the profile of JVM {pid} has ended");
    Ok(ExitCode::SUCCESS)
}
