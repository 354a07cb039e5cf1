//! Options and output of the verbs that judge growth: `diff --fail-above` and `gate`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use profile::query::difference::Methods;
use profile::query::regression::Verdict;

use crate::options::values::rows;
use crate::output;
use crate::source::{Pairs, Source};

/// Exit code if something has grown by more than the limit.
const GROWN: u8 = 3;

/// Methods requested from each run: the collector's limit.
const METHOD_LIMIT: &str = "10000";

/// Format of an answer about differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A text table
    #[default]
    Text,
    /// JSON
    Json,
    /// Markdown, for reports
    Markdown,
}

/// A share written in percent, such as `5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percent(pub f64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

fn percent(text: &str) -> Option<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number.map(|number| number / 100.0)
}

/// Reads the share of comparisons of equal programs that must pass.
pub fn confidence(text: &str) -> Result<Percent, &'static str> {
    let share = percent(text).filter(|share| (0.8..=0.999).contains(share));
    share.map(Percent).ok_or("expected a percentage between 80% and 99.9%, such as 99%")
}

impl FromStr for Percent {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let share = percent(text).filter(|share| (0.0..=10.0).contains(share));
        share.map(Self).ok_or("expected a percentage between 0% and 1000%, such as 5%")
    }
}

/// Returns the methods of a selection as [`methods_with_warnings`], and prints what is missing in them.
pub fn methods(source: &Source, pairs: Pairs) -> anyhow::Result<Methods> {
    let methods = methods_with_warnings(source, pairs)?;
    output::warn(&methods.warnings);
    Ok(methods)
}

/// Returns the methods of a selection, named so that those of two runs can be compared; the warnings name `source`.
pub fn methods_with_warnings(source: &Source, mut pairs: Pairs) -> anyhow::Result<Methods> {
    for (name, value) in [("limit", METHOD_LIMIT), ("rows", "folded"), ("order", "total")] {
        pairs.push((name.to_owned(), value.to_owned()));
    }
    let mut methods: Methods = serde_json::from_slice(&source.ask("methods", &pairs)?)?;
    methods.warnings.iter_mut().for_each(|warning| *warning = format!("{source}: {warning}"));
    Ok(methods)
}

/// Place and form of an answer about differences.
#[derive(Debug, Args)]
pub struct DifferenceOutput {
    /// File to write, or - [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the answer; Markdown is for verdicts
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The same as --format markdown
    #[arg(long, conflicts_with_all = ["format", "json"])]
    markdown: bool,
    /// Maximum number of methods
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = rows)]
    pub limit: usize,
}

impl DifferenceOutput {
    /// Returns the format that was chosen.
    pub fn format(&self) -> Format {
        match (self.json, self.markdown) {
            (true, _) => Format::Json,
            (_, true) => Format::Markdown,
            _ => self.format,
        }
    }

    /// Returns the file to write; `None` for standard output.
    pub fn file(&self) -> Option<&Path> {
        output::named_file(self.output.as_deref())
    }

    /// Writes a verdict; returns the exit code.
    pub fn write(&self, verdict: &Verdict) -> anyhow::Result<ExitCode> {
        let text = match self.format() {
            Format::Json => serde_json::to_string_pretty(verdict)?,
            format => verdict.table(self.limit, format == Format::Markdown) + "\n" + &verdict.sentence(),
        };
        output::write_answer(self.file(), (text + "\n").as_bytes())?;
        Ok(if verdict.has_failed() { ExitCode::from(GROWN) } else { ExitCode::SUCCESS })
    }
}
