//! `tickwalk export`: recordings for other tools.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use collector::export::collapsed::{self, Options};

use super::read_profile;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk export --format collapsed recording.tickwalk > stacks.txt
  tickwalk export --format collapsed --unit ns --threads -o stacks.txt recording.tickwalk")]
pub struct Arguments {
    /// What to write
    #[arg(long, value_enum)]
    format: Format,
    /// What the numbers count
    #[arg(long, value_enum, default_value_t = Unit::Samples)]
    unit: Unit,
    /// Begin each stack with the name of its thread
    #[arg(long)]
    threads: bool,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Recording to read
    recording: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line "root;...;leaf number" for each stack
    Collapsed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    /// Sampling intervals of CPU time
    Samples,
    /// Nanoseconds of CPU time
    Ns,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let profile = read_profile(&arguments.recording)?;
    let unit = match arguments.unit {
        Unit::Samples => collapsed::Unit::Samples,
        Unit::Ns => collapsed::Unit::Nanoseconds,
    };
    let options = Options { unit, threads: arguments.threads };
    match (arguments.format, arguments.output) {
        (Format::Collapsed, Some(path)) => {
            output::write_file(&path, |out| collapsed::write(&profile, options, out))?;
        }
        (Format::Collapsed, None) => output::print(|out| collapsed::write(&profile, options, out))?,
    }
    Ok(ExitCode::SUCCESS)
}
