//! `tickwalk diff`: what changed between two recordings, or between two selections of one source.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use collector::query::difference::method_differences;
use collector::query::selection::Selection;
use collector::query::tree::Tree;
use collector::query::view::differences;
use collector::store::Store;

use crate::output;
use crate::source::{SelectionArguments, Source};

#[derive(Debug, Args)]
#[command(after_help = "\
Shares are of the CPU time of each side, so runs of different length can be compared.

Examples:
  tickwalk diff before.tickwalk after.tickwalk
  tickwalk diff http://127.0.0.1:4172 --before from=-2h --before to=-1h --after from=-1h")]
pub struct Arguments {
    /// Recording, directory of a store, or http://HOST:PORT of a collector
    before: Source,
    /// The same, to compare it with; without it, both sides are of the first
    after: Option<Source>,
    /// Parameter of the first side only
    #[arg(long = "before", value_name = "NAME=VALUE")]
    of_before: Vec<String>,
    /// Parameter of the second side only
    #[arg(long = "after", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    of_after: Vec<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Most methods shown
    #[arg(long, value_name = "N", default_value_t = 30)]
    limit: usize,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let both = arguments.selection.pairs();
    let of_before = pairs(&arguments.of_before)?;
    let of_after = pairs(&arguments.of_after)?;
    let text = match &arguments.after {
        None => {
            let prefixed = |prefix: &str, pairs: &[(String, String)]| {
                let with = |(name, value): &(String, String)| (format!("{prefix}.{name}"), value.clone());
                pairs.iter().map(with).collect::<Vec<_>>()
            };
            let mut pairs = [both, prefixed("before", &of_before), prefixed("after", &of_after)].concat();
            pairs.push(("limit".into(), arguments.limit.to_string()));
            arguments.before.ask(if arguments.json { "diff/methods" } else { "diff/text" }, &pairs)?
        }
        Some(after) => {
            if matches!((&arguments.before, after), (Source::Url(_), _) | (_, Source::Url(_))) {
                bail!("a collector can be compared with itself only: give one source, --before and --after");
            }
            let before = tree(&arguments.before.open()?, &[&both[..], &of_before].concat())?;
            let after = tree(&after.open()?, &[&both[..], &of_after].concat())?;
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

fn pairs(parameters: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let pair = |parameter: &String| {
        let (name, value) =
            parameter.split_once('=').with_context(|| format!("{parameter}: write NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    parameters.iter().map(pair).collect()
}

fn tree(store: &Store, pairs: &[(String, String)]) -> anyhow::Result<Tree> {
    let mut selection = Selection::default();
    for (name, value) in pairs {
        if !selection.set(name, value)? {
            bail!("unknown parameter {name:?}");
        }
    }
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Ok(Tree::of(store, &selection, u64::try_from(now_ns)?)?.0)
}
