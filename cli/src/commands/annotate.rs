//! `tickwalk annotate`: CPU time by line of a method, beside its source text.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use collector::source_path::SourcePath;

use crate::output::table::TableOutput;
use crate::source::{SelectionArguments, Source, check_output};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk annotate recording.tickwalk --source-path src        the method with most CPU time of its own
  tickwalk annotate recording.tickwalk HashMap.get --source-path $JAVA_HOME/lib/src.zip
  tickwalk annotate http://127.0.0.1:4172 shop.Cart.total --process shop.jar   with the sources that the collector has")]
pub struct Arguments {
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    #[arg(value_name = "RECORDING|DIR|URL")]
    source: Source,
    /// Name of the method, or its end, such as HashMap.get [default: the method with most CPU time of its own]
    #[arg(value_name = "METHOD")]
    method: Option<String>,
    /// Folder, .jar or .zip with source files; can be repeated (in the variable, separated by colons). Without
    /// one, lines are shown without text
    #[arg(long, value_name = "PATH", env = "TICKWALK_SOURCE_PATH", value_delimiter = ':')]
    source_path: Vec<PathBuf>,
    #[command(flatten)]
    table: TableOutput,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    check_output(arguments.table.file(), [&arguments.source])?;
    let source = arguments.selection.configured(arguments.source);
    let texts = SourcePath::open(&arguments.source_path)?;
    let mut pairs = arguments.selection.pairs();
    pairs.extend(arguments.method.map(|method| ("method".to_owned(), method)));
    let question = if arguments.table.is_json() { "lines" } else { "lines/text" };
    arguments.table.write(&source.ask_with(texts, question, &pairs)?)?;
    Ok(ExitCode::SUCCESS)
}
