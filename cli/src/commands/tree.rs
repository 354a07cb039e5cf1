//! `tickwalk tree`: the call tree in the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::output;
use crate::source::{SelectionArguments, Source, check_output};

#[derive(Debug, Args)]
#[command(after_help = "\
A row is indented where its caller has several callees; + begins such a branch. The functions at the root of every thread are
left out.

Examples:
  tickwalk tree recording.tickwalk
  tickwalk tree --min-share 0.2% --depth 200 recording.tickwalk
  tickwalk tree --thread worker --include 'shop.*' http://127.0.0.1:4172")]
pub struct Arguments {
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    #[arg(value_name = "RECORDING|DIR|URL", default_value = "recording.tickwalk")]
    source: Source,
    /// Leave out rows with a smaller share of the time
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    min_share: String,
    /// Leave out frames that are deeper than this
    #[arg(long, value_name = "N", default_value_t = 64)]
    depth: usize,
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
    pairs.push(("min_share".to_owned(), arguments.min_share));
    pairs.push(("depth".to_owned(), arguments.depth.to_string()));
    output::write_answer(file, &source.ask("tree", &pairs)?)?;
    Ok(ExitCode::SUCCESS)
}
