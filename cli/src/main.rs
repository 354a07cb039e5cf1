//! The `tickwalk` command: profiles the CPU time of Java programs and shows the results.
//!
//! Each verb is one file in `commands/`, which declares its options, calls the libraries and prints.
//! Reports go to standard output, messages to standard error. The exit code is 0 for success, 1 for an error at run
//! time, 2 for wrong usage; `record` returns the exit code of the program.
//!
//! Rooms, from the bottom up:
//! - `output`: reports, tables and messages.
//! - `options`: values and groups of options that several verbs share.
//! - `source`: recordings, stores and collectors that are read.
//! - `launch`: programs that are started with the agent, here or on another host.
//! - `jvm`: JVMs that run already.
//! - `experiment`: the measurements of the verb of that name.
//! - `doctor`: what the verb of that name looks at.
//! - `commands`: the verbs.
#![forbid(unsafe_code)]

mod commands;
mod doctor;
mod experiment;
mod jvm;
mod launch;
mod options;
mod output;
mod source;

use std::process::ExitCode;

use clap::Parser;
use launch::NotStarted;
use options::agent_flags::WrongOptions;
use output::tell;
use profile::characters::shown;
use profile::query::error::QueryError;

/// Exit code of clap.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    launch::signals::survive_file_limit();
    output::start_log(cli.default_log_level());
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            let text = format!("{error:#}");
            tell!("tickwalk: {}{}", shown(&text), hint(&text));
            exit_code(&error)
        }
    }
}

/// Returns what to add to the error of a selection that matches nothing, which can be that of a collector.
fn hint(text: &str) -> &'static str {
    let nothing = [QueryError::NoSamples, QueryError::OneProcess(0)];
    match nothing.iter().any(|error| text == error.to_string()) {
        true => "; `tickwalk view threads` and `tickwalk view processes` list what can be selected",
        false => "",
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<WrongOptions>() {
        return ExitCode::from(WRONG_USAGE);
    }
    error.downcast_ref::<NotStarted>().map_or(ExitCode::FAILURE, |error| error.exit_code().into())
}
