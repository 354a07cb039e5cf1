//! Start and end of a profile, for the program that is profiled.

use crate::jvmti::vm::Vm;
use crate::profile::events::{self, ClaimError};
use crate::profile::results::{self, Failure};
use crate::profile::start::{self, Refusal};
use crate::profile::status::Phase;
use agent_options::{Mode, Request};

/// Starts a profile; without a destination in the options it is recorded into a file without a name.
///
/// # Errors
/// [`Failure::Request`] for options that start none, [`Failure::Active`] if one runs, [`Failure::State`] if it cannot
/// begin.
pub fn start(vm: Vm, request: &Request) -> Result<(), Failure> {
    if request.options.mode == Mode::Api || !request.options.starts {
        return Err(Failure::Request("mode=api and start=no start no profile; leave them out".to_owned()));
    }
    start::now(vm, request).map_err(|refusal| match refusal {
        Refusal::Claimed(ClaimError::Running) => Failure::Active,
        Refusal::Claimed(claimed) => Failure::State(claimed.to_string()),
        Refusal::Planned(failure) => failure,
        Refusal::Failed(reason) => Failure::State(reason),
    })
}

/// Ends the profile, and writes the result that its start asked for.
///
/// # Errors
/// [`Failure::NotActive`] if no profile runs, [`Failure::File`] if the result cannot be written; the profile has ended
/// then.
pub fn stop(vm: Vm) -> Result<(), Failure> {
    match results::end_by(|| events::stop_attached(vm))? {
        true => Ok(()),
        false => Err(Failure::NotActive),
    }
}

/// Returns whether a profile runs.
pub fn is_running() -> bool {
    events::phase() == Phase::Running
}
