//! Results of a profile: their formats, and what they show.

use std::path::PathBuf;

/// The content of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Stacks and methods as text.
    Text,
    Collapsed,
    Page,
    /// A flight recording.
    Jfr,
    /// OpenTelemetry profiles.
    Otlp,
    Pprof,
    Recording,
}

/// Format and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    pub format: Format,
    /// True if threads are apart.
    pub threads: bool,
    /// True if collapsed stacks are weighed in nanoseconds.
    pub total: bool,
    /// True if collapsed stacks have the names of threads and classes as async-profiler writes them.
    pub internal_names: bool,
    /// True for the account, in a text.
    pub summary: bool,
    /// Most stacks of a text.
    pub traces: Option<usize>,
    /// Most methods of a text.
    pub flat: Option<usize>,
}

impl Output {
    pub fn of(format: Format) -> Self {
        Self {
            format,
            threads: false,
            total: false,
            internal_names: false,
            summary: false,
            traces: None,
            flat: None,
        }
    }
}

/// A file that is written when the profile ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultFile {
    pub path: PathBuf,
    /// Content of the result.
    pub output: Output,
}

/// Suffixes of formats that the agent writes.
const SUFFIXES: [(&str, Format); 10] = [
    (".html", Format::Page),
    (".jfr", Format::Jfr),
    (".collapsed", Format::Collapsed),
    (".folded", Format::Collapsed),
    (".csv", Format::Collapsed),
    (".txt", Format::Text),
    (".otlp", Format::Otlp),
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".tickwalk", Format::Recording),
];

/// Suffixes of formats that only the command `tickwalk` writes.
const OF_THE_COMMAND: [&str; 3] = [".svg", ".json", ".parquet"];

/// Returns the format that the suffix of a file stands for; `None` for an unknown suffix.
pub fn format_of(path: &str) -> Option<Format> {
    SUFFIXES.iter().find(|(suffix, _)| path.ends_with(suffix)).map(|(_, format)| *format)
}

/// Returns whether the name is that of a format that the agent does not write.
pub fn is_of_the_command(path: &str) -> bool {
    OF_THE_COMMAND.iter().any(|suffix| path.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_suffix() {
        assert_eq!(format_of("/tmp/a.html"), Some(Format::Page));
        assert_eq!(format_of("a.pb.gz"), Some(Format::Pprof));
        assert_eq!(format_of("a.tickwalk"), Some(Format::Recording));
        assert!(["a", "html", "a.svg"].map(format_of).iter().all(Option::is_none));
        assert!(["a.svg", "a.parquet"].into_iter().all(is_of_the_command));
        assert!(!["a.html", "a", "svg"].into_iter().any(is_of_the_command));
    }
}
