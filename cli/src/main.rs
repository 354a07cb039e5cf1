//! The `tickwalk` command: profiles CPU time of Java programs and shows what was recorded.
//!
//! Each verb is one file in `commands/`; they parse options, call the collector library and print.
//! Reports go to standard output and notes to standard error; the exit code is 0, 1 for an error at run time, 2
//! for wrong usage, and for `record` that of the program that was run.
#![forbid(unsafe_code)]

mod agent_library;
mod collector_options;
mod commands;
mod doctor;
mod experiment;
mod forward_options;
mod jvm_attach;
mod launch;
mod option_values;
mod output;
mod signals;
mod source;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    output::start_log(cli.default_log_level());
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tickwalk: {error:#}");
            ExitCode::FAILURE
        }
    }
}
