//! Runs a command of async-profiler's API.

use std::path::PathBuf;

use super::command::{Action, Command};
use super::profile::{self, Request};
use crate::jvmti::vm::Vm;
use crate::options::Options;
use crate::profile::output::Format;
use crate::profile::results::{self, Failure};
use crate::profile::status;

/// Answer of a command whose result is a file.
const DONE: &str = "OK";

/// Runs a command and returns its answer: a result, unless a file was named for it.
///
/// # Errors
/// [`Failure`].
pub fn execute(vm: Vm, text: &str) -> Result<Vec<u8>, Failure> {
    let command = Command::parse(text)?;
    let answer = match command.action {
        Action::Version => concat!("Tickwalk ", env!("CARGO_PKG_VERSION")).to_owned(),
        Action::List => "cpu\n".to_owned(),
        Action::Check => DONE.to_owned(),
        Action::Status => status(),
        Action::Resume if results::has_results() => {
            return Err(Failure::State(
                "a profile cannot be resumed; write its result, then start another one".to_owned(),
            ));
        }
        Action::Start | Action::Resume => started(vm, command)?,
        Action::Stop => {
            profile::stop(vm)?;
            match command.output {
                Some(_) => return dumped(command),
                None => "profiling has ended\n".to_owned(),
            }
        }
        Action::Dump => return dumped(command),
    };
    Ok(answer.into_bytes())
}

/// Starts a profile; a recording that is named is written while the profile runs, any other result at its end.
fn started(vm: Vm, command: Command) -> Result<String, Failure> {
    let Command { mut options, output, file, filters, .. } = command;
    let mut at_stop = None;
    match (output, file) {
        (Some(output), Some(file)) if output.format == Format::Recording => {
            options = [options, format!("file={file}")].join(",");
        }
        (Some(output), Some(file)) => at_stop = Some((PathBuf::from(file), output)),
        _ => {}
    }
    let interval = Options::parse(&options)?.interval;
    profile::start(vm, Request { options, at_stop, filters })?;
    Ok(format!("profiling CPU time every {interval:?}\n"))
}

fn dumped(command: Command) -> Result<Vec<u8>, Failure> {
    let Some(output) = command.output else {
        return Err(Failure::Request("no format; write for example collapsed, or file=NAME.html".to_owned()));
    };
    match command.file {
        Some(file) => {
            results::dump_to(&PathBuf::from(file), output)?;
            Ok(DONE.into())
        }
        None => results::dump(output),
    }
}

fn status() -> String {
    match status::since_start().filter(|_| profile::is_running()) {
        Some(since) => format!("profiling CPU time for {} s\n", since.as_secs()),
        None => "no profile runs\n".to_owned(),
    }
}
