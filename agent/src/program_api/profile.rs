//! Start, end and results of a profile, for the program that is profiled.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use profile::recording::Recording;

use super::output::{self, Output};
use super::{storage, thread_filter};
use crate::control::{self, Phase};
use crate::jvmti::callbacks;
use crate::jvmti::vm::Vm;
use crate::log;
use crate::options::{self, OptionError, Options};
use crate::start::{self, Refusal};

/// Settings of a start that count at its end.
static KEPT: Mutex<Kept> = Mutex::new(Kept { _storage: None, at_stop: None, is_asked: false, failure: None });

struct Kept {
    /// The recording, if it has no name; it lasts as long as this is open.
    _storage: Option<File>,
    /// File and format of the result that the end of the profile writes.
    at_stop: Option<(PathBuf, Output)>,
    /// True while the program waits for the end, and is told of a failure.
    is_asked: bool,
    /// Why that result could not be written.
    failure: Option<Failure>,
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
    /// A file cannot be read or written.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Self::Request(error.to_string())
    }
}

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
    let options = control::with_defaults(&request.options);
    let names_destination = Options::names_destination(&options);
    let parsed = Options::parse(&options)?;
    if options::is_for_api(&options) || !parsed.starts {
        return Err(Failure::Request("mode=api and start=no start no profile; leave them out".to_owned()));
    }
    if let Some((path, _)) = &request.at_stop {
        // A file that cannot be written is refused before the program is profiled for nothing.
        drop(create(path)?);
    }
    let mut kept = KEPT.lock();
    let made = match names_destination {
        true => None,
        false => Some(storage::unnamed().map_err(|error| {
            Failure::State(format!("no place for the recording: {error}; name one with file="))
        })?),
    };
    let path = made.as_ref().map(storage::path_of);
    start::now(vm, &options, path).map_err(|refusal| match refusal {
        Refusal::Claimed(claimed) => Failure::State(claimed.to_string()),
        Refusal::Failed(reason) => Failure::State(reason),
    })?;
    thread_filter::begin(request.filters);
    callbacks::set_on_end(ended);
    *kept = Kept { _storage: made, at_stop: request.at_stop, is_asked: false, failure: None };
    Ok(())
}

/// Ends the profile, and writes the result that its start asked for.
///
/// # Errors
/// [`Failure::State`] if no profile runs, [`Failure::File`] if the result cannot be written; the profile has ended then.
pub fn stop(vm: Vm) -> Result<(), Failure> {
    KEPT.lock().is_asked = true;
    let has_stopped = callbacks::stop_attached(vm);
    let mut kept = KEPT.lock();
    kept.is_asked = false;
    match kept.failure.take() {
        Some(failure) => Err(failure),
        None if has_stopped => Ok(()),
        None => Err(Failure::State("no profile runs in this JVM, so there is nothing to stop".to_owned())),
    }
}

/// Writes the result that the start of the profile asked for, however the profile has ended.
fn ended() {
    let Some((path, output)) = KEPT.lock().at_stop.take() else { return };
    let Err(failure) = dump_to(&path, output) else { return };
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
    let in_file = |error: io::Error| Failure::File { path: path.to_owned(), error };
    let source = read()?;
    // A reader sees either the former file or a whole new one.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = PathBuf::from(temporary);
    let mut file = BufWriter::new(File::create(&temporary).map_err(in_file)?);
    let written = output::write((&source.0, &source.1), output, &mut file)
        .map_err(io::Error::other)
        .and_then(|()| file.flush())
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // A file that cannot be removed stays; the error is about the output.
        let _ = fs::remove_file(&temporary);
        in_file(error)
    })
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
        let profile = profile::process::ProcessProfile::whole(&recording);
        profile.map_or(0, |profile| profile.total().samples)
    };
    read().map_or(0, |(_, recording)| count(recording))
}

/// Returns whether a profile runs.
pub fn is_running() -> bool {
    callbacks::phase() == Phase::Running
}

/// Returns whether results of a profile are here.
pub fn has_results() -> bool {
    control::recording().is_some()
}

/// Reads the recording of the last profile, up to now.
fn read() -> Result<(PathBuf, Recording), Failure> {
    callbacks::flush();
    let path = control::recording().ok_or_else(|| {
        Failure::State(match is_running() {
            true => {
                "the samples go to a collector, which has them; start with file= to have them here".to_owned()
            }
            false => "no profile has been started in this JVM".to_owned(),
        })
    })?;
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

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::File { path: path.to_owned(), error })
}
