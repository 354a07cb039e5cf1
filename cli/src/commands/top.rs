//! `tickwalk top`: hot methods, lines, classes or packages, and busy threads.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use profile::query::flat::Order;
use profile::query::tree::Naming;

use super::live_top::{self, View};
use super::profiling::Sampling;

use crate::jvm::target::Target;
use crate::options::values::{Offered, rows};
use crate::output::table::TableOutput;
use crate::source::{SelectionArguments, Source, check_output};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk top recording.tickwalk
  tickwalk top --lines --self --limit 50 recording.tickwalk
  tickwalk top --callers HashMap.get recording.tickwalk
  tickwalk top --by thread --process shop.jar --from -15m http://127.0.0.1:4172
  tickwalk top --json recording.tickwalk
  tickwalk top -p 4321                             a running JVM, until Ctrl-C")]
pub struct Arguments {
    /// Unit of the rows
    #[arg(long, value_enum, default_value_t = By::Method)]
    by: By,
    /// The same as --by line
    #[arg(long, conflicts_with = "by")]
    lines: bool,
    /// Show only the table by CPU time of a row's own code
    #[arg(long = "self")]
    own: bool,
    /// Show only the table by CPU time of a row's code with its callees
    #[arg(long, conflicts_with = "own")]
    total: bool,
    /// Show who calls this method instead, as a tree with shares of its time; the end of a name is enough, such as
    /// HashMap.get
    #[arg(
        long,
        value_name = "METHOD",
        conflicts_with_all = ["by", "lines", "own", "total", "limit", "verbose", "pid", "json", "format"]
    )]
    callers: Option<String>,
    /// Rows shown in each table
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = rows)]
    limit: usize,
    /// Also print how the samples were collected: rate, requests, queues, pauses
    #[arg(long)]
    verbose: bool,
    /// Profile this running JVM, by its process id or a part of its command, and keep showing the last ten seconds
    #[arg(short, long, value_name = "PID|NAME", conflicts_with_all = ["json", "format", "output", "verbose", "source"])]
    pid: Option<Target>,
    /// With --pid: mode of the profile [default: cputime]
    #[arg(long, value_name = "MODE", requires = "pid", conflicts_with = "event", value_parser = Offered::new(["cputime", "wall", "jvmti"]))]
    mode: Option<String>,
    /// With --pid: event by async-profiler's name, instead of --mode
    #[arg(short, long, value_name = "EVENT", requires = "pid")]
    event: Option<String>,
    /// With --pid: time between two samples of a thread [default: 10ms]
    #[arg(short, long, value_name = "T", requires = "pid")]
    interval: Option<String>,
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    #[arg(value_name = "RECORDING|DIR|URL", required_unless_present = "pid")]
    source: Option<Source>,
    #[command(flatten)]
    table: TableOutput,
    #[command(flatten)]
    selection: SelectionArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Methods and functions
    Method,
    /// Lines of methods
    Line,
    /// Classes; of native code, libraries
    Class,
    /// Packages; of native code, libraries
    Package,
    /// Threads; virtual threads with their carriers
    Thread,
}

impl By {
    fn naming(self) -> Option<Naming> {
        match self {
            Self::Method => Some(Naming::Method),
            Self::Line => Some(Naming::Line),
            Self::Class => Some(Naming::Class),
            Self::Package => Some(Naming::Package),
            Self::Thread => None,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let by = if arguments.lines { By::Line } else { arguments.by };
    if by == By::Thread && (arguments.own || arguments.total) {
        bail!("threads have no callees; leave out --self and --total");
    }
    match &arguments.pid {
        Some(jvm) => live(&arguments, jvm.pid()?, by),
        None => recorded(arguments, by),
    }
}

/// Shows a running JVM.
fn live(arguments: &Arguments, pid: i32, by: By) -> anyhow::Result<ExitCode> {
    let given = [("mode", &arguments.mode), ("event", &arguments.event), ("interval", &arguments.interval)];
    let options = given.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)));
    let sampling = Sampling::of(options.collect());
    sampling.checked([])?;
    let orders = if arguments.total { &[Order::TotalTime] } else { &[Order::SelfTime] };
    let (naming, limit, pairs) = (by.naming(), arguments.limit, arguments.selection.pairs());
    live_top::run(View { pid, sampling, naming, orders, limit, pairs })
}

/// Shows a recording, a store or the profiles of a collector.
fn recorded(arguments: Arguments, by: By) -> anyhow::Result<ExitCode> {
    let table = &arguments.table;
    let source = arguments.source.context("a recording, directory or URL is missing")?;
    check_output(table.file(), [&source])?;
    let source = arguments.selection.configured(source);
    let mut pairs = arguments.selection.pairs();
    let mut add = |name: &str, value: String| pairs.push((name.to_owned(), value));
    if let Some(method) = arguments.callers {
        add("method", method);
        table.write(&source.ask("callers/text", &pairs)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    add("limit", arguments.limit.to_string());
    if table.is_json() {
        add("json", "true".to_owned());
    }
    let question = if by == By::Thread { "top/threads" } else { "top" };
    if question == "top" {
        if arguments.own {
            add("order", "self".to_owned());
        } else if arguments.total {
            add("order", "total".to_owned());
        }
        if let Some(rows) = by.to_possible_value() {
            add("rows", rows.get_name().to_owned());
        }
        if let Some(columns) = table.columns() {
            add("width", columns.to_string());
        }
        if arguments.verbose {
            add("verbose", "true".to_owned());
        }
    }
    table.write(&source.ask(question, &pairs)?)?;
    Ok(ExitCode::SUCCESS)
}
