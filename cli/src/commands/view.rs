//! `tickwalk view`: prints a named view of a recording, a store or a running collector.

use std::process::ExitCode;

use clap::Args;

use crate::output;
use crate::source::{SelectionArguments, Source};

#[derive(Debug, Args)]
#[command(after_help = "\
Views: hot-methods, cpu-time-hot-methods, cpu-time-statistics, threads, processes

Examples:
  tickwalk view cpu-time-hot-methods recording.tickwalk
  tickwalk view threads --from -15m --process shop.jar http://127.0.0.1:4172")]
pub struct Arguments {
    /// Name of the view
    name: String,
    /// Recording, directory of a store, or http://HOST:PORT of a collector
    source: Source,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 30)]
    limit: usize,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let source = arguments.selection.with_headers(arguments.source);
    let mut pairs = arguments.selection.pairs();
    pairs.push(("limit".into(), arguments.limit.to_string()));
    let text = source.ask(&format!("view/{}", arguments.name), &pairs)?;
    output::print(|out| out.write_all(&text))?;
    Ok(ExitCode::SUCCESS)
}
