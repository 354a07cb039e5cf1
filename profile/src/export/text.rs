//! The most expensive stacks and methods as plain text, in async-profiler's layout.
//!
//! Each stack is a block headed by its CPU time, leaf first; the table below has the methods on top of the stacks.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::comments::comments;
use super::frames::Frames;
use super::{Options, Profiles};
use crate::query::error::QueryError;
use crate::query::process::ProcessProfile;
use crate::source::Sum;
use crate::text::quantity::share;

/// The content of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// True for the account of CPU time.
    pub account: bool,
    /// Most stacks.
    pub stacks: usize,
    /// Most methods of the table.
    pub methods: usize,
    /// True if each stack ends with its thread, so that equal stacks of two threads are apart.
    pub threads: bool,
}

/// Most stacks of the format `traces`, unless another number is given.
pub const TRACES: usize = 200;

impl Parts {
    pub fn traces(options: Options) -> Self {
        let stacks = options.stacks.unwrap_or(TRACES);
        Parts { account: true, stacks, methods: 0, threads: options.threads }
    }
}

/// Writes `parts` of several processes, one after the other, each begun with the service and the process id.
pub fn write_each(profiles: Profiles<'_>, parts: Parts, mut out: impl Write) -> Result<(), QueryError> {
    for profile in profiles {
        let profile = profile?;
        writeln!(out, "=== {} ===", profile.title())?;
        write(&profile, parts, &mut out)?;
    }
    Ok(())
}

/// Writes `parts` of `profile` to `out`.
pub fn write(profile: &ProcessProfile, parts: Parts, mut out: impl Write) -> io::Result<()> {
    let mut frames = Frames::new(profile);
    // Frames with equal text (same method, other lines) are equal.
    let mut stacks: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
    let mut leaves: BTreeMap<String, Sum> = BTreeMap::new();
    for (thread, stack, cell) in profile.cells() {
        let numbers = frames.stack(stack);
        let mut texts: Vec<String> =
            numbers.into_iter().map(|frame| frames.all()[frame as usize].text.clone()).collect();
        leaves.entry(texts.first().cloned().unwrap_or_default()).or_default().add(cell);
        if parts.threads {
            texts.push(format!("[{}]", profile.thread_name(thread)));
        }
        stacks.entry(texts).or_default().add(cell);
    }
    let total_ns = profile.total().cpu_ns;
    let percent = |cell: Sum| 100.0 * share(cell.cpu_ns, total_ns);
    if parts.account {
        writeln!(out, "--- {} ---", profile.session().mode().time())?;
        for line in comments(profile) {
            writeln!(out, "{}", line)?;
        }
        writeln!(out)?;
    }
    let (all, mut left) = (stacks.len(), profile.total().cpu_ns);
    for (stack, cell) in heaviest(stacks, parts.stacks) {
        left = left.saturating_sub(cell.cpu_ns);
        writeln!(out, "--- {} ns ({:.2}%), {}", cell.cpu_ns, percent(cell), samples(cell))?;
        for (depth, text) in stack.iter().enumerate() {
            writeln!(out, "  [{depth:>2}] {text}")?;
        }
        writeln!(out)?;
    }
    if parts.stacks > 0 && all > parts.stacks {
        let further = all - parts.stacks;
        writeln!(out, "{further} further stacks have {left} ns ({:.2}%)\n", 100.0 * share(left, total_ns))?;
    }
    if parts.methods > 0 {
        writeln!(out, "          ns  percent  samples  top")?;
        writeln!(out, "  ----------  -------  -------  ---")?;
        for (text, cell) in heaviest(leaves, parts.methods) {
            writeln!(out, "{:>12} {:>7.2}% {:>8}  {text}", cell.cpu_ns, percent(cell), cell.samples)?;
        }
    }
    out.flush()
}

fn samples(cell: Sum) -> String {
    format!("{} sample{}", cell.samples, if cell.samples == 1 { "" } else { "s" })
}

/// Returns up to `most` entries in descending order of CPU time, then of text.
fn heaviest<K: Ord>(entries: BTreeMap<K, Sum>, most: usize) -> Vec<(K, Sum)> {
    let mut entries: Vec<(K, Sum)> = entries.into_iter().collect();
    entries.sort_by_key(|(_, cell)| std::cmp::Reverse(cell.cpu_ns));
    entries.truncate(most);
    entries
}
