//! Start and end of a profile, for the program that is profiled.

use std::path::PathBuf;

use crate::jvmti::vm::Vm;
use crate::options::{self, Options};
use crate::profile::events;
use crate::profile::output::Output;
use crate::profile::results::{self, Failure, Plan};
use crate::profile::start::{self, Refusal};
use crate::profile::status::{self, Phase};

/// How a profile is started.
#[derive(Debug, Default)]
pub struct Request {
    /// Options of the agent.
    pub options: String,
    /// Result that is written when the profile ends.
    pub at_stop: Option<(PathBuf, Output)>,
    /// True if results have the samples of chosen threads only.
    pub filters: bool,
}

/// Starts a profile; without a destination in the options it is recorded into a file without a name.
///
/// # Errors
/// [`Failure::Request`] for wrong options, [`Failure::State`] if it cannot begin.
pub fn start(vm: Vm, request: Request) -> Result<(), Failure> {
    let options = status::with_defaults(&request.options);
    let parsed = Options::parse(&options)?;
    if options::is_for_api(&options) || !parsed.starts {
        return Err(Failure::Request("mode=api and start=no start no profile; leave them out".to_owned()));
    }
    let mut plan = Plan::new(request.at_stop, request.filters);
    if !Options::names_destination(&options) && parsed.repeats_after.is_none() {
        plan.store()?;
    }
    start::now(vm, &options, plan).map_err(|refusal| match refusal {
        Refusal::Claimed(claimed) => Failure::State(claimed.to_string()),
        Refusal::Planned(failure) => failure,
        Refusal::Failed(reason) => Failure::State(reason),
    })
}

/// Ends the profile, and writes the result that its start asked for.
///
/// # Errors
/// [`Failure::State`] if no profile runs, [`Failure::File`] if the result cannot be written; the profile has ended then.
pub fn stop(vm: Vm) -> Result<(), Failure> {
    match results::end_by(|| events::stop_attached(vm))? {
        true => Ok(()),
        false => Err(Failure::State("no profile runs in this JVM, so there is nothing to stop".to_owned())),
    }
}

/// Returns whether a profile runs.
pub fn is_running() -> bool {
    events::phase() == Phase::Running
}
