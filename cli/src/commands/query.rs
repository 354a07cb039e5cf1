//! `tickwalk query`: prints the answer to a question of the HTTP API as JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use profile::query::error::QUESTIONS;

use crate::options::values::Offered;
use crate::output;
use crate::source::{SelectionArguments, Source, check_output, pair};

#[derive(Debug, Args)]
#[command(after_help = "\
The questions are processes, statistics, summary, flamegraph, methods, callers, callees, lines, threads, timeline, diff, diff/methods
Parameters: limit, order, method, by, bucket, max_nodes; before. or after. in front of a parameter of the selection
restricts one side of a difference.

Examples:
  tickwalk query methods recording.tickwalk --with limit=5
  tickwalk query callers store/ --with method=java.util.HashMap.get --from -1h
  tickwalk query lines recording.tickwalk --with method=HashMap.get
  tickwalk query timeline http://127.0.0.1:4172 --with by=label:service")]
pub struct Arguments {
    /// The question: the path below /api/v1/
    #[arg(value_parser = Offered::new(QUESTIONS))]
    question: String,
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    source: Source,
    /// Further parameter of the question; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    with: Vec<String>,
    /// File to write, or - [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let file = output::named_file(arguments.output.as_deref());
    check_output(file, [&arguments.source])?;
    let source = arguments.selection.configured(arguments.source);
    let mut pairs = arguments.selection.pairs();
    for parameter in &arguments.with {
        pairs.push(pair("--with", parameter)?);
    }
    let answer = source.ask(&arguments.question, &pairs)?;
    output::write_answer(file, &answer)?;
    Ok(ExitCode::SUCCESS)
}
