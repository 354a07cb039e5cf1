//! `tickwalk diff`: the methods that changed between two sources, or between two selections of one source.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use profile::query::difference::{Methods, method_differences};
use profile::query::view::differences;

use crate::output;
use crate::source::{Pairs, SelectionArguments, Source, pair};

/// Methods requested from each side: the collector's limit.
const METHOD_LIMIT: &str = "10000";

#[derive(Debug, Args)]
#[command(after_help = "\
Shares are relative to the CPU time of each side, so runs of different length can be compared.

Examples:
  tickwalk diff before.tickwalk after.tickwalk
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
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Maximum number of methods
    #[arg(long, value_name = "N", default_value_t = 30)]
    limit: usize,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let both = arguments.selection.pairs();
    let first = arguments.selection.with_headers(arguments.before);
    let second = arguments.after.map(|after| arguments.selection.with_headers(after));
    let of_before = pairs("--before", &arguments.of_before)?;
    let of_after = pairs("--after", &arguments.of_after)?;
    if second.as_ref().is_none_or(|second| first.is_same(second)) && of_before == of_after {
        bail!("both sides are the same; name two sources, or restrict one side with --before or --after");
    }
    let text = match &second {
        None => {
            let prefixed = |prefix: &str, pairs: &[(String, String)]| {
                let with = |(name, value): &(String, String)| (format!("{prefix}.{name}"), value.clone());
                pairs.iter().map(with).collect::<Vec<_>>()
            };
            let mut pairs = [both, prefixed("before", &of_before), prefixed("after", &of_after)].concat();
            pairs.push(("limit".into(), arguments.limit.to_string()));
            first.ask(if arguments.json { "diff/methods" } else { "diff/text" }, &pairs)?
        }
        Some(after) => {
            let before = methods(&first, [&both[..], &of_before].concat())?;
            let after = methods(after, [&both[..], &of_after].concat())?;
            let rows = method_differences(&before, &after);
            match arguments.json {
                true => (serde_json::to_string_pretty(&rows[..rows.len().min(arguments.limit)])? + "\n")
                    .into_bytes(),
                false => differences(&rows, arguments.limit).into_bytes(),
            }
        }
    };
    output::print(|out| out.write_all(&text))?;
    Ok(ExitCode::SUCCESS)
}

fn pairs(option: &str, parameters: &[String]) -> anyhow::Result<Pairs> {
    parameters.iter().map(|parameter| pair(option, parameter)).collect()
}

fn methods(source: &Source, mut pairs: Pairs) -> anyhow::Result<Methods> {
    pairs.push(("limit".to_owned(), METHOD_LIMIT.to_owned()));
    Ok(serde_json::from_slice(&source.ask("methods", &pairs)?)?)
}
