//! The formats by name and by file suffix.

use std::path::Path;

/// A format that recordings can be exported in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Collapsed stacks, a line each.
    Collapsed,
    /// The heaviest stacks as text.
    Traces,
    /// The flame graph page.
    Flamegraph,
    Pprof,
    /// A flight recording.
    Jfr,
    Speedscope,
    /// The Firefox Profiler's JSON.
    Firefox,
    /// A request of OTLP profiles.
    Otlp,
    /// Two Parquet tables.
    Parquet,
}

/// Format, name, suffixes of files.
const FORMATS: &[(Format, &str, &[&str])] = &[
    (Format::Collapsed, "collapsed", &[".collapsed", ".folded", ".txt", ".csv"]),
    (Format::Traces, "traces", &[".traces"]),
    (Format::Flamegraph, "flamegraph", &[".html"]),
    (Format::Pprof, "pprof", &[".pb.gz", ".pprof"]),
    (Format::Jfr, "jfr", &[".jfr"]),
    (Format::Speedscope, "speedscope", &[".speedscope.json", ".speedscope"]),
    (Format::Firefox, "firefox", &[".firefox.json"]),
    (Format::Otlp, "otlp", &[".otlp", ".otlp.pb"]),
    (Format::Parquet, "parquet", &[".parquet"]),
];

/// No format has this name or file suffix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; the formats are {known}", what = what(.0), known = names_and_suffixes())]
pub struct UnknownFormat(String);

fn what(name: &str) -> String {
    match name {
        "" => "name a file with --output, or a format with --format".to_owned(),
        name => format!("unknown format '{name}'"),
    }
}

fn names_and_suffixes() -> String {
    let formats = FORMATS.iter().map(|(_, name, suffixes)| format!("{name} ({})", suffixes[0]));
    formats.collect::<Vec<_>>().join(", ")
}

impl UnknownFormat {
    /// Returns the error about a name or a file that no format has.
    pub fn of(name: &str) -> Self {
        UnknownFormat(name.to_owned())
    }
}

impl Format {
    /// Returns the format called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_name(name: &str) -> Result<Self, UnknownFormat> {
        let found = FORMATS.iter().find(|(_, known, _)| *known == name);
        found.map(|&(format, _, _)| format).ok_or_else(|| UnknownFormat(name.to_owned()))
    }

    /// Returns the format by the suffix of `path`.
    ///
    /// # Errors
    /// If no format has the suffix.
    pub fn of_file(path: &Path) -> Result<Self, UnknownFormat> {
        let name = path.to_string_lossy();
        let found =
            FORMATS.iter().find(|(_, _, suffixes)| suffixes.iter().any(|suffix| name.ends_with(suffix)));
        found.map(|&(format, _, _)| format).ok_or_else(|| UnknownFormat(name.into_owned()))
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|(_, name, _)| *name)
    }

    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("", |(_, name, _)| name)
    }

    pub fn suffix(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("", |(.., suffixes)| suffixes[0])
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Format::Collapsed | Format::Traces => "text/plain; charset=utf-8",
            Format::Flamegraph => "text/html; charset=utf-8",
            Format::Speedscope | Format::Firefox => "application/json",
            Format::Otlp => "application/x-protobuf",
            Format::Pprof | Format::Jfr | Format::Parquet => "application/octet-stream",
        }
    }

    /// Returns whether the file merges processes and does not state their modes.
    pub fn sums_processes(self) -> bool {
        matches!(self, Format::Collapsed | Format::Flamegraph)
    }

    /// Returns whether the format is binary and must not be printed to a terminal.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Pprof | Format::Jfr | Format::Otlp | Format::Parquet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_name_and_suffix() {
        for (format, name, suffixes) in FORMATS {
            assert_eq!(Format::of_name(name), Ok(*format));
            for suffix in *suffixes {
                assert_eq!(Format::of_file(Path::new(&format!("dir/app{suffix}"))), Ok(*format));
            }
        }
    }

    #[test]
    fn an_unknown_format_is_answered_with_the_known_ones() {
        let error = Format::of_name("pdf").expect_err("no such format").to_string();
        assert!(
            error.starts_with("unknown format 'pdf'; the formats are collapsed (.collapsed), "),
            "{error}"
        );
        assert!(FORMATS.iter().all(|(_, name, _)| error.contains(name)), "{error}");
        assert!(Format::of_file(Path::new("app.json")).is_err());
    }
}
