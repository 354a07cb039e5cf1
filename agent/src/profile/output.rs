//! Results from a recording in the formats of async-profiler's commands, by the exporters of `tickwalk export`.

use std::io::{self, Write};
use std::path::Path;

use profile::export::collapsed::{self, Unit};
use profile::export::text::{self, Parts};
use profile::export::{Options, jfr, otlp, pprof};
use profile::query::error::QueryError;
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::source::recording::Recording;
use profile::ui::standalone;

use agent_options::output::{Format, Output};

/// Default sizes of a text.
const STACKS: usize = 100;
const METHODS: usize = 200;

/// Writes the result of the recording at `path`, read as `recording`.
///
/// # Errors
/// If writing fails.
pub fn write(
    path: &Path,
    recording: Recording,
    output: Output,
    out: &mut (dyn Write + Send),
) -> Result<(), QueryError> {
    let Output { threads, internal_names, .. } = output;
    match output.format {
        Format::Recording => {
            let mut bytes = std::fs::File::open(path)?;
            io::copy(&mut bytes, out)?;
            return Ok(());
        }
        Format::Page => return standalone::write(&recording, &Selection::default(), 0, out),
        _ => {}
    }
    let profile = ProcessProfile::of_recording(recording);
    match output.format {
        Format::Text => text::write(&profile, parts(output), out)?,
        Format::Collapsed => {
            let unit = if output.total { Unit::Nanoseconds } else { Unit::Samples };
            collapsed::write(&profile, Options { unit, threads, internal_names, ..Options::default() }, out)?;
        }
        // Tools for async-profiler's recordings read jdk.ExecutionSample.
        Format::Jfr => jfr::write(&profile, Options::default(), out)?,
        Format::Otlp => otlp::write(&profile, out)?,
        Format::Pprof => pprof::write(&profile, out)?,
        Format::Page | Format::Recording => {}
    }
    Ok(())
}

/// Returns the parts of a text: both tables, unless the request names parts.
fn parts(output: Output) -> Parts {
    let Output { summary, traces, flat, threads, .. } = output;
    let (stacks, methods) = match summary || traces.is_some() || flat.is_some() {
        true => (traces.unwrap_or(0), flat.unwrap_or(0)),
        false => (STACKS, METHODS),
    };
    // Every text begins with the account, which states how far the tables can be trusted.
    Parts { account: true, stacks, methods, threads }
}
