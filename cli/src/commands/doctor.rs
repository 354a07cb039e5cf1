//! `tickwalk doctor`: checks whether this machine and its JDKs can be profiled.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::doctor::{Status, examine};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk doctor
  tickwalk doctor --json
  tickwalk doctor --java /usr/lib/jvm/java-21     run the agent in this JVM

The exit code is 1 if a finding prevents profiling.")]
pub struct Arguments {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// JDK or java launcher for a trial run with the agent [default: JAVA_HOME]
    #[arg(long, value_name = "PATH")]
    java: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let findings = examine(arguments.java.as_deref());
    let text = if arguments.json {
        serde_json::to_string_pretty(&findings)? + "\n"
    } else {
        findings.iter().map(ToString::to_string).collect()
    };
    output::print(|out| out.write_all(text.as_bytes()))?;
    let failed = findings.iter().any(|finding| finding.status == Status::Fail);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
