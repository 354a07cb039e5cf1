//! `tickwalk flamegraph`: the flame graph of a recording.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use collector::export::flamegraph_html;

use super::{read_profile, title};
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
    let profile = read_profile(&arguments.recording)?;
    let page = arguments.output.unwrap_or_else(|| arguments.recording.with_extension("html"));
    output::write_file(&page, |out| flamegraph_html::write(&profile, title(&profile), out))?;
    eprintln!("flame graph  {}", page.display());
    Ok(ExitCode::SUCCESS)
}
