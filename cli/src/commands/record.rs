//! `tickwalk record`: runs a program under the profiler and reports.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use nix::sys::signal::Signal;

use super::profiling::{Results, Sampling};
use crate::agent_library;
use crate::launch::{AgentOptions, Launch};
use crate::live::{Live, Terminal};
use crate::output;
use crate::signals::Signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk record -- java -jar app.jar
  tickwalk record --interval 1ms -o app.tickwalk -- java -cp classes com.example.Main
  tickwalk record --interval 1ms --budget 1% -- java -jar app.jar
  tickwalk record -o app.jfr -- java -jar app.jar         (and app.tickwalk)
  tickwalk record --summary app.json -- ./gradlew run     (other programs get JAVA_TOOL_OPTIONS)

A program that is not java gets the agent in JAVA_TOOL_OPTIONS, which all JVMs read that it starts. The report shows the one
that used most CPU time; the others are listed, each with a recording of its own. --follow does the same for java.

On a terminal a line shows every ten seconds that samples arrive.

The exit code is that of the program, 128 + N if signal N ended it, 127 if there is no such program.
A recording of the same name is kept as FILE.1.")]
pub struct Arguments {
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    results: Results,
    /// Profile the JVMs that the program starts as well
    #[arg(long)]
    follow: bool,
    /// Program to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let library = agent_library::find(arguments.sampling.agent.as_deref())?;
    arguments.results.check()?;
    // Threads inherit the mask, so the signals are blocked before the first one starts.
    let signals =
        Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCHLD])?;
    let directory = output::temporary_directory()?;
    let socket = directory.path().join("collector");
    let server = arguments.results.receive(&socket)?;

    let Arguments { sampling, results, follow, command } = arguments;
    let options =
        AgentOptions { library, socket, interval: sampling.interval.clone(), more: &sampling.more() };
    let launch = Launch::new(&command, &options, follow)?;
    let live = Live::start(server.stop_handle(), Terminal::Shared);
    let code = launch.run(&signals)?;
    drop(live);
    let sessions = server.stop();

    if sessions.is_empty() {
        eprintln!(
            "tickwalk: the JVM never connected to the profiler, so nothing was recorded ({}); \
            read the agent's messages above and run 'tickwalk doctor'",
            launch.how_the_agent_was_passed()
        );
    }
    results.report(sessions)?;
    Ok(code)
}
