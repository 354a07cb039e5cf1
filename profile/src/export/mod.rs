//! Profiles in the formats of other tools, one module for each, and as text tables.
//!
//! Each format is written from a [`ProcessProfile`](crate::query::process::ProcessProfile), or from those of several
//! processes.

pub mod call_tree;
pub mod collapsed;
mod comments;
pub mod firefox;
mod frames;
pub mod jfr;
pub mod otlp;
pub mod overview;
pub mod parquet;
pub mod pprof;
pub mod speedscope;
mod strings;
pub mod table;
pub mod text;
pub mod whole_file;

use std::io::Write;

use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::query::selection::Selection;
use crate::source::Source;
use crate::text::format::Format;
use crate::ui::standalone;

/// Processes of a selection, read one after the other.
pub type Profiles<'s> = Box<dyn Iterator<Item = Result<ProcessProfile, QueryError>> + 's>;

/// Options of some formats.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Unit of the weights of collapsed stacks.
    pub unit: collapsed::Unit,
    /// True if each collapsed stack begins with its thread's name.
    pub threads: bool,
    /// True if collapsed stacks are written as async-profiler writes them: classes as `package/Class`, threads as
    /// `[name tid=N]`.
    pub internal_names: bool,
    /// True if frames of collapsed stacks and of speedscope have lines; else all lines of a method are one frame.
    pub lines: bool,
    /// True if JFR has each sample as `jdk.CPUTimeSample`, with its CPU time, in place of `jdk.ExecutionSample`.
    pub cpu_time_samples: bool,
    /// Most stacks of the format `traces`; `None` for [`text::TRACES`].
    pub stacks: Option<usize>,
    /// Table of a Parquet export; required for that format.
    pub table: Option<parquet::Table>,
}

impl Options {
    /// Returns the options that differ from the default as parameters of a question.
    pub fn pairs(self) -> Vec<(String, String)> {
        let yes = |is_set: bool| is_set.then(|| "true".to_owned());
        let unit = (self.unit == collapsed::Unit::Nanoseconds).then(|| "ns".to_owned());
        let table = self.table.map(|table| match table {
            parquet::Table::Samples => "samples".to_owned(),
            parquet::Table::Stacks => "stacks".to_owned(),
        });
        let pairs = [
            ("unit", unit),
            ("threads", yes(self.threads)),
            ("lines", yes(self.lines)),
            ("cpu_time_samples", yes(self.cpu_time_samples)),
            ("limit", self.stacks.map(|stacks| stacks.to_string())),
            ("table", table),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Writes the samples of `selection` in `source` to `out`.
///
/// # Errors
/// If the selection has no samples or too many processes, if the source cannot be read or writing fails.
pub fn write(
    source: &dyn Source,
    selection: &Selection,
    format: Format,
    options: Options,
    now_ns: u64,
    out: &mut (dyn Write + Send),
) -> Result<(), QueryError> {
    if format == Format::Flamegraph {
        return standalone::write(source, selection, now_ns, out);
    }
    let profile = match ProcessProfile::of(source, selection, now_ns) {
        Err(QueryError::OneProcess(2..)) => {
            return write_each(source, selection, format, options, now_ns, out);
        }
        profile => profile?,
    };
    if profile.is_part() && profile.samples().is_empty() {
        return Err(selection.no_samples());
    }
    match format {
        Format::Collapsed => collapsed::write(&profile, options, out)?,
        Format::Flamegraph => {}
        Format::Traces => text::write(&profile, text::Parts::traces(options), out)?,
        Format::Pprof => pprof::write(&profile, out)?,
        Format::Jfr => jfr::write(&profile, options, out)?,
        Format::Speedscope => speedscope::write(&profile, options, out)?,
        Format::Firefox => firefox::write(&profile, out)?,
        Format::Otlp => otlp::write(&profile, out)?,
        Format::Parquet => parquet::write(&profile, options.table.ok_or(QueryError::Missing("table"))?, out)?,
    }
    Ok(())
}

/// Writes the samples of several processes to `out`.
fn write_each(
    source: &dyn Source,
    selection: &Selection,
    format: Format,
    options: Options,
    now_ns: u64,
    out: &mut (dyn Write + Send),
) -> Result<(), QueryError> {
    let mut profiles = ProcessProfile::each(source, selection, now_ns)?.peekable();
    if profiles.peek().is_none() {
        return Err(selection.no_samples());
    }
    let profiles: Profiles<'_> = Box::new(profiles);
    match format {
        Format::Flamegraph => Ok(()),
        Format::Traces => text::write_each(profiles, text::Parts::traces(options), out),
        Format::Collapsed => collapsed::write_each(profiles, options, out),
        Format::Pprof => pprof::write_each(profiles, out),
        Format::Jfr => jfr::write_each(profiles, options, out),
        Format::Speedscope => speedscope::write_each(profiles, options, out),
        Format::Firefox => firefox::write_each(profiles, out),
        Format::Otlp => otlp::write_each(profiles, out),
        Format::Parquet => {
            parquet::write_each(profiles, options.table.ok_or(QueryError::Missing("table"))?, out)
        }
    }
}
