//! `tickwalk top`: hot methods, lines, classes or packages, and busy threads.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use profile::query::tree::{Naming, Order};

use super::live_top::{self, View};

use crate::output;
use crate::source::{SelectionArguments, Source};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk top recording.tickwalk
  tickwalk top --by line --self --limit 50 recording.tickwalk
  tickwalk top --by thread --process shop.jar --from -15m http://127.0.0.1:4172
  tickwalk top --json recording.tickwalk
  tickwalk top -p 4321                             a running JVM, until Ctrl-C")]
pub struct Arguments {
    /// Print the account of CPU time of one process as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Unit of the rows
    #[arg(long, value_enum, default_value_t = By::Method)]
    by: By,
    /// Show only the table by CPU time in a row's own code
    #[arg(long = "self")]
    own: bool,
    /// Show only the table by CPU time in a row's code and its callees
    #[arg(long, conflicts_with = "own")]
    total: bool,
    /// Rows shown in each table
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Also print how the samples were collected: rate, requests, queues, pauses
    #[arg(long)]
    verbose: bool,
    /// Profile the running JVM with this process id, and show the last ten seconds again and again
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["json", "verbose", "source"])]
    pid: Option<i32>,
    /// Recording, directory of a store, or http://HOST:PORT of a collector
    #[arg(value_name = "RECORDING|DIR|URL", required_unless_present = "pid")]
    source: Option<Source>,
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
    let mut pairs = arguments.selection.pairs();
    if arguments.by == By::Thread && (arguments.own || arguments.total) {
        bail!("threads have no callees; leave out --self and --total");
    }
    if let Some(pid) = arguments.pid {
        let orders = if arguments.total { &[Order::TotalTime] } else { &[Order::SelfTime] };
        let naming = arguments.by.naming();
        return live_top::run(View { pid, naming, orders, limit: arguments.limit, pairs });
    }
    let source = arguments.source.context("a recording, directory or URL is missing")?;
    let source = arguments.selection.with_headers(source);
    let question = match arguments.by {
        _ if arguments.json => "summary",
        By::Thread => "top/threads",
        _ => "top",
    };
    let order = match (arguments.own, arguments.total) {
        (true, _) => Some("self"),
        (_, true) => Some("total"),
        _ => None,
    };
    pairs.extend(order.map(|order| ("order".to_owned(), order.to_owned())));
    if question == "top"
        && let Some(rows) = arguments.by.to_possible_value()
    {
        pairs.push(("rows".to_owned(), rows.get_name().to_owned()));
    }
    pairs.push(("limit".to_owned(), arguments.limit.to_string()));
    if arguments.verbose && question == "top" {
        pairs.push(("verbose".to_owned(), "true".to_owned()));
    }
    let mut answer = source.ask(question, &pairs)?;
    if arguments.json {
        let summary: serde_json::Value = serde_json::from_slice(&answer)?;
        answer = (serde_json::to_string_pretty(&summary)? + "\n").into_bytes();
    }
    output::print(|out| out.write_all(&answer))?;
    Ok(ExitCode::SUCCESS)
}
