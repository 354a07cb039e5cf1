//! Results of a profile: what its start asks for is written at its end, whatever ends it.
//!
//! Approach: a profile without a recording of its own is recorded into a file without a name ([`storage`]), from which the
//! exporters make results at any time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use profile::export::whole_file::{self, WriteError};
use profile::source::recording::Recording;
use sampler_thread::descriptor::OwnedDescriptor;

use super::{output, storage, thread_filter};
use crate::guest::log;
use crate::profile::events;
use crate::profile::status::{self, Phase};
use agent_options::output::{Format, Output, ResultFile};
use agent_options::{BadRequest, Options, Request};

/// The plan of the last profile.
static KEPT: Mutex<Kept> =
    Mutex::new(Kept { plan: Plan { storage: None, at_end: None }, is_asked: false, failure: None });

struct Kept {
    plan: Plan,
    /// True while the program waits for the end, and is told of a failure.
    is_asked: bool,
    /// Why the result could not be written.
    failure: Option<Failure>,
}

/// Where a profile is recorded, and the result at its end.
#[derive(Debug)]
pub struct Plan {
    /// The recording, if it has no name; it lasts as long as this is open.
    storage: Option<OwnedDescriptor<File>>,
    /// The result that the end of the profile writes.
    at_end: Option<ResultFile>,
}

impl Plan {
    /// Plans the results of a profile, sets its recording in the options, and begins its filter.
    ///
    /// # Errors
    /// [`Failure`] if there is no place for the recording, or the result cannot be written.
    pub fn of(request: &Request, options: &mut Options) -> Result<Self, Failure> {
        let at_end = options.result.clone();
        if let Some(result) = &at_end {
            // A file that cannot be written is refused before the program is profiled for nothing.
            whole_file::check(&result.path)
                .map_err(|error| Failure::File { path: result.path.clone(), error })?;
        }
        let needs_storage = options.file.is_none() && (at_end.is_some() || options.collector.is_none());
        let storage = needs_storage.then(storage::unnamed).transpose().map_err(|error| {
            Failure::State(format!("no place for the recording: {error}; name one with file=NAME.tickwalk"))
        })?;
        if let Some(storage) = &storage {
            options.file = Some(storage::path_of(storage));
        }
        thread_filter::begin(request.filter.as_ref());
        Ok(Self { storage, at_end })
    }
}

/// Why a request is refused, in one line for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The request is wrong.
    #[error("{0}")]
    Request(String),
    /// The state of the agent does not allow it.
    #[error("{0}")]
    State(String),
    /// No profile runs.
    #[error("Profiler is not active")]
    NotActive,
    /// A profile runs already.
    #[error("Profiler already started")]
    Active,
    /// No profile has been started.
    #[error("Profiler has not started")]
    NotStarted,
    /// A file cannot be read or written.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl From<BadRequest> for Failure {
    fn from(bad: BadRequest) -> Self {
        Self::Request(bad.to_string())
    }
}

/// Keeps the plan of a profile that begins.
pub fn keep(plan: Plan) {
    events::set_on_end(ended);
    *KEPT.lock() = Kept { plan, is_asked: false, failure: None };
}

/// Ends the profile by `stop`, which returns whether one ran; its result is written then. Returns the same.
///
/// # Errors
/// [`Failure::File`] if the result cannot be written; the profile has ended then.
pub fn end_by(stop: impl FnOnce() -> bool) -> Result<bool, Failure> {
    KEPT.lock().is_asked = true;
    let has_stopped = stop();
    let mut kept = KEPT.lock();
    kept.is_asked = false;
    kept.failure.take().map_or(Ok(has_stopped), Err)
}

/// Writes the result that the start of the profile asked for, however the profile has ended.
fn ended() {
    let Some(result) = KEPT.lock().plan.at_end.take() else { return };
    let Err(failure) = dump_to(&result.path, result.output) else { return };
    let mut kept = KEPT.lock();
    match kept.is_asked {
        true => kept.failure = Some(failure),
        false => log::print(&failure.to_string()),
    }
}

/// Writes a result of the profile so far to a file.
///
/// # Errors
/// [`Failure`].
pub fn dump_to(path: &Path, output: Output) -> Result<(), Failure> {
    let source = read()?;
    if is_same_file(&source.0, path) {
        return match output.format {
            Format::Recording => Ok(()),
            _ => Err(Failure::Request(format!(
                "{} is the recording itself; name another file",
                path.display()
            ))),
        };
    }
    let write = |out: &mut (dyn Write + Send)| output::write((&source.0, &source.1), output, out);
    whole_file::write(path, write).map_err(|error| match error {
        WriteError::File(error) => Failure::File { path: path.to_owned(), error },
        WriteError::Content(error) => Failure::State(format!("{} is not written: {error}", path.display())),
    })
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Returns a result of the profile so far.
///
/// # Errors
/// [`Failure::State`] if there is no profile whose recording is here.
pub fn dump(output: Output) -> Result<Vec<u8>, Failure> {
    let source = read()?;
    let mut bytes = Vec::new();
    output::write((&source.0, &source.1), output, &mut bytes)
        .map_err(|error| Failure::State(error.to_string()))?;
    Ok(bytes)
}

/// Returns the number of samples of the last profile, so far.
pub fn samples() -> u64 {
    let count = |recording: Recording| {
        let profile = profile::query::process::ProcessProfile::whole(&recording);
        profile.map_or(0, |profile| profile.total().samples)
    };
    read().map_or(0, |(_, recording)| count(recording))
}

/// Returns whether results of a profile are here.
pub fn has_results() -> bool {
    status::recording().is_some()
}

/// Reads the recording of the last profile, up to now.
fn read() -> Result<(PathBuf, Recording), Failure> {
    events::flush();
    let path = status::recording().ok_or_else(|| match events::phase() == Phase::Running {
        true => Failure::State(
            "the samples go to a collector, which has them; start with file= to have them here".to_owned(),
        ),
        false => Failure::NotStarted,
    })?;
    if KEPT.lock().plan.storage.as_ref().is_some_and(|storage| storage.get().is_err()) {
        return Err(Failure::State(
            "the recording is lost, because the program has closed its descriptor; start with file= to keep it".to_owned(),
        ));
    }
    let mut recording = Recording::read(&path).map_err(|error| {
        let name =
            if storage::is_unnamed(&path) { "the recording".to_owned() } else { path.display().to_string() };
        Failure::State(format!("cannot read {name}: {error}"))
    })?;
    let filter = thread_filter::last();
    if filter.is_on() {
        recording.retain(|tid, time_ns| i32::try_from(tid).is_ok_and(|tid| filter.has(tid, time_ns)));
    }
    Ok((path, recording))
}
