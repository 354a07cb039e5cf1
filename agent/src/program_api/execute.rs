//! What a request to a running program does, and its answer.
//!
//! Programs compare the answers of async-profiler's commands, so each of these is word for word the same.
//! Source: async-profiler 4.5, `docs/IntegratingAsyncProfiler.md`, and the answers of its library.

use crate::jvmti::vm::Vm;
use crate::profile::state::{self, Phase};
use crate::profile::{Refusal, results, run, start, status};
use agent_options::{Action, Door, Request};

pub const STARTED: &str = "Profiling started\n";
/// Answer to a command whose result is a file, by the Java API.
const WRITTEN: &str = "OK";
/// The events that are sampled. Programs look for lines that begin with two spaces.
const EVENTS: &str = "Basic events:\n  cpu\n  wall\n  itimer\n  ctimer\n";
/// The version of async-profiler whose commands these are, which programs compare, and ours.
const VERSION: &str = concat!("4.5 (Tickwalk ", env!("CARGO_PKG_VERSION"), ")");

/// Runs a command of async-profiler's Java API and returns its answer: a result, unless a file was named for it.
///
/// # Errors
/// [`Refusal`].
pub fn execute(vm: Vm, text: &str) -> Result<Vec<u8>, Refusal> {
    let request = start::request(Door::Java, text)?;
    super::messages::warn(&request);
    answer(vm, &request)
}

/// Carries out a request, and returns its answer.
///
/// # Errors
/// [`Refusal`].
pub fn answer(vm: Vm, request: &Request) -> Result<Vec<u8>, Refusal> {
    let confirmed = |text: String| if request.is_quiet { String::new() } else { text };
    let answer = match request.action {
        Action::Version => VERSION.to_owned(),
        Action::List => EVENTS.to_owned(),
        Action::Check => WRITTEN.to_owned(),
        Action::Status => running(),
        Action::Start | Action::Resume => {
            start::now(vm, request)?;
            confirmed(STARTED.to_owned())
        }
        Action::Stop => {
            let seconds = status::since_start().unwrap_or_default().as_secs();
            let stopped = run::stop(vm);
            if request.output.is_some() {
                // A profile that ended by itself has results as well.
                return match stopped {
                    Err(Refusal::NotActive) | Ok(()) => dumped(request),
                    Err(refusal) => Err(refusal),
                };
            }
            stopped?;
            confirmed(format!("Profiling stopped after {seconds} seconds. No dump options specified\n"))
        }
        Action::Dump => return dumped(request),
        Action::Stacks => {
            return Err(Refusal::Request("stacks are for tickwalk dump-stacks, which listens".to_owned()));
        }
    };
    Ok(answer.into_bytes())
}

fn dumped(request: &Request) -> Result<Vec<u8>, Refusal> {
    let Some(output) = request.output else {
        return Err(Refusal::Request(
            "No output format selected; write for example collapsed, or file=NAME.html".to_owned(),
        ));
    };
    match &request.file {
        Some(file) => {
            results::dump_to(file, output)?;
            Ok(WRITTEN.into())
        }
        None => results::dump(output),
    }
}

fn running() -> String {
    match status::since_start().filter(|_| state::phase() == Phase::Running) {
        Some(since) => format!("Profiling is running for {} seconds\n", since.as_secs()),
        None => format!("{}\n", Refusal::NotActive),
    }
}
