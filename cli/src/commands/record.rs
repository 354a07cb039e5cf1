//! `tickwalk record`: runs a program under the profiler and reports.

use std::ffi::OsString;
use std::process::ExitCode;

use agent_options::environment;
use anyhow::{Context, bail};
use clap::Args;
use nix::sys::signal::Signal;
use profile::export::whole_file::{Readers, WholeFile};
use profile::source::recording::keep_existing;

use super::attach;
use super::profiling::{Results, Sampling};
use crate::commands::live::{Live, Terminal};
use crate::jvm::target::Target;
use crate::launch::agent_library;
use crate::launch::remote::Remote;
use crate::launch::signals::Signals;
use crate::launch::{AgentOptions, Launch};
use crate::options::agent_flags;
use crate::options::values::Time;
use crate::output::{self, tell};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk record -- java -jar app.jar
  tickwalk record --interval 1ms -o app.tickwalk -- java -cp classes com.example.Main
  tickwalk record --interval 1ms --budget 1% -- java -jar app.jar
  tickwalk record -o app.jfr -- java -jar app.jar         (and app.tickwalk)
  tickwalk record --ssh web1 -p 4321 -d 30s               a JVM of another host; nothing stays there
  tickwalk record --summary app.json -- ./gradlew run     (uses JAVA_TOOL_OPTIONS)

If COMMAND is not java, the agent is passed in JAVA_TOOL_OPTIONS, which every JVM it starts reads. The report shows the JVM
that used most CPU time and lists the others, each with its own recording. --follow does the same for java.

On a terminal, a progress line appears every ten seconds.

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
    /// Profile a running JVM instead, as 'tickwalk attach' does; with --ssh, a JVM of that host
    #[arg(short, long, value_name = "PID|NAME", conflicts_with_all = ["command", "follow"])]
    pid: Option<Target>,
    /// Duration of the profile, such as 30s; the program runs on [default: until the program ends or Ctrl-C]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Time>,
    /// Profile on this host, by ssh(1); this program and the agent are copied there and removed afterwards
    #[arg(long, value_name = "HOST", requires_all = ["pid", "duration"])]
    ssh: Option<String>,
    /// Print what --ssh would run, and exit
    #[arg(long, requires = "ssh")]
    dry_run: bool,
    /// Program to run, with its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "pid", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Profiles a JVM of another machine.
fn record_remote(arguments: &Arguments, host: &str, pid: i32) -> anyhow::Result<ExitCode> {
    let library = agent_library::find(arguments.sampling.agent.as_deref())?;
    let time = arguments.duration.context("a profile of another machine needs a duration")?;
    let mut options = vec![format!("--duration={}ms", time.0.as_millis())];
    options.extend(arguments.sampling.checked([])?.iter().map(|option| format!("--agent-option={option}")));
    let remote = Remote { host, pid, options, library: &library };
    if arguments.dry_run {
        let commands = remote.described()?;
        output::print(|out| writeln!(out, "{commands}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments.results.check()?;
    let path = arguments.results.recording()?;
    let cannot_write = || format!("cannot write {}", path.display());
    let recording = WholeFile::create(&path, Readers::Owner).with_context(cannot_write)?;
    tell!("tickwalk: profiling JVM {pid} of {host} for {time}; Ctrl-C ends the profile");
    remote.run(recording.file())?;
    recording.finish(keep_existing).with_context(cannot_write)?;
    arguments.results.report_one(&path)?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match (&arguments.ssh, &arguments.pid) {
        (Some(host), Some(Target::Pid(pid))) => return record_remote(&arguments, host, *pid),
        (Some(_), Some(Target::Name(_))) => bail!("write the process id of the JVM on the other machine"),
        (None, Some(jvm)) => {
            let jvm = jvm.clone();
            let Arguments { sampling, results, duration, .. } = arguments;
            return attach::run(attach::Arguments::of(sampling, results, duration, jvm));
        }
        _ => {}
    }
    let duration = arguments.duration.map(|Time(time)| format!("duration={}s", time.as_secs_f64()));
    let more = arguments.sampling.checked(duration)?;
    // The program inherits the environment, which has options as well.
    agent_flags::check(&environment::options(std::env::vars_os()), &more.join(","))?;
    let library = agent_library::find(arguments.sampling.agent.as_deref())?;
    arguments.results.check()?;
    // Threads inherit the mask, so the signals are blocked before the first one starts.
    let signals =
        Signals::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCHLD])?;
    let directory = output::temporary_directory()?;
    let socket = directory.path().join("collector");
    let server = arguments.results.receive(&socket)?;

    let Arguments { results, follow, command, .. } = arguments;
    let options = AgentOptions { library, socket, more: &more };
    let launch = Launch::new(&command, &options, follow)?;
    let live = Live::start(server.stop_handle(), Terminal::Shared);
    let code = launch.run(&signals)?;
    drop(live);
    let sessions = server.stop();

    if sessions.is_empty() && code != 0 {
        tell!(
            "tickwalk: the program ended with exit code {code} before anything was profiled, so there is no recording; \
            its own messages say why ({})",
            launch.how_the_agent_was_passed()
        );
    } else if sessions.is_empty() {
        tell!(
            "tickwalk: the JVM never connected to the profiler, so nothing was recorded ({}); \
            read the messages above and run 'tickwalk doctor'; a JVM with the C library musl (Alpine Linux) cannot load the agent",
            launch.how_the_agent_was_passed()
        );
    }
    results.report(sessions)?;
    Ok(ExitCode::from(code))
}
