//! `tickwalk flamegraph`: the flame graph of a recording.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use collector::query::selection::Selection;
use collector::ui::standalone;

use super::open_recording;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk flamegraph recording.tickwalk
  tickwalk flamegraph -o /tmp/app.html recording.tickwalk")]
pub struct Arguments {
    /// File to write [default: the recording's name with .html]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Recording to read
    recording: PathBuf,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let store = open_recording(&arguments.recording)?;
    let page = arguments.output.unwrap_or_else(|| arguments.recording.with_extension("html"));
    output::write_file(&page, |out| standalone::write(&store, &Selection::default(), out))?;
    eprintln!("flame graph  {}", page.display());
    Ok(ExitCode::SUCCESS)
}
