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
    (path, recording): (&Path, &Recording),
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
        Format::Page => return standalone::write(recording, &Selection::default(), 0, out),
        _ => {}
    }
    let profile = ProcessProfile::whole(recording)?;
    match output.format {
        Format::Text => text::write(&profile, parts(output), out)?,
        Format::Collapsed => {
            let unit = if output.total { Unit::Nanoseconds } else { Unit::Samples };
            collapsed::write(&profile, Options { unit, threads, internal_names, ..Options::default() }, out)?;
        }
        // Tools for async-profiler's recordings read jdk.ExecutionSample.
        Format::Jfr => jfr::write(&profile, Options { execution_samples: true, ..Options::default() }, out)?,
        Format::Otlp => otlp::write(&profile, out)?,
        Format::Pprof => pprof::write(&profile, out)?,
        Format::Page | Format::Recording => {}
    }
    Ok(())
}

/// Returns what a text has: everything, unless parts are asked for.
fn parts(output: Output) -> Parts {
    let Output { summary, traces, flat, threads, .. } = output;
    if !summary && traces.is_none() && flat.is_none() {
        return Parts { account: true, stacks: STACKS, methods: METHODS, threads };
    }
    // The account tells how far the tables can be trusted, so every text begins with it.
    Parts { account: true, stacks: traces.unwrap_or(0), methods: flat.unwrap_or(0), threads }
}
