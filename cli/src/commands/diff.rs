//! `tickwalk diff`: the methods that changed between two sources, or between two selections of one source.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use profile::query::difference::{Methods, method_differences};
use profile::query::modes::Modes;
use profile::query::regression::{CONFIDENCE, Rules, Verdict, check_runs};
use profile::query::view::differences;

use super::verdict::{self, DifferenceOutput, Format, Percent, confidence};
use crate::output;
use crate::source::{Pairs, SelectionArguments, Source, check_output, pair};

#[derive(Debug, Args)]
#[command(mut_arg("markdown", |argument| argument.requires("fail_above")))]
#[command(after_help = "\
Shares are relative to the CPU time of each side, so runs of different length can be compared.

With --fail-above, both sides are judged as by 'tickwalk gate': methods by their total time, as shares of all. Equal runs differ
by more than sampling explains, because the JIT inlines and compiles differently each time, so each side needs 5 runs: name the
others with --also-before and --also-after.

Examples:
  tickwalk diff before.tickwalk after.tickwalk
  tickwalk diff --fail-above 5% a1.tickwalk b1.tickwalk --also-before=a{2..5}.tickwalk --also-after=b{2..5}.tickwalk
  tickwalk diff release.tickwalk http://127.0.0.1:4172 --after from=-1h
  tickwalk diff http://127.0.0.1:4172 --before from=-2h --before to=-1h --after from=-1h")]
pub struct Arguments {
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
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
    /// Share of comparisons of equal programs that must pass, 80% to 99.9%; a higher one needs more runs
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = Percent(CONFIDENCE),
        value_parser = confidence,
        requires = "fail_above"
    )]
    confidence: Percent,
    /// All runs did the same work: judge the CPU time of the program as well
    #[arg(long, requires = "fail_above")]
    same_work: bool,
    /// Another run of the first side, for --fail-above; can be repeated
    #[arg(long, value_name = "SOURCE", requires = "fail_above")]
    also_before: Vec<Source>,
    /// Another run of the second side, for --fail-above; can be repeated
    #[arg(long, value_name = "SOURCE", requires = "fail_above")]
    also_after: Vec<Source>,
    #[command(flatten)]
    output: DifferenceOutput,
    #[command(flatten)]
    selection: SelectionArguments,
}

impl Arguments {
    fn sources(&self) -> impl Iterator<Item = &Source> {
        [&self.before].into_iter().chain(&self.after).chain(&self.also_before).chain(&self.also_after)
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    check_output(arguments.output.file(), arguments.sources())?;
    let (format, limit) = (arguments.output.format(), arguments.output.limit);
    if format == Format::Markdown && arguments.fail_above.is_none() {
        bail!("--format markdown is a report of --fail-above; add --fail-above PERCENT, or use text or json");
    }
    let both = arguments.selection.pairs();
    let first = arguments.selection.configured(arguments.before);
    let second = arguments.after.map(|after| arguments.selection.configured(after));
    let of_before = pairs("--before", &arguments.of_before)?;
    let of_after = pairs("--after", &arguments.of_after)?;
    if second.as_ref().is_none_or(|second| first.is_same(second)) && of_before == of_after {
        bail!("both sides are the same; name two sources, or restrict one side with --before or --after");
    }
    if let Some(Percent(limit)) = arguments.fail_above {
        let rules = Rules { limit, confidence: arguments.confidence.0, same_work: arguments.same_work };
        check_runs(1 + arguments.also_before.len(), 1 + arguments.also_after.len(), rules.confidence)
            .map_err(|few| {
                anyhow!("{few}: name them with --also-before and --also-after, or use 'tickwalk gate'")
            })?;
        let side = |source: &Source, also: Vec<Source>, own: &Pairs| -> anyhow::Result<Vec<Methods>> {
            let pairs = [&both[..], own].concat();
            let also = also.into_iter().map(|source| arguments.selection.configured(source));
            let runs: Vec<Source> = std::iter::once(source.clone()).chain(also).collect();
            let is_repeated = |place: usize| runs[..place].iter().any(|run| run.is_same(&runs[place]));
            if let Some(place) = (0..runs.len()).find(|&place| is_repeated(place)) {
                bail!("{} is named twice; each run counts once, so name another one", runs[place]);
            }
            runs.iter().map(|source| verdict::methods(source, pairs.clone())).collect()
        };
        let before = side(&first, arguments.also_before, &of_before)?;
        let after = side(second.as_ref().unwrap_or(&first), arguments.also_after, &of_after)?;
        let runs: Vec<&Methods> = before.iter().chain(&after).collect();
        for pair in runs.windows(2) {
            Modes::check(&pair[0].modes, &pair[1].modes)?;
        }
        let verdict = Verdict::of(&before, &after, rules)?;
        return arguments.output.write(&verdict);
    }
    let text = match &second {
        None => {
            let prefixed = |prefix: &str, pairs: &[(String, String)]| {
                let with = |(name, value): &(String, String)| (format!("{prefix}.{name}"), value.clone());
                pairs.iter().map(with).collect::<Vec<_>>()
            };
            let mut pairs = [both, prefixed("before", &of_before), prefixed("after", &of_after)].concat();
            pairs.push(("limit".into(), limit.to_string()));
            first.ask(if format == Format::Json { "diff/methods" } else { "diff/text" }, &pairs)?
        }
        Some(after) => {
            let before = verdict::methods(&first, [&both[..], &of_before].concat())?;
            let after = verdict::methods(after, [&both[..], &of_after].concat())?;
            Modes::check(&before.modes, &after.modes)?;
            let rows = method_differences(&before, &after);
            match format == Format::Json {
                true => (serde_json::to_string_pretty(&rows[..rows.len().min(limit)])? + "\n").into_bytes(),
                false => differences(&rows, limit).into_bytes(),
            }
        }
    };
    output::write_answer(arguments.output.file(), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn pairs(option: &str, parameters: &[String]) -> anyhow::Result<Pairs> {
    parameters.iter().map(|parameter| pair(option, parameter)).collect()
}
