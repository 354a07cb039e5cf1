//! `tickwalk diff`: the methods that changed between two sources, or between two selections of one source.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::bail;
use clap::{Args, ValueEnum};
use profile::query::difference::{Methods, method_differences};
use profile::query::regression::Verdict;
use profile::query::view::differences;

use crate::options::values::rows;
use crate::output;
use crate::source::{Pairs, SelectionArguments, Source, pair};

/// Methods requested from each side: the collector's limit.
const METHOD_LIMIT: &str = "10000";

/// Exit code if a method has grown beyond the limit.
const GROWN: u8 = 3;

#[derive(Debug, Args)]
#[command(after_help = "\
Shares are relative to the CPU time of each side, so runs of different length can be compared.

With --fail-above, methods with at least 1 % of the CPU time are judged. One has grown if its share exceeds the one before
by more than the limit and by more than chance explains (4 standard errors; equal runs fail in less than 1 of 100
comparisons). To see a tenth more of a method that takes 20 %, each side needs some 50,000 samples. Several runs a side make
the spread between runs part of the error: name them with --also-before and --also-after.

Examples:
  tickwalk diff before.tickwalk after.tickwalk
  tickwalk diff --fail-above 5% main.tickwalk branch.tickwalk
  tickwalk diff --fail-above 5% a1.tickwalk b1.tickwalk --also-before a2.tickwalk --also-after b2.tickwalk
  tickwalk diff release.tickwalk http://127.0.0.1:4172 --after from=-1h
  tickwalk diff http://127.0.0.1:4172 --before from=-2h --before to=-1h --after from=-1h")]
pub struct Arguments {
    /// Recording, directory of a store, or http://HOST:PORT of a collector
    before: Source,
    /// Source to compare with, of the same kinds; without it, both sides come from the first
    after: Option<Source>,
    /// Parameter of the first side only, such as from=-2h; can be repeated
    #[arg(long = "before", value_name = "NAME=VALUE")]
    of_before: Vec<String>,
    /// Parameter of the second side only, such as from=-1h; can be repeated
    #[arg(long = "after", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    of_after: Vec<String>,
    /// End with exit code 3 if a method takes more than this much more of the CPU time than before, such as 5%
    #[arg(long, value_name = "PERCENT")]
    fail_above: Option<Percent>,
    /// Another run of the first side, for --fail-above; can be repeated
    #[arg(long, value_name = "SOURCE", requires = "fail_above")]
    also_before: Vec<Source>,
    /// Another run of the second side, for --fail-above; can be repeated
    #[arg(long, value_name = "SOURCE", requires = "fail_above")]
    also_after: Vec<Source>,
    /// File to write, or - [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the answer; Markdown needs --fail-above
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DiffFormat::Text)]
    format: DiffFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The same as --format markdown
    #[arg(long, requires = "fail_above", conflicts_with_all = ["format", "json"])]
    markdown: bool,
    /// Maximum number of methods
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = rows)]
    limit: usize,
    #[command(flatten)]
    selection: SelectionArguments,
}

/// Format of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// Columns for readers
    #[default]
    Text,
    /// JSON for programs
    Json,
    /// A Markdown table for reports
    Markdown,
}

impl Arguments {
    fn chosen_format(&self) -> DiffFormat {
        match (self.json, self.markdown) {
            (true, _) => DiffFormat::Json,
            (_, true) => DiffFormat::Markdown,
            _ => self.format,
        }
    }
}

/// Writes the answer to a file, or to standard output.
fn write(path: Option<&Path>, answer: &[u8]) -> anyhow::Result<()> {
    match path {
        Some(path) => output::write_file(path, |out| out.write_all(answer)),
        None => output::print(|out| out.write_all(answer)),
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let format = arguments.chosen_format();
    let path = arguments.output.clone();
    let path = output::named_file(path.as_deref());
    path.map_or(Ok(()), output::check_writable)?;
    if format == DiffFormat::Markdown && arguments.fail_above.is_none() {
        bail!("--format markdown is a report of --fail-above; add --fail-above PERCENT, or use text or json");
    }
    let both = arguments.selection.pairs();
    let first = arguments.selection.with_headers(arguments.before);
    let second = arguments.after.map(|after| arguments.selection.with_headers(after));
    let of_before = pairs("--before", &arguments.of_before)?;
    let of_after = pairs("--after", &arguments.of_after)?;
    if second.as_ref().is_none_or(|second| first.is_same(second)) && of_before == of_after {
        bail!("both sides are the same; name two sources, or restrict one side with --before or --after");
    }
    if let Some(limit) = arguments.fail_above {
        let side = |source: &Source, also: Vec<Source>, own: &Pairs| -> anyhow::Result<Vec<Methods>> {
            let pairs = [&both[..], own].concat();
            let also = also.into_iter().map(|source| arguments.selection.with_headers(source));
            std::iter::once(source.clone())
                .chain(also)
                .map(|source| methods(&source, pairs.clone()))
                .collect()
        };
        let before = side(&first, arguments.also_before, &of_before)?;
        let after = side(second.as_ref().unwrap_or(&first), arguments.also_after, &of_after)?;
        let verdict = Verdict::of(&before, &after, limit.0);
        return judge(&verdict, arguments.limit, format, path);
    }
    let text = match &second {
        None => {
            let prefixed = |prefix: &str, pairs: &[(String, String)]| {
                let with = |(name, value): &(String, String)| (format!("{prefix}.{name}"), value.clone());
                pairs.iter().map(with).collect::<Vec<_>>()
            };
            let mut pairs = [both, prefixed("before", &of_before), prefixed("after", &of_after)].concat();
            pairs.push(("limit".into(), arguments.limit.to_string()));
            first.ask(if format == DiffFormat::Json { "diff/methods" } else { "diff/text" }, &pairs)?
        }
        Some(after) => {
            let before = methods(&first, [&both[..], &of_before].concat())?;
            let after = methods(after, [&both[..], &of_after].concat())?;
            let rows = method_differences(&before, &after);
            match format == DiffFormat::Json {
                true => (serde_json::to_string_pretty(&rows[..rows.len().min(arguments.limit)])? + "\n")
                    .into_bytes(),
                false => differences(&rows, arguments.limit).into_bytes(),
            }
        }
    };
    write(path, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a verdict; returns the exit code.
fn judge(
    verdict: &Verdict,
    limit: usize,
    format: DiffFormat,
    path: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    if verdict.samples.contains(&0) {
        bail!("one side has no samples, so nothing can be compared");
    }
    let text = match format {
        DiffFormat::Json => serde_json::to_string_pretty(verdict)? + "\n",
        _ => verdict.table(limit, format == DiffFormat::Markdown) + "\n" + &verdict.sentence() + "\n",
    };
    write(path, text.as_bytes())?;
    Ok(if verdict.grown().next().is_some() { ExitCode::from(GROWN) } else { ExitCode::SUCCESS })
}

/// A share written in percent, such as `5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Percent(f64);

impl FromStr for Percent {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
        let share = number.ok().filter(|number| (0.0..=1000.0).contains(number)).map(|number| number / 100.0);
        share.map(Self).ok_or("expected a percentage between 0% and 1000%, such as 5%")
    }
}

fn pairs(option: &str, parameters: &[String]) -> anyhow::Result<Pairs> {
    parameters.iter().map(|parameter| pair(option, parameter)).collect()
}

fn methods(source: &Source, mut pairs: Pairs) -> anyhow::Result<Methods> {
    pairs.push(("limit".to_owned(), METHOD_LIMIT.to_owned()));
    Ok(serde_json::from_slice(&source.ask("methods", &pairs)?)?)
}
