//! The `tickwalk` command: profiles the CPU time of Java programs and shows the results.
//!
//! Each verb is one file in `commands/`, which declares its options, calls the libraries and prints.
//! Reports go to standard output, messages to standard error. The exit code is 0 for success, 1 for an error at run time,
//! 2 for wrong usage; `record` returns the exit code of the program.
#![forbid(unsafe_code)]

mod agent_flags;
mod agent_library;
/// The options of the agent, of which some are flags here.
#[path = "../../agent/src/options/table.rs"]
#[allow(dead_code, reason = "ranges and forms are for the agent's messages and the table in README.md")]
mod agent_options;
mod collector_options;
mod commands;
mod doctor;
mod experiment;
mod file_format;
mod forward_options;
mod jvm;
mod launch;
mod live;
mod option_values;
mod output;
mod remote;
mod signals;
mod source;
mod table_output;

use std::process::ExitCode;

use clap::Parser;
use launch::NotStarted;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    output::start_log(cli.default_log_level());
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            output::tell(format_args!("tickwalk: {error:#}"));
            error.downcast_ref::<NotStarted>().map_or(ExitCode::FAILURE, |error| error.exit_code().into())
        }
    }
}
