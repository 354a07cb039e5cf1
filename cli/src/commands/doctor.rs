//! `tickwalk doctor`: what this machine allows.

use std::process::ExitCode;

use clap::Args;

use crate::doctor::{Status, examine};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk doctor
  tickwalk doctor --json

The exit code is 1 if something must be fixed before profiling works.")]
pub struct Arguments {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let findings = examine();
    let text = if arguments.json {
        serde_json::to_string_pretty(&findings)? + "\n"
    } else {
        findings.iter().map(ToString::to_string).collect()
    };
    output::print(|out| out.write_all(text.as_bytes()))?;
    let failed = findings.iter().any(|finding| finding.status == Status::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
