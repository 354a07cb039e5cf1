//! `tickwalk experiment`: measures the profiler itself on this machine, with a JVM of the user's choice.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, value_parser};
use profile::export::whole_file::Readers;

use crate::experiment::{grid, jvm::Jvm, queue, waste};
use crate::launch::agent_library;
use crate::options::agent_flags;
use crate::output::{self, tell};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk experiment queue --quick                      five minutes, report in queue-study/
  tickwalk experiment queue --java /opt/jdk-25 -o s25    the whole grid, many hours
  tickwalk experiment waste                              compare the profile with known CPU times")]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Measure the losses and the memory of queues of each size; writes CSV, JSON and a page
    Queue(QueueArguments),
    /// Burn known amounts of CPU time and compare them with the profile and with getrusage
    Waste(WasteArguments),
}

#[derive(Debug, Args)]
struct Common {
    /// JDK, JRE or java launcher [default: JAVA_HOME, or java in PATH]
    #[arg(long, value_name = "PATH")]
    java: Option<PathBuf>,
    /// Agent library [default: TICKWALK_AGENT, or libtickwalk.so near this program]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct QueueArguments {
    #[command(flatten)]
    common: Common,
    /// Run a small grid, in about five minutes
    #[arg(long)]
    quick: bool,
    /// Run only the cells whose progress line contains this text, such as "Java, depth 1200"
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Folder for the results
    #[arg(short, long, value_name = "FOLDER", default_value = "queue-study")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct WasteArguments {
    #[command(flatten)]
    common: Common,
    /// CPU time to burn in each way, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = value_parser!(u32).range(10..=600_000))]
    milliseconds: u32,
    /// CPU time between two samples of a thread
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    interval: String,
}

/// The quick grid starts no cell after this time; the report takes no notable time.
const QUICK_BUDGET: Duration = Duration::from_secs(290);

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.experiment {
        Experiment::Queue(arguments) => run_queue(&arguments),
        Experiment::Waste(arguments) => run_waste(&arguments),
    }
}

impl Common {
    fn jvm(&self) -> anyhow::Result<Jvm> {
        Jvm::find(self.java.as_deref(), agent_library::find(self.agent.as_deref())?)
    }
}

fn run_queue(arguments: &QueueArguments) -> anyhow::Result<ExitCode> {
    let jvm = arguments.common.jvm()?;
    let folder = &arguments.output;
    output::check_named(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let mut cells = if arguments.quick { grid::quick(processors) } else { grid::full(processors) };
    if let Some(text) = &arguments.only {
        cells.retain(|cell| cell.to_string().contains(text));
        if cells.is_empty() {
            bail!("no cell of this grid contains '{text}'; choose another text for --only");
        }
    }
    let budget = arguments.quick.then_some(QUICK_BUDGET);
    let study = queue::study(&jvm, &cells, budget, &mut |line| tell!("{line}"));
    if study.rows.is_empty() {
        bail!("all cells failed; the lines above have the causes");
    }
    output::write_file(&folder.join("cells.csv"), Readers::Umask, |out| study.write_csv(out))?;
    output::write_file(&folder.join("cells.json"), Readers::Umask, |out| {
        writeln!(out, "{:#}", study.to_json())
    })?;
    let report = folder.join("index.html");
    output::write_file(&report, Readers::Umask, |out| out.write_all(study.page().as_bytes()))?;
    output::print(|out| writeln!(out, "{}", report.display()))?;
    Ok(if study.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_waste(arguments: &WasteArguments) -> anyhow::Result<ExitCode> {
    let interval = format!("interval={}", arguments.interval);
    agent_flags::check("", &interval)?;
    let jvm = arguments.common.jvm()?;
    let burn = ["waste".to_owned(), arguments.milliseconds.to_string()];
    let run = jvm.run(&interval, &burn)?;
    let comparison = waste::Comparison::new(&run)?;
    if comparison.ways.is_empty() {
        bail!("the Java program printed no CPU times; this is a bug, please report it");
    }
    output::print(|out| write!(out, "{comparison}"))?;
    Ok(ExitCode::SUCCESS)
}
