//! Options and output of the verbs that judge growth: `diff --fail-above` and `gate`.

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use clap::ValueEnum;
use profile::query::difference::Methods;
use profile::query::regression::Verdict;

use crate::output;
use crate::source::{Pairs, Source};

/// Exit code if something has grown beyond the limit.
const GROWN: u8 = 3;

/// Methods requested from each run: the collector's limit.
const METHOD_LIMIT: &str = "10000";

/// Format of an answer about differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for readers
    #[default]
    Text,
    /// JSON for programs
    Json,
    /// A Markdown table for reports
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

/// Reads the share of comparisons of equal programs that have to pass.
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

/// Returns the methods of a selection, named so that those of two runs can be compared.
pub fn methods(source: &Source, mut pairs: Pairs) -> anyhow::Result<Methods> {
    for (name, value) in [("limit", METHOD_LIMIT), ("rows", "folded"), ("order", "total")] {
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Ok(serde_json::from_slice(&source.ask("methods", &pairs)?)?)
}

/// Writes a verdict with up to `rows` methods to a file or to standard output; returns the exit code.
pub fn write(
    verdict: &Verdict,
    rows: usize,
    format: Format,
    path: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let mut text = match format {
        Format::Json => serde_json::to_string_pretty(verdict)?,
        Format::Text | Format::Markdown => {
            verdict.table(rows, format == Format::Markdown) + "\n" + &verdict.sentence()
        }
    };
    text.push('\n');
    write_answer(path, text.as_bytes())?;
    Ok(if verdict.has_failed() { ExitCode::from(GROWN) } else { ExitCode::SUCCESS })
}

/// Writes an answer to a file, or to standard output.
pub fn write_answer(path: Option<&Path>, answer: &[u8]) -> anyhow::Result<()> {
    match path {
        Some(path) => output::write_file(path, |out| out.write_all(answer)),
        None => output::print(|out| out.write_all(answer)),
    }
}
