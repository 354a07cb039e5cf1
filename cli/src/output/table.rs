//! Options of the verbs that print a table: its format, and the file that gets it.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::output;

/// Fewest columns to which names are shortened.
const LEAST_COLUMNS: u16 = 60;

/// Format and file of a table.
#[derive(Clone, Debug, Default, Args)]
pub struct TableOutput {
    /// File to write, or - [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the answer
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = TableFormat::Text)]
    format: TableFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// A text table
    #[default]
    Text,
    /// JSON
    Json,
}

impl TableOutput {
    /// Returns whether the format is JSON.
    pub fn is_json(&self) -> bool {
        self.json || self.format == TableFormat::Json
    }

    /// Returns the columns of the terminal, if the table is printed to one.
    pub fn columns(&self) -> Option<u16> {
        let is_shown = self.file().is_none() && !self.is_json() && io::stdout().is_terminal();
        let size = is_shown.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten();
        size.filter(|size| size.ws_col > 0).map(|size| size.ws_col.clamp(LEAST_COLUMNS, 1000))
    }

    /// Checks that the file can be written; callers check before they compute.
    pub fn check(&self) -> anyhow::Result<()> {
        self.file().map_or(Ok(()), output::check_writable)
    }

    pub fn file(&self) -> Option<&Path> {
        output::named_file(self.output.as_deref())
    }

    /// Writes the answer to its file or standard output; JSON is indented.
    pub fn write(&self, answer: &[u8]) -> anyhow::Result<()> {
        let mut laid_out = None;
        if self.is_json() {
            let value: serde_json::Value = serde_json::from_slice(answer)?;
            laid_out = Some(serde_json::to_string_pretty(&value)? + "\n");
        }
        let answer = laid_out.as_ref().map_or(answer, |text| text.as_bytes());
        output::write_answer(self.file(), answer)
    }
}
