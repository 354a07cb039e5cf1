//! The format of a file that gets a profile: a recording, or one of the formats of `tickwalk export`.

use std::path::{Path, PathBuf};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// A recording, which has everything.
    Recording,
    Export(Format),
}

impl FileFormat {
    /// Returns `named`, else the format of the suffix of `path`, else that of recordings.
    pub fn of(named: Option<FileFormat>, path: &Path) -> FileFormat {
        named.unwrap_or_else(|| Format::of_file(path).map_or(FileFormat::Recording, FileFormat::Export))
    }

    /// Returns the suffix of its files, without the dot.
    pub fn suffix(self) -> &'static str {
        match self {
            FileFormat::Recording => RECORDING,
            FileFormat::Export(format) => format.suffix().trim_start_matches('.'),
        }
    }

    /// Returns where the recording is written if the user asked for `path` in this format: at `path`, or beside it.
    pub fn recording_path(self, path: &Path) -> PathBuf {
        match self {
            FileFormat::Recording => path.to_owned(),
            FileFormat::Export(_) => {
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

/// Reads the name of a format, including async-profiler's names.
pub fn format_by_word(word: &str) -> Result<FileFormat, UnknownFormat> {
    match word {
        "tree" | "html" => Ok(FileFormat::Export(Format::Flamegraph)),
        word => format_by_name(word),
    }
}

/// Writes a recording to `path` in another format.
pub fn export_file(
    recording: &Recording,
    format: Format,
    options: Options,
    path: &Path,
) -> anyhow::Result<()> {
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
            assert_eq!(FileFormat::of(None, path).recording_path(path), Path::new(recording));
        }
        let jfr = format_by_name("jfr").expect("a format");
        assert_eq!(FileFormat::of(Some(jfr), Path::new("app.html")), FileFormat::Export(Format::Jfr));
        assert_eq!(format_by_name("tickwalk"), Ok(FileFormat::Recording));
        assert!(format_by_name("pdf").is_err());
    }
}
