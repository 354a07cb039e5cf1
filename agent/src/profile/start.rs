//! The way from a text to a profile, the same for every door: the JVM's command line, an attach, Java and C.
//!
//! Approach: [`request`] reads the text, [`prepare`] does what can be done before the VM is initialised, [`now`]
//! prepares and starts in a VM that runs. All return the [`Refusal`] and print nothing; each door reports it in its
//! own way.
//! Invariant: after a refusal another profile can begin.

use std::time::Instant;

use nix::sys::signal::SigSet;

use super::refusal::Refusal;
use super::session::{self, PreparedSession};
use super::state::LastProfile;
use super::storage::Results;
use super::{events, results, run, state};
use crate::dumps::triggers;
use crate::guest::log;
use crate::jvmti::vm::Vm;
use agent_options::values::MIN_DURATION;
use agent_options::{Action, BadRequest, Door, Mode, Options, Request, environment};

/// Reads a request. A start in a process whose agent waits for one (`start=no`) has the options of the load first;
/// else a load or an attach has those of the environment first.
///
/// # Errors
/// As [`Request::parse`].
pub fn request(door: Door, text: &str) -> Result<Request, BadRequest> {
    let waiting = state::record().waiting.clone().filter(|_| door != Door::Load);
    match waiting {
        Some(waiting) => Request::of_layers(door, &[&waiting, "start=yes", text]),
        None if matches!(door, Door::Load | Door::Attach) => {
            Request::of_layers(door, &[&environment::options(std::env::vars_os()), text])
        }
        None => Request::parse(door, text),
    }
}

/// Claims the process and prepares the profile that is requested, or with `start=no` the wait for a start.
///
/// # Errors
/// [`Refusal`].
pub fn prepare(vm: Vm, request: &Request, is_attached: bool) -> Result<(), Refusal> {
    state::claim(run::end_after_panic)?;
    let prepared = prepare_claimed(vm, request, is_attached);
    if prepared.is_err() || !request.options.starts {
        state::free(None);
    }
    prepared
}

fn prepare_claimed(vm: Vm, request: &Request, is_attached: bool) -> Result<(), Refusal> {
    if request.action == Action::Resume && results::has_recording() {
        return Err(Refusal::Resume);
    }
    let mut options = request.options.clone();
    log::install(options.log);
    // Before the profile, which chooses a signal that is free then.
    triggers::arm(vm, &options.dumps, is_attached).map_err(Refusal::Dumps)?;
    if !options.starts {
        session::prepare_waiting(&options, vm, is_attached)?;
        state::record().waiting = Some(request.text.clone());
        return Ok(());
    }
    let results = Results::of(&mut options)?;
    let mut record = state::record();
    record.filter.begin(request.filter.as_ref());
    record.profile =
        Some(LastProfile { text: request.text.clone(), options: options.clone(), since: Instant::now() });
    drop(record);
    let next = next(vm, request);
    if let Some(period) = options.repeats_after {
        options.duration = Some(options.duration.map_or(period, |duration| duration.min(period)));
    }
    let mut prepared = PreparedSession::new(options, vm, is_attached)?;
    let is_chosen: fn(i32) -> bool = |tid| state::record().filter.has(tid, u64::MAX);
    prepared.is_chosen = request.filter.as_ref().map(|_| is_chosen);
    events::arm(prepared).map_err(Refusal::Events)?;
    let mut record = state::record();
    record.next = next;
    record.results = results;
    Ok(())
}

/// Starts a profile in a VM that runs, on a thread of the VM. Without a destination in the options it is
/// recorded into a file without a name.
///
/// # Errors
/// [`Refusal`].
pub fn now(vm: Vm, request: &Request) -> Result<(), Refusal> {
    if request.options.mode == Mode::Api || !request.options.starts {
        return Err(Refusal::Request("mode=api and start=no start no profile; leave them out".to_owned()));
    }
    prepare(vm, request, true)?;
    run::begin_now(vm)
}

/// Returns the start of the profile that follows the requested one, if one does (`loop=`).
fn next(vm: Vm, request: &Request) -> Option<Box<dyn FnOnce() + Send>> {
    let Options { duration, repeats_after, .. } = request.options;
    let period = repeats_after?;
    let end = duration.map(|duration| Instant::now() + duration);
    let is_last = duration.is_some_and(|duration| duration <= period);
    let (door, text) = (request.door, request.text.clone());
    (!is_last).then(|| Box::new(move || start_next_on_thread(vm, door, text, end)) as _)
}

/// Starts the next profile on a thread of its own, because the VM must know the thread.
fn start_next_on_thread(vm: Vm, door: Door, text: String, end: Option<Instant>) {
    let body = move || {
        // It inherits the sampler thread's mask, but a profile needs a signal that is not blocked. If this fails,
        // it refuses.
        let _ = SigSet::empty().thread_set_mask();
        if let Err(refusal) = start_next(vm, door, &text, end) {
            log::print(&format!("profiling stops because the next profile does not begin: {refusal}"));
        }
    };
    if let Err(error) = std::thread::Builder::new().name("tickwalk-loop".to_owned()).spawn(body) {
        log::print(&format!(
            "profiling stops because the thread for the next profile does not start: {error}"
        ));
    }
}

fn start_next(vm: Vm, door: Door, text: &str, end: Option<Instant>) -> Result<(), Refusal> {
    let left = end.map(|end| {
        let left = end.saturating_duration_since(Instant::now()).max(MIN_DURATION);
        format!("duration={}ns", left.as_nanos())
    });
    // Read again, because `%t` in the name of the file stands for another time.
    let request = Request::of_layers(door, &[text, &left.unwrap_or_default()])?;
    let _attached = vm.attach().map_err(Refusal::Thread)?;
    now(vm, &request)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// One test, because the options are kept for the process.
    #[test]
    fn options_of_a_start_follow_those_of_the_load() {
        let of = |text: &str| request(Door::C, text).expect("valid");
        assert_eq!(of("interval=1ms").text, "interval=1ms");
        state::record().waiting = Some("start=no,interval=5ms,file=a".to_owned());
        let options = of("").options;
        assert!(options.starts && options.interval == Duration::from_millis(5));
        assert_eq!(options.file.as_deref(), Some(Path::new("a")));
        assert!(!of("start=no").options.starts);
        let stop = of("stop");
        assert!(stop.file.is_none() && stop.text == "stop", "only a start has them: {stop:?}");
    }
}
