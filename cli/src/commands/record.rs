//! `tickwalk record`: runs a program under the profiler and reports.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use collector::address::Address;
use collector::export::{flamegraph_html, table};
use collector::ingest::{Destination, Limits, Server, SessionReport};
use collector::query::top::Order;
use collector::summary::Summary;
use nix::sys::signal::Signal;

use super::{read_profile, title};
use crate::agent_library;
use crate::launch::{AgentOptions, Interval, Launch};
use crate::output;
use crate::signals::Signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk record -- java -jar app.jar
  tickwalk record --interval 1ms -o app.tickwalk -- java -cp classes com.example.Main
  tickwalk record --interval 1ms --budget 1% -- java -jar app.jar
  tickwalk record --summary app.json -- ./gradlew run     (other programs get JAVA_TOOL_OPTIONS)

The exit code is that of the program, 128 + N if signal N ended it.")]
pub struct Arguments {
    /// Recording to write
    #[arg(short, long, value_name = "FILE", default_value = "recording.tickwalk")]
    output: PathBuf,
    /// Also write the account of CPU time as JSON
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Flame graph to write [default: the recording's name with .html]
    #[arg(long, value_name = "FILE")]
    flamegraph: Option<PathBuf>,
    /// CPU time between two samples of a thread; the kernel's tick is the practical minimum
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    interval: Interval,
    /// Samples per second of the whole machine, such as 500/s, instead of an interval
    #[arg(long, value_name = "N/s", value_parser = rate, conflicts_with = "interval")]
    rate: Option<String>,
    /// Most CPU time the profiler may take, in percent of the program's, such as 1%; samples become fewer for it
    #[arg(long, value_name = "PERCENT", value_parser = budget)]
    budget: Option<String>,
    /// Agent library [default: TICKWALK_AGENT, or libtickwalk.so near this program]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Further option for the agent, can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    agent_option: Vec<String>,
    /// Methods shown in each table
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,
    /// Program to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let library = agent_library::find(arguments.agent.as_deref())?;
    output::check_directory(&arguments.output)?;
    // Blocked before there are threads, so that these signals wait for this one.
    let signals =
        Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCHLD])?;
    let directory =
        tempfile::Builder::new().prefix("tickwalk").tempdir().context("no temporary directory")?;
    let socket = directory.path().join("collector");
    let destination = Destination::File(arguments.output.clone());
    let server = Server::start(&Address::Unix(socket.clone()), destination, Limits::default())
        .with_context(|| format!("cannot listen on {}; set TMPDIR to a short path", socket.display()))?;

    // A later option overrides an earlier one, here the interval.
    let mut more = arguments.agent_option.clone();
    more.extend(arguments.rate.iter().map(|rate| format!("rate={rate}")));
    more.extend(arguments.budget.iter().map(|budget| format!("budget={budget}")));
    let options = AgentOptions { library, socket, interval: arguments.interval.clone(), more: &more };
    let launch = Launch::new(&arguments.command, &options)?;
    let code = launch.run(&signals)?;
    let sessions = server.stop();

    match sessions.split_first() {
        None => eprintln!(
            "tickwalk: the JVM never connected to the profiler, so nothing was recorded ({}); \
             look for messages of the agent above, and run 'tickwalk doctor'",
            launch.how_the_agent_was_passed()
        ),
        Some((first, others)) => report(&arguments, first, others)?,
    }
    Ok(code)
}

/// Checks the form; what range makes sense depends on the processors, and is the agent's to say.
fn rate(text: &str) -> Result<String, &'static str> {
    let number = text.strip_suffix("/s").and_then(|number| number.parse::<u64>().ok());
    match number {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("write samples per second, for example 500/s"),
    }
}

/// Checks the form; the agent knows the details.
fn budget(text: &str) -> Result<String, &'static str> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match number {
        Some(0.1..=50.0) => Ok(text.to_owned()),
        _ => Err("write a share of CPU time from 0.1% to 50%, for example 1%"),
    }
}

fn report(arguments: &Arguments, session: &SessionReport, others: &[SessionReport]) -> anyhow::Result<()> {
    let profile = read_profile(&session.path)?;
    let orders = [Order::SelfTime, Order::TotalTime];
    eprintln!("\ntickwalk: {}", table::report(&profile, &orders, arguments.top));

    let page = arguments.flamegraph.clone().unwrap_or_else(|| arguments.output.with_extension("html"));
    output::write_file(&page, |out| flamegraph_html::write(&profile, title(&profile), out))?;
    eprintln!("recording    {}", session.path.display());
    eprintln!("flame graph  {}", page.display());
    if let Some(path) = &arguments.summary {
        write_summary(path, &Summary::new(&profile))?;
        eprintln!("summary      {}", path.display());
    }
    for other in others {
        eprintln!("further JVM  {} (pid {})", other.path.display(), other.hello.pid);
    }
    Ok(())
}

fn write_summary(path: &Path, summary: &Summary) -> anyhow::Result<()> {
    output::write_file(path, |mut out| {
        serde_json::to_writer_pretty(&mut out, summary)?;
        out.write_all(b"\n")
    })
}
