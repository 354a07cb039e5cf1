//! The format of a file that gets a profile: a recording, or one of the formats of `tickwalk export`.

use std::path::{Path, PathBuf};

use agent_options::output::{self as of_agent, is_of_the_command};
use profile::export::parquet::Table;
use profile::export::whole_file::Readers;
use profile::export::{self, Options};
use profile::query::selection::Selection;
use profile::source::recording::Recording;
use profile::text::format::{Format, UnknownFormat};

use crate::output;
use crate::source::now_ns;

/// Name of the format of recordings, and their suffix without the dot.
const RECORDING: &str = "tickwalk";

/// Suffixes of formats that other programs write, besides those that the agent refuses.
const OTHERS: [&str; 5] = ["xml", "png", "pdf", "hprof", "nps"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// A recording, which has everything.
    Recording,
    /// The report that the command prints.
    Report,
    Export(Format),
}

impl FileFormat {
    /// Returns `named`, else the format of the suffix of `path`, else that of recordings.
    ///
    /// # Errors
    /// If the suffix is that of a format that is not written.
    fn of(named: Option<FileFormat>, path: &Path) -> Result<FileFormat, UnknownFormat> {
        match (named, Format::of_file(path)) {
            (Some(format), _) => Ok(format),
            (None, Ok(format)) => Ok(FileFormat::Export(format)),
            (None, Err(error)) if is_of_other_programs(path) => Err(error),
            (None, Err(_)) => Ok(FileFormat::Recording),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            FileFormat::Recording => "recording",
            FileFormat::Report => "report",
            FileFormat::Export(format) => format.name(),
        }
    }

    /// Returns what the agent calls the format; `None` if it does not write it.
    fn of_agent(self) -> Option<of_agent::Format> {
        match self {
            FileFormat::Recording => Some(of_agent::Format::Recording),
            FileFormat::Report | FileFormat::Export(Format::Traces) => Some(of_agent::Format::Text),
            FileFormat::Export(Format::Collapsed) => Some(of_agent::Format::Collapsed),
            FileFormat::Export(Format::Flamegraph) => Some(of_agent::Format::Page),
            FileFormat::Export(Format::Jfr) => Some(of_agent::Format::Jfr),
            FileFormat::Export(Format::Otlp) => Some(of_agent::Format::Otlp),
            FileFormat::Export(Format::Pprof) => Some(of_agent::Format::Pprof),
            FileFormat::Export(Format::Speedscope | Format::Firefox | Format::Parquet) => None,
        }
    }

    /// Returns the agent's option for the format; `None` if only the suffix of the file stands for it.
    fn option(self) -> Option<&'static str> {
        match self {
            FileFormat::Report => Some("flat"),
            FileFormat::Export(
                format @ (Format::Collapsed
                | Format::Traces
                | Format::Flamegraph
                | Format::Jfr
                | Format::Otlp),
            ) => Some(format.name()),
            FileFormat::Recording | FileFormat::Export(_) => None,
        }
    }

    /// Returns the suffix of its files, without the dot.
    pub fn suffix(self) -> &'static str {
        match self {
            FileFormat::Recording => RECORDING,
            FileFormat::Report => "txt",
            FileFormat::Export(format) => format.suffix().trim_start_matches('.'),
        }
    }

    /// Returns where the recording is written if the user asked for `path` in this format: at `path`, or beside it.
    pub fn recording_path(self, path: &Path) -> PathBuf {
        match self {
            FileFormat::Recording => path.to_owned(),
            FileFormat::Report | FileFormat::Export(_) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                // A suffix may have two parts, as in .pb.gz; a file without a stem keeps its name.
                let stem = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&name);
                path.with_file_name(format!("{stem}.{RECORDING}"))
            }
        }
    }
}

pub fn format_by_name(name: &str) -> Result<FileFormat, UnknownFormat> {
    match name {
        RECORDING => Ok(FileFormat::Recording),
        name => Format::of_name(name).map(FileFormat::Export),
    }
}

/// Returns whether the suffix of a name is that of a format that other programs write for profiles or pictures. Other
/// suffixes, such as those of versions and of temporary files, stand for nothing.
fn is_of_other_programs(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let suffix = Path::new(&name).extension().and_then(|suffix| suffix.to_str());
    is_of_the_command(&name) || suffix.is_some_and(|suffix| OTHERS.contains(&suffix))
}

/// Reads the name of a format, including async-profiler's names.
fn format_by_word(word: &str) -> Option<FileFormat> {
    match word {
        "tree" | "html" => Some(FileFormat::Export(Format::Flamegraph)),
        "flat" | "text" => Some(FileFormat::Report),
        word => format_by_name(word).ok(),
    }
}

/// The options that name a result: a file, or a format and its file, as async-profiler's users write them.
#[derive(Clone, Copy, Debug)]
pub struct ResultOptions<'o> {
    /// A file, or the name of a format.
    pub output: Option<&'o Path>,
    /// The file of the format that `output` names.
    pub file: Option<&'o Path>,
    pub format: Option<FileFormat>,
}

