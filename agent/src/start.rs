//! The steps from a text of options to a profile, for every way in which a start is asked for.
//!
//! Problem: a start comes from the command line of the JVM, from an attach, from Java and from C, and each reports a
//! refusal in its own way.
//! Approach: [`prepare`] does what can be done before the VM is initialised, [`now`] prepares and starts in a VM that
//! runs; both return the [`Refusal`], and print nothing.
//! Invariant: after a refusal another profile can begin.

use std::path::PathBuf;

use crate::jvmti::callbacks::{self, ClaimError};
use crate::jvmti::vm::Vm;
use crate::options::Options;
use crate::session::{self, PreparedSession};
use crate::{control, log};

/// Why no profile begins.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The process is not free for another profile.
    #[error(transparent)]
    Claimed(#[from] ClaimError),
    /// The options are wrong, or something that they need is missing.
    #[error("{0}")]
    Failed(String),
}

/// Claims the process and prepares the profile that `text` describes; with `start=no` prepares the wait for a start.
///
/// # Errors
/// [`Refusal`].
pub fn prepare(vm: Vm, text: &str, is_attached: bool) -> Result<(), Refusal> {
    prepare_into(vm, text, is_attached, None)
}

/// As [`prepare`]; `storage` replaces the recording that the options name.
fn prepare_into(vm: Vm, text: &str, is_attached: bool, storage: Option<PathBuf>) -> Result<(), Refusal> {
    callbacks::claim()?;
    let prepared = claimed(vm, text, is_attached, storage);
    if prepared.is_err() {
        callbacks::unclaim();
    }
    prepared.map_err(Refusal::Failed)
}

fn claimed(vm: Vm, text: &str, is_attached: bool, storage: Option<PathBuf>) -> Result<(), String> {
    let mut options = Options::parse(text).map_err(|error| error.to_string())?;
    options.file = storage.or(options.file);
    log::install(options.log);
    if !options.starts {
        session::prepare_waiting(&options, vm, is_attached).map_err(|error| error.to_string())?;
        control::wait_for_start(text);
        callbacks::unclaim();
        return Ok(());
    }
    control::begins(text, &options);
    let prepared = PreparedSession::new(options, vm, is_attached).map_err(|error| error.to_string())?;
    callbacks::arm(prepared).map_err(|error| error.to_string())
}

/// Starts a profile in a VM that runs, on a thread that it knows; `storage` replaces the recording that the options name.
///
/// # Errors
/// [`Refusal`].
pub fn now(vm: Vm, text: &str, storage: Option<PathBuf>) -> Result<(), Refusal> {
    prepare_into(vm, text, true, storage)?;
    callbacks::start_now(vm).map_err(Refusal::Failed)
}
