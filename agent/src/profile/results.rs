//! Results of a profile, made from its recording by the exporters.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::SigSet;
use profile::export::whole_file::{self, Readers, WriteError};
use profile::query::process::ProcessProfile;
use profile::source::recording::Recording;

use super::refusal::Refusal;
use super::state::Phase;
use super::{output, state, storage};
use crate::guest::log;
use agent_options::output::{Format, Output};

/// Longest wait for the samples of a profile that runs.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Name of the thread that writes the result.
const WRITER_NAME: &str = "tickwalk-result";

/// Runs `stop`, which ends the profile, and returns its outcome, or why the result of the profile was not written.
///
/// # Errors
/// As `stop`, and [`Refusal::File`] if the result cannot be written; the profile has ended then.
pub fn written_by(stop: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
    state::record().results.is_awaited = true;
    let stopped = stop();
    let mut record = state::record();
    record.results.is_awaited = false;
    record.results.failure.take().map_or(stopped, Err)
}

/// Writes the result that the start of the profile asked for, however the profile has ended.
pub fn write_at_end() {
    let Some(result) = state::record().results.at_end.take() else { return };
    let write = || dump_to(&result.path, result.output);
    // A new thread gets the memory that the sampler thread has freed: malloc keeps it for threads to come.
    let written = std::thread::scope(|scope| {
        // The new thread inherits the mask, so that no signal of the host lands on it.
        let before = SigSet::thread_get_mask();
        _ = SigSet::all().thread_block();
        let writer = std::thread::Builder::new().name(WRITER_NAME.to_owned()).spawn_scoped(scope, write);
        if let Ok(before) = before {
            _ = before.thread_set_mask();
        }
        writer.map_or_else(|_| write(), |writer| writer.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let Err(refusal) = written else { return };
    let mut record = state::record();
    if record.results.is_awaited {
        record.results.failure = Some(refusal);
    } else {
        drop(record);
        log::print(&refusal.to_string());
    }
}

/// Writes a result of the profile so far to a file.
///
/// # Errors
/// [`Refusal`].
pub fn dump_to(path: &Path, output: Output) -> Result<(), Refusal> {
    let (source, recording) = read()?;
    if is_same_file(&source, path) {
        return match output.format {
            Format::Recording => Ok(()),
            _ => Err(Refusal::Request(format!(
                "{} is the recording itself; name another file",
                path.display()
            ))),
        };
    }
    let write = |out: &mut (dyn Write + Send)| output::write(&source, recording, output, out);
    whole_file::write(path, Readers::Owner, write).map_err(|error| match error {
        WriteError::File(error) => Refusal::File { path: path.to_owned(), error },
        WriteError::Content(error) => {
            Refusal::NoResult(format!("{} is not written: {error}", path.display()))
        }
    })
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Returns a result of the profile so far.
///
/// # Errors
/// [`Refusal::NoResult`] if there is no profile whose recording is here.
pub fn dump(output: Output) -> Result<Vec<u8>, Refusal> {
    let (source, recording) = read()?;
    let mut bytes = Vec::new();
    output::write(&source, recording, output, &mut bytes)
        .map_err(|error| Refusal::NoResult(error.to_string()))?;
    Ok(bytes)
}

/// Returns the number of samples of the last profile, so far.
pub fn samples() -> u64 {
    read().map_or(0, |(_, recording)| ProcessProfile::of_recording(recording).total().samples)
}

/// Returns whether the last profile has a recording here.
pub fn has_recording() -> bool {
    recording().is_some()
}

/// Returns the path of the recording of the last profile, if it has one.
fn recording() -> Option<PathBuf> {
    state::record().profile.as_ref()?.options.file.clone()
}

/// Reads the recording of the last profile, up to now.
fn read() -> Result<(PathBuf, Recording), Refusal> {
    flush();
    let path = recording().ok_or_else(|| match state::phase() {
        Phase::Running => Refusal::NoResult(
            "the samples go to a collector, which has them; start with file= to have them here".to_owned(),
        ),
        _ => Refusal::NotStarted,
    })?;
    let record = state::record();
    let (is_lost, filter) = (record.results.is_lost(), record.filter.clone());
    drop(record);
    if is_lost {
        return Err(Refusal::NoResult(
            "the recording is lost, because the program has closed its descriptor; start with file= to keep it".to_owned(),
        ));
    }
    let mut recording = Recording::read(&path).map_err(|error| {
        let name =
            if storage::is_unnamed(&path) { "the recording".to_owned() } else { path.display().to_string() };
        Refusal::NoResult(format!("cannot read {name}: {error}"))
    })?;
    if filter.is_on() {
        recording.retain(|tid, time_ns| i32::try_from(tid).is_ok_and(|tid| filter.has(tid, time_ns)));
    }
    Ok((path, recording))
}

/// Sends every sample of the running profile to its destinations; waits for that up to a second.
fn flush() {
    state::with_session(|session| session.flush(FLUSH_PATIENCE));
}