/// Why the options name no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongResult {
    #[error(transparent)]
    Unknown(#[from] UnknownFormat),
    /// `--output` is no format although `--file` names the file.
    #[error("with --file, --output must be the name of a format: {0}")]
    NoFormat(UnknownFormat),
    /// `--output` and `--format` name formats.
    #[error("--output is the name of a format here; leave --format out, or name a file with --output")]
    TwoFormats,
    /// The agent writes the format only to files with its suffix.
    #[error("a JVM writes the format {format} only to a file with the suffix .{suffix}, not to {path}")]
    Suffix { format: &'static str, suffix: &'static str, path: String },
    #[error(
        "a JVM does not write the format {0}; let it write a recording, and use 'tickwalk export --format {0}'"
    )]
    NotOfAgent(&'static str),
}

/// A file that a command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultFile {
    pub path: PathBuf,
    pub format: FileFormat,
    /// True if an option names the format, rather than the suffix of the file.
    pub is_format_named: bool,
}

impl ResultFile {
    /// Returns the file that the options name; `None` if they ask for no more than the printed report.
    ///
    /// # Errors
    /// If the name of a format is unknown, two are named, or a suffix is that of a format that is not written.
    pub fn of(options: ResultOptions<'_>) -> Result<Option<ResultFile>, WrongResult> {
        let ResultOptions { output, file, format } = options;
        let word = output.and_then(Path::to_str).and_then(format_by_word);
        if word.is_some() && format.is_some() {
            return Err(WrongResult::TwoFormats);
        }
        let named = format.or(word);
        let path = match (output.filter(|_| word.is_none()), file) {
            (Some(output), Some(_)) => {
                return Err(WrongResult::NoFormat(UnknownFormat::of(&output.to_string_lossy())));
            }
            (Some(path), None) | (None, Some(path)) => path.to_owned(),
            (None, None) => match named {
                None | Some(FileFormat::Report) => return Ok(None),
                Some(format) => PathBuf::from(format!("recording.{}", format.suffix())),
            },
        };
        Ok(Some(ResultFile { format: FileFormat::of(named, &path)?, path, is_format_named: named.is_some() }))
    }

    /// Returns the agent's option for the format; `None` if the suffix of the file is enough.
    ///
    /// # Errors
    /// If the agent would write another format.
    pub fn agent_option(&self) -> Result<Option<&'static str>, WrongResult> {
        let path = self.path.to_string_lossy();
        let by_suffix = of_agent::format_of(&path).unwrap_or(of_agent::Format::Recording);
        let wanted = self.format.of_agent();
        let is_enough = wanted == Some(by_suffix);
        match (self.format.option(), wanted) {
            (option @ Some(_), _) if self.is_format_named || !is_enough => Ok(option),
            // The agent's own check names the command for such a suffix.
            _ if is_enough || is_of_the_command(&path) => Ok(None),
            (_, Some(_)) => {
                let (format, suffix) = (self.format.name(), self.format.suffix());
                Err(WrongResult::Suffix { format, suffix, path: path.into_owned() })
            }
            (_, None) => Err(WrongResult::NotOfAgent(self.format.name())),
        }
    }

    /// Writes the file, unless it is the recording itself; `report` is what the command prints.
    pub fn write(&self, recording: &Recording, options: Options, report: &str) -> anyhow::Result<()> {
        match self.format {
            FileFormat::Recording => Ok(()),
            FileFormat::Report => {
                output::write_file(&self.path, Readers::Owner, |out| out.write_all(report.as_bytes()))
            }
            FileFormat::Export(format) => export_file(recording, format, options, &self.path),
        }
    }
}

/// Writes a recording to `path` in another format.
fn export_file(recording: &Recording, format: Format, options: Options, path: &Path) -> anyhow::Result<()> {
    for (path, options) in files(format, path, options) {
        output::write_file(&path, Readers::Owner, |out| {
            let all = Selection::default();
            export::write(recording, &all, format, options, now_ns(), out)
        })?;
    }
    Ok(())
}

