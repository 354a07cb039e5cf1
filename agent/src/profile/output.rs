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

/// Default sizes of a text.
const STACKS: usize = 100;
const METHODS: usize = 200;

/// The content of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Stacks and methods as text.
    Text,
    /// Collapsed stacks.
    Collapsed,
    /// The page with its data.
    Page,
    /// A flight recording.
    Jfr,
    /// OpenTelemetry profiles.
    Otlp,
    /// pprof.
    Pprof,
    /// The recording itself.
    Recording,
}

/// Format and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The format.
    pub format: Format,
    /// True if threads are apart.
    pub threads: bool,
    /// True if collapsed stacks are weighed in nanoseconds.
    pub total: bool,
    /// True for the account, in a text.
    pub summary: bool,
    /// Most stacks of a text.
    pub traces: Option<usize>,
    /// Most methods of a text.
    pub flat: Option<usize>,
}

impl Output {
    /// Returns a format with its defaults.
    pub fn of(format: Format) -> Self {
        Self { format, threads: false, total: false, summary: false, traces: None, flat: None }
    }
}

/// Returns the format by the suffix of a file; a text for an unknown suffix, as async-profiler does.
pub fn format_of(path: &str) -> Format {
    const SUFFIXES: [(&str, Format); 9] = [
        (".html", Format::Page),
        (".jfr", Format::Jfr),
        (".collapsed", Format::Collapsed),
        (".folded", Format::Collapsed),
        (".csv", Format::Collapsed),
        (".otlp", Format::Otlp),
        (".pb.gz", Format::Pprof),
        (".pprof", Format::Pprof),
        (".tickwalk", Format::Recording),
    ];
    SUFFIXES.iter().find(|(suffix, _)| path.ends_with(suffix)).map_or(Format::Text, |(_, format)| *format)
}

/// Writes the result of the recording at `path`, read as `recording`.
///
/// # Errors
/// If writing fails.
pub fn write(
    (path, recording): (&Path, &Recording),
    output: Output,
    out: &mut (dyn Write + Send),
) -> Result<(), QueryError> {
    let Output { threads, .. } = output;
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
            collapsed::write(&profile, Options { unit, threads, ..Options::default() }, out)?;
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
