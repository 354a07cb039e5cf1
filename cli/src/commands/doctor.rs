//! `tickwalk doctor`: checks whether this machine and its JDKs can be profiled.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::doctor::{Status, examine};
use crate::output::table::TableOutput;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk doctor
  tickwalk doctor --json
  tickwalk doctor --java /usr/lib/jvm/java-21     run the agent in this JVM

The exit code is 1 if a finding prevents profiling.")]
pub struct Arguments {
    /// JDK or java launcher for a trial run with the agent [default: JAVA_HOME, or java in PATH]
    #[arg(long, value_name = "PATH")]
    java: Option<PathBuf>,
    #[command(flatten)]
    table: TableOutput,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    arguments.table.check()?;
    let findings = examine(arguments.java.as_deref());
    let text = match arguments.table.is_json() {
        true => serde_json::to_string(&findings)?,
        false => findings.iter().map(ToString::to_string).collect(),
    };
    arguments.table.write(text.as_bytes())?;
    let failed = findings.iter().any(|finding| finding.status == Status::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