/// Returns the files of a format with the options that write them: Parquet has two tables.
pub fn files(format: Format, path: &Path, options: Options) -> Vec<(PathBuf, Options)> {
    if format != Format::Parquet {
        return vec![(path.to_owned(), options)];
    }
    let name = path.to_string_lossy();
    let base = name.strip_suffix(".parquet").unwrap_or(&name);
    let file = |table, name| {
        (PathBuf::from(format!("{base}.{name}.parquet")), Options { table: Some(table), ..options })
    };
    vec![file(Table::Samples, "samples"), file(Table::Stacks, "stacks")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_lie_beside_other_formats() {
        for (path, recording) in [
            ("out/app.jfr", "out/app.tickwalk"),
            ("app.pb.gz", "app.tickwalk"),
            ("app.tickwalk", "app.tickwalk"),
            ("app", "app"),
            ("v1.2", "v1.2"),
        ] {
            let path = Path::new(path);
            let format = FileFormat::of(None, path).expect("a format");
            assert_eq!(format.recording_path(path), Path::new(recording));
        }
        let jfr = format_by_name("jfr").expect("a format");
        assert_eq!(FileFormat::of(Some(jfr), Path::new("app.html")), Ok(FileFormat::Export(Format::Jfr)));
        assert_eq!(format_by_name("tickwalk"), Ok(FileFormat::Recording));
        assert!(format_by_name("pdf").is_err());
    }

    #[test]
    fn results_are_named_by_a_file_or_by_a_format_and_its_file() {
        let result = |output: &str, file: &str| {
            let path = |text| Some(Path::new(text)).filter(|path| !path.as_os_str().is_empty());
            let options = ResultOptions { output: path(output), file: path(file), format: None };
            let named = |named: ResultFile| (named.path.display().to_string(), named.format);
            ResultFile::of(options).map(|result| result.map(named)).map_err(|error| error.to_string())
        };
        let file = |path: &str, format| Ok(Some((path.to_owned(), format)));
        let collapsed = FileFormat::Export(Format::Collapsed);
        assert_eq!(result("", ""), Ok(None));
        assert_eq!(result("flat", ""), Ok(None), "it is printed");
        assert_eq!(result("flat", "hot.txt"), file("hot.txt", FileFormat::Report));
        assert_eq!(result("collapsed", ""), file("recording.collapsed", collapsed));
        assert_eq!(result("collapsed", "stacks.txt"), file("stacks.txt", collapsed));
        assert_eq!(result("", "a.html"), file("a.html", FileFormat::Export(Format::Flamegraph)));
        for recording in ["a", "v1.2", "/tmp/tmp.xYz12", "a.tickwalk"] {
            assert_eq!(result(recording, ""), file(recording, FileFormat::Recording));
        }
        for (output, file) in [("a.svg", ""), ("A.SVG", ""), ("a.json", ""), ("a.png", ""), ("svg", "a.html")]
        {
            let error = result(output, file).expect_err("no such format");
            assert!(error.contains(&format!("unknown format '{output}'; the formats are")), "{error}");
        }
        let error = result("a.html", "b.html").expect_err("two files");
        assert!(error.starts_with("with --file, --output must be the name of a format: "), "{error}");
    }

    #[test]
    fn a_format_is_named_once() {
        let jfr = Some(FileFormat::Export(Format::Jfr));
        let result = |output: Option<&'static str>| {
            ResultFile::of(ResultOptions { output: output.map(Path::new), file: None, format: jfr })
        };
        for output in ["flat", "collapsed", "jfr"] {
            assert_eq!(result(Some(output)), Err(WrongResult::TwoFormats));
        }
        for (output, path) in [(None, "recording.jfr"), (Some("a"), "a")] {
            let named = result(output).expect("a format").expect("a file");
            assert_eq!((named.path.to_str(), named.format), (Some(path), FileFormat::Export(Format::Jfr)));
        }
    }

    #[test]
    fn the_agent_gets_an_option_where_the_suffix_is_not_enough() {
        let option = |output: &str, file: &str| {
            let path = |text| Some(Path::new(text)).filter(|path| !path.as_os_str().is_empty());
            let result =
                ResultFile::of(ResultOptions { output: path(output), file: path(file), format: None });
            result.expect("a format").expect("a file").agent_option().map_err(|error| error.to_string())
        };
        for file in ["a", "a.tickwalk", "a.html", "a.jfr", "a.pb.gz", "a.pprof", "a.collapsed", "a.parquet"] {
            assert_eq!(option("", file), Ok(None), "{file}");
        }
        for (file, expected) in [("a.txt", "collapsed"), ("a.traces", "traces"), ("a.otlp.pb", "otlp")] {
            assert_eq!(option("", file), Ok(Some(expected)), "{file}");
        }
        assert_eq!(option("collapsed", "out"), Ok(Some("collapsed")));
        assert_eq!(option("flat", "out"), Ok(Some("flat")));
        assert_eq!(option("pprof", "out.pb.gz"), Ok(None));
        assert_eq!(option("tickwalk", "out"), Ok(None));
        for (format, file, suffix) in
            [("pprof", "out", ".pb.gz"), ("pprof", "a.jfr", ".pb.gz"), ("tickwalk", "a.jfr", ".tickwalk")]
        {
            let error = option(format, file).expect_err("another format would be written");
            assert!(error.contains(&format!("with the suffix {suffix}, not to {file}")), "{error}");
        }
        let error = option("", "a.speedscope").expect_err("the agent does not write it");
        assert!(error.contains("'tickwalk export --format speedscope'"), "{error}");
    }
}
