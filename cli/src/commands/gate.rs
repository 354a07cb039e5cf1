//! `tickwalk gate`: runs two programs in turns and judges whether the second one needs more CPU time.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use collector::address::Address;
use collector::ingest::{Destination, Limits, Server};
use nix::sys::signal::Signal;
use profile::query::difference::Methods;
use profile::query::regression::{CONFIDENCE, Rules, Verdict, check_runs, least_runs};

use super::busiest::busiest_first;
use super::profiling::Sampling;
use super::verdict::{self, DifferenceOutput, Percent, confidence};
use crate::launch::agent_library;
use crate::launch::signals::Signals;
use crate::launch::{AgentOptions, Launch, Output};
use crate::output::{self, tell};
use crate::source::Source;

/// Separates the two commands.
const SEPARATOR: &str = "---";

/// Maximum number of runs on each side.
const MOST_RUNS: usize = 1000;

#[derive(Debug, Args)]
#[command(after_help = "\
Both programs run N times under the profiler, in turns, so that other load on the machine affects both alike. Their
standard output is discarded. If a program fails, the comparison ends.

Judged are the CPU time of the program, and each method with at least 1 % of it, by the share of its total time. A growth
counts if it exceeds the limit and cannot be explained by the differences between equal runs: at most 1 in 100 comparisons
of equal programs fails. That needs 5 runs of each program. A method that takes 20 % of 7 s and grows by a tenth is usually
found with an interval of 1 ms.

Examples:
  tickwalk gate -- java -jar base.jar --- java -jar head.jar
  tickwalk gate --runs 8 --fail-above 3% --markdown -o report.md -- java -jar base.jar --- java -jar head.jar
  tickwalk gate --keep runs --json -- ./gradlew -p base bench --- ./gradlew -p head bench

The exit code is 3 if something has grown by more than the limit.")]
pub struct Arguments {
    /// Number of runs of each program [default: the fewest that --confidence allows, 5]
    #[arg(long, value_name = "N", value_parser = runs)]
    runs: Option<usize>,
    /// Allowed growth, in percent of the value before
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    fail_above: Percent,
    /// Share of comparisons of equal programs that must pass, 80% to 99.9%; a higher one needs more runs
    #[arg(long, value_name = "PERCENT", default_value_t = Percent(CONFIDENCE), value_parser = confidence)]
    confidence: Percent,
    /// Directory for the recordings base-1.tickwalk, head-1.tickwalk and so on [default: they are deleted]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: DifferenceOutput,
    #[command(flatten)]
    sampling: Sampling,
    /// Both programs with their arguments, separated by ---
    #[arg(last = true, required = true, value_name = "BASE... --- HEAD")]
    commands: Vec<OsString>,
}

fn runs(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|runs| (1..=MOST_RUNS).contains(runs));
    number.ok_or("write a number of runs from 1 to 1000")
}

/// One of the two programs.
struct Program<'a> {
    /// `base` or `head`.
    name: &'static str,
    command: &'a [OsString],
    runs: Vec<Methods>,
}

/// Returns the two commands.
fn programs(commands: &[OsString]) -> anyhow::Result<[Program<'_>; 2]> {
    let parts: Vec<&[OsString]> = commands.split(|word| word == SEPARATOR).collect();
    match parts[..] {
        [base, head] if !base.is_empty() && !head.is_empty() => Ok([("base", base), ("head", head)]
            .map(|(name, command)| Program { name, command, runs: Vec::new() })),
        _ => bail!(
            "write two commands with {SEPARATOR} between them: tickwalk gate -- BASE... {SEPARATOR} HEAD..."
        ),
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    arguments.output.file().map_or(Ok(()), output::check_writable)?;
    let rules = Rules { limit: arguments.fail_above.0, confidence: arguments.confidence.0, same_work: true };
    let runs = arguments.runs.unwrap_or_else(|| least_runs(rules.confidence));
    check_runs(runs, runs, rules.confidence)?;
    let mut programs = programs(&arguments.commands)?;
    let temporary = output::temporary_directory()?;
    let directory = match &arguments.keep {
        Some(directory) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
            directory.as_path()
        }
        None => temporary.path(),
    };
    let profiler = Profiler {
        library: agent_library::find(arguments.sampling.agent.as_deref())?,
        socket: temporary.path().join("collector"),
        directory,
        arguments: &arguments,
        // Threads inherit the mask, so the signals are blocked before the first one starts.
        signals: Signals::block(&[
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGCHLD,
        ])?,
    };
    for round in 1..=runs {
        // The programs take turns at being first, so that drift of the machine affects both alike.
        let order = if round % 2 == 1 { [0, 1] } else { [1, 0] };
        for place in order {
            let program = &mut programs[place];
            tell!("tickwalk: {}, run {round} of {runs}", program.name);
            let recorded = profiler.record(program, round)?;
            program.runs.push(recorded);
        }
    }
    let [base, head] = &programs;
    let verdict = Verdict::of(&base.runs, &head.runs, rules)?;
    arguments.output.write(&verdict)
}

/// Runs programs under the profiler.
struct Profiler<'a> {
    library: PathBuf,
    socket: PathBuf,
    directory: &'a Path,
    arguments: &'a Arguments,
    signals: Signals,
}

impl Profiler<'_> {
    /// Runs a program once; returns the methods of its busiest JVM.
    fn record(&self, program: &Program<'_>, round: usize) -> anyhow::Result<Methods> {
        let name = program.name;
        let recording = self.directory.join(format!("{name}-{round}.tickwalk"));
        let server = Server::start(
            &Address::Unix(self.socket.clone()),
            Destination::File(recording.clone()),
            Limits::default(),
        )
        .with_context(|| format!("cannot listen on {}; set TMPDIR to a short path", self.socket.display()))?;
        let sampling = &self.arguments.sampling;
        let more = sampling.checked([])?;
        let options =
            AgentOptions { library: self.library.clone(), socket: self.socket.clone(), more: &more };
        let launch = Launch::new(program.command, &options, false)?.with_output(Output::Discarded);
        let code = launch.run(&self.signals)?;
        let sessions = busiest_first(server.stop(), &recording);
        if code != 0 {
            bail!("run {round} of the {name} program ended with exit code {code}, so nothing is judged");
        }
        let Some(busiest) = sessions.first() else {
            bail!(
                "no JVM of the {name} program connected to the profiler ({}); try 'tickwalk record -- ...' with it",
                launch.how_the_agent_was_passed()
            );
        };
        verdict::methods(&Source::Path(busiest.report.path.clone()), Vec::new())
    }
}
