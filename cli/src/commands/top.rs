//! `tickwalk top`: hot methods and busy threads.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::output;
use crate::source::{SelectionArguments, Source};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk top recording.tickwalk
  tickwalk top --by total --limit 50 recording.tickwalk
  tickwalk top --by thread --process shop.jar --from -15m http://127.0.0.1:4172
  tickwalk top --json recording.tickwalk")]
pub struct Arguments {
    /// Print the account of CPU time of one process as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Show only one table, ordered by this
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Methods or threads shown in each table
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Also print how the samples were collected: rate, requests, queues, pauses
    #[arg(long)]
    verbose: bool,
    /// Recording, directory of a store, or http://HOST:PORT of a collector
    #[arg(value_name = "RECORDING|DIR|URL")]
    source: Source,
    #[command(flatten)]
    selection: SelectionArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// CPU time in the method's own code
    #[value(name = "self")]
    SelfTime,
    /// CPU time in the method and its callees
    Total,
    /// Threads instead of methods; virtual threads with their carriers
    Thread,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let source = arguments.selection.with_headers(arguments.source);
    let mut pairs = arguments.selection.pairs();
    let question = match arguments.by {
        _ if arguments.json => "summary",
        Some(By::Thread) => "top/threads",
        _ => "top",
    };
    let order = match arguments.by {
        Some(By::SelfTime) => Some("self"),
        Some(By::Total) => Some("total"),
        Some(By::Thread) | None => None,
    };
    pairs.extend(order.map(|order| ("order".to_owned(), order.to_owned())));
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
