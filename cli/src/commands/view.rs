//! `tickwalk view`: prints a named view of a recording, a store or a running collector.

use std::process::ExitCode;

use clap::Args;
use profile::query::error::VIEWS;

use crate::options::values::{Offered, rows};
use crate::output::table::TableOutput;
use crate::source::{SelectionArguments, Source, check_output};

/// For each view, the question of the HTTP API that answers it as JSON, and the order of methods.
const QUESTIONS: [(&str, &str, Option<&str>); 5] = [
    ("hot-methods", "methods", Some("samples")),
    ("cpu-time-hot-methods", "methods", Some("self")),
    ("cpu-time-statistics", "statistics", None),
    ("threads", "threads", None),
    ("processes", "processes", None),
];

#[derive(Debug, Args)]
#[command(after_help = "\
Views: hot-methods, cpu-time-hot-methods, cpu-time-statistics, threads, processes

Examples:
  tickwalk view cpu-time-hot-methods recording.tickwalk
  tickwalk view threads --from -15m --process shop.jar http://127.0.0.1:4172")]
pub struct Arguments {
    /// Name of the view
    #[arg(value_parser = Offered::new(VIEWS))]
    name: String,
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    source: Source,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = rows)]
    limit: usize,
    #[command(flatten)]
    table: TableOutput,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let table = &arguments.table;
    check_output(table.file(), [&arguments.source])?;
    let source = arguments.selection.configured(arguments.source);
    let mut pairs = arguments.selection.pairs();
    pairs.push(("limit".into(), arguments.limit.to_string()));
    let of_json = QUESTIONS.iter().find(|(view, ..)| table.is_json() && *view == arguments.name);
    let answer = match of_json {
        Some((_, question, order)) => {
            pairs.extend(order.map(|order| ("order".to_owned(), order.to_owned())));
            source.ask(question, &pairs)?
        }
        None => source.ask(&format!("view/{}", arguments.name), &pairs)?,
    };
    table.write(&answer)?;
    Ok(ExitCode::SUCCESS)
}
