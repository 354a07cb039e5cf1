//! The steps from a request to a profile, for every way in which a start is asked for.
//!
//! Problem: a start comes from the command line of the JVM, from an attach, from Java and from C, and each reports a
//! refusal in its own way.
//! Approach: [`prepare`] does what can be done before the VM is initialised, [`now`] prepares and starts in a VM that
//! runs; both return the [`Refusal`], and print nothing.
//! Invariant: after a refusal another profile can begin.

use std::time::Instant;

use nix::sys::signal::SigSet;
use parking_lot::Mutex;

use crate::dumps::triggers;
use crate::guest::log;
use crate::jvmti::vm::Vm;
use crate::profile::events::{self, ClaimError};
use crate::profile::results::{self, Failure, Plan};
use crate::profile::session::{self, PreparedSession};
use crate::profile::status;
use agent_options::values::MIN_DURATION;
use agent_options::{Door, Options, Request};

/// Why no profile begins.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The process is not free for another profile.
    #[error(transparent)]
    Claimed(#[from] ClaimError),
    /// Its result cannot be written.
    #[error(transparent)]
    Planned(#[from] Failure),
    /// The options are wrong, or something that they need is missing.
    #[error("{0}")]
    Failed(String),
}

/// The profile that follows the present one (`loop=`).
static NEXT: Mutex<Option<Next>> = Mutex::new(None);

struct Next {
    vm: Vm,
    door: Door,
    /// The text of the request.
    text: String,
    /// When the last of them ends.
    end: Option<Instant>,
}

/// Claims the process and prepares the profile that is asked for; with `start=no` prepares the wait for a start.
///
/// # Errors
/// [`Refusal`].
pub fn prepare(vm: Vm, request: &Request, is_attached: bool) -> Result<(), Refusal> {
    events::claim()?;
    let prepared = claimed(vm, request, is_attached);
    if prepared.is_err() {
        events::unclaim();
    }
    prepared
}

fn claimed(vm: Vm, request: &Request, is_attached: bool) -> Result<(), Refusal> {
    let failed = |error: &dyn std::error::Error| Refusal::Failed(error.to_string());
    let mut options = request.options.clone();
    log::install(options.log);
    // Before the profile, which chooses a signal that is free then.
    triggers::arm(vm, &options.dumps, is_attached).map_err(Refusal::Failed)?;
    if !options.starts {
        session::prepare_waiting(&options, vm, is_attached).map_err(|error| failed(&error))?;
        status::wait_for_start(&request.text);
        events::unclaim();
        return Ok(());
    }
    let plan = Plan::of(request, &mut options)?;
    status::begins(&request.text, &options);
    let next = next(vm, request);
    if let Some(period) = options.repeats_after {
        options.duration = Some(options.duration.map_or(period, |duration| duration.min(period)));
    }
    let prepared = PreparedSession::new(options, vm, is_attached).map_err(|error| failed(&error))?;
    events::arm(prepared).map_err(|error| failed(&error))?;
    events::set_repeating(next.is_some().then_some(begin_next));
    *NEXT.lock() = next;
    results::keep(plan);
    Ok(())
}

/// Starts a profile in a VM that runs, on a thread that it knows.
///
/// # Errors
/// [`Refusal`].
pub fn now(vm: Vm, request: &Request) -> Result<(), Refusal> {
    prepare(vm, request, true)?;
    events::start_now(vm).map_err(Refusal::Failed)
}

/// Returns the profile that follows the one that is asked for, if one does.
fn next(vm: Vm, request: &Request) -> Option<Next> {
    let Options { duration, repeats_after, .. } = request.options;
    let period = repeats_after?;
    let end = duration.map(|duration| Instant::now() + duration);
    let is_last = duration.is_some_and(|duration| duration <= period);
    (!is_last).then(|| Next { vm, door: request.door, text: request.text.clone(), end })
}

/// Begins the profile that follows one whose time is over, on a thread of its own: the VM must know the thread.
fn begin_next() {
    let Some(next) = NEXT.lock().take() else { return };
    let body = move || {
        // It inherits the sampler thread's mask, but a profile needs a signal that is not blocked. If this fails, it refuses.
        let _ = SigSet::empty().thread_set_mask();
        if let Err(reason) = start_next(&next) {
            log::print(&format!("profiling stops because the next profile does not begin: {reason}"));
        }
    };
    if let Err(error) = std::thread::Builder::new().name("tickwalk-loop".to_owned()).spawn(body) {
        log::print(&format!(
            "profiling stops because the thread for the next profile does not start: {error}"
        ));
    }
}

fn start_next(next: &Next) -> Result<(), String> {
    let left = next.end.map(|end| {
        let left = end.saturating_duration_since(Instant::now()).max(MIN_DURATION);
        format!("duration={}ns", left.as_nanos())
    });
    // The time in the name of its file is another one.
    let request = Request::of_layers(next.door, &[&next.text, &left.unwrap_or_default()])
        .map_err(|bad| bad.to_string())?;
    let _attached = next.vm.attach().map_err(|error| error.to_string())?;
    now(next.vm, &request).map_err(|refusal| refusal.to_string())
}
