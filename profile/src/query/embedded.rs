//! The data of a page without a server: accounts, call tree, threads, and samples by node, thread and time.
//!
//! The script `src/ui/data/embedded.js` answers the questions of [`crate::api`] from it.
//! Columns keep the file small: parents and nodes of samples are differences, and the unit of CPU time is the greatest
//! common divisor, usually the sampling interval.

use proto::ThreadState;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::error::QueryError;
use super::lines::Lines;
use super::matches::Matches;
use super::processes::{Account, accounts};
use super::selection::Selection;
use super::span::Span;
use super::timeline::{Key, MOST_ROWS, ThreadTime, sample_bucket_ns, thread_rows};
use super::tree::Tree;
use crate::dictionary::texts::Texts;
use crate::session::warnings::PART;
use crate::source::Sum;
use crate::source::{Part, Scope, Source, with_dictionary};

/// Number of an unknown state in [`Samples::states`].
const UNKNOWN_STATE: u8 = 0;
/// Lines of a method in the data.
const LINES: usize = 8;

/// The data of a page, as JSON.
#[derive(Debug, Serialize)]
pub struct Embedded {
    /// Answer to the question `statistics`.
    statistics: Vec<Account>,
    #[serde(flatten)]
    chart: Chart,
    /// Lines of the hottest methods, for tooltips; of all samples of the page.
    methods: Vec<Lined>,
}

/// A call tree and its samples in the order of time, in columns.
#[derive(Debug, Serialize)]
pub struct Chart {
    /// Time of the first bucket's start and of the last one's end.
    from_ns: u64,
    to_ns: u64,
    bucket_ns: u64,
    threads: Vec<ThreadTime>,
    names: Vec<String>,
    /// Distance of each node back to its parent, 0 for the root.
    parents: Vec<u32>,
    /// Name of each node.
    frame_names: Vec<u32>,
    /// Frame kind of each node, as in the protocol.
    kinds: Vec<u8>,
    unit_ns: u64,
    samples: Samples,
}

/// Samples in columns, ordered by node, thread, bucket and state.
#[derive(Debug, Default, Serialize)]
struct Samples {
    /// Difference to the node of the previous row.
    nodes: Vec<u32>,
    threads: Vec<u32>,
    buckets: Vec<u64>,
    units: Vec<u64>,
    counts: Vec<u64>,
    /// State of the thread: 1 for running, 2 for waiting. Empty if none is known, as of CPU time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    states: Vec<u8>,
}

/// The heaviest lines of a method.
#[derive(Debug, Serialize)]
struct Lined {
    /// Number of its name.
    name: u32,
    signatures: Vec<String>,
    file: String,
    /// Line, CPU time of its own, CPU time with callees.
    lines: Vec<(u32, u64, u64)>,
}

fn lined(
    source: &dyn Source,
    selection: &Selection,
    now_ns: u64,
    names: &Texts,
) -> Result<Vec<Lined>, QueryError> {
    let methods = Lines::of(source, selection, now_ns)?.hottest(source, LINES)?;
    let lined = methods.into_iter().filter_map(|method| {
        let lines = method.lines.iter().map(|line| (line.line, line.self_ns, line.total_ns)).collect();
        let name = names.find(&method.method)?;
        Some(Lined { name, signatures: method.signatures, file: method.file, lines })
    });
    Ok(lined.collect())
}

/// Sums by node, thread, bucket and state.
type Sums = FxHashMap<(u32, Key, u64, u8), Sum>;

impl Embedded {
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<Embedded, QueryError> {
        let mut statistics = accounts(source, selection, MOST_ROWS, now_ns)?.0;
        if *selection != Selection::default() {
            statistics.iter_mut().for_each(|account| account.warnings.push(PART.to_owned()));
        }
        let (chart, names) = Chart::with_names(source, selection, now_ns)?;
        if *selection != Selection::default() && chart.samples.nodes.is_empty() {
            return Err(selection.no_samples());
        }
        let methods = lined(source, selection, now_ns, &names)?;
        Ok(Embedded { statistics, chart, methods })
    }

    /// Returns the title: the command of a single process, or the name of this program for several.
    pub fn title(&self) -> &str {
        match &self.statistics[..] {
            [account] if !account.process.command.is_empty() => &account.process.command,
            _ => "Tickwalk",
        }
    }
}

impl Chart {
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<Chart, QueryError> {
        Ok(Chart::with_names(source, selection, now_ns)?.0)
    }

    /// Returns the chart, and the numbers of its names.
    fn with_names(
        source: &dyn Source,
        selection: &Selection,
        now_ns: u64,
    ) -> Result<(Chart, Texts), QueryError> {
        let span = selection.span(source, now_ns);
        let bucket_ns = sample_bucket_ns(source, &span);
        let mut tree = Tree::empty();
        let mut sums = Sums::default();
        for part in source.parts().iter().filter(|part| part.overlaps(&span.range_ns())) {
            collect(&**part, selection, &span, bucket_ns, &mut tree, &mut sums)?;
        }
        let mut times: FxHashMap<Key, u64> = FxHashMap::default();
        for ((_, key, ..), cell) in &sums {
            *times.entry(*key).or_default() += cell.cpu_ns;
        }
        let (threads, row_of) = thread_rows(source, &span.range_ns(), &times)?;
        // Ranges are widened to whole minutes; empty buckets at both ends are left out.
        let buckets = || sums.keys().map(|&(_, _, bucket, _)| bucket);
        let (first, last) = (buckets().min().unwrap_or(0), buckets().max().unwrap_or(0));
        let unit_ns = sums.values().fold(0, |unit_ns, cell| common_divisor(unit_ns, cell.cpu_ns)).max(1);
        let mut rows: Vec<_> = sums
            .iter()
            .map(|(&(node, key, bucket, state), cell)| {
                ((node, row_of[&key] as u32, bucket - first, state), *cell)
            })
            .collect();
        rows.sort_unstable_by_key(|&(key, _)| key);
        let mut samples = Samples::default();
        let mut last_node = 0;
        let has_states = rows.iter().any(|((.., state), _)| *state != UNKNOWN_STATE);
        for ((node, thread, bucket, state), cell) in rows {
            samples.nodes.push(node - std::mem::replace(&mut last_node, node));
            samples.threads.push(thread);
            samples.buckets.push(bucket);
            samples.units.push(cell.cpu_ns / unit_ns);
            samples.counts.push(cell.samples);
            samples.states.extend(has_states.then_some(state));
        }
        let chart = Chart {
            from_ns: span.from_ns + first * bucket_ns,
            to_ns: span.from_ns + (last + 1) * bucket_ns,
            bucket_ns,
            threads,
            names: (0..tree.names.len() as u32).map(|name| tree.text(name).to_owned()).collect(),
            parents: (0..).zip(tree.parents).map(|(node, parent)| node - parent).collect(),
            frame_names: tree.name_of,
            kinds: tree.kinds,
            unit_ns,
            samples,
        };
        Ok((chart, tree.names))
    }
}

/// Adds the samples of `part` to `sums`, and their stacks to `tree`.
fn collect(
    part: &dyn Part,
    selection: &Selection,
    span: &Span,
    bucket_ns: u64,
    tree: &mut Tree,
    sums: &mut Sums,
) -> Result<(), QueryError> {
    let matches = Matches::of(part, selection)?;
    let is_selected = |id: u64| matches.has_session(id);
    let mut stacks: FxHashMap<(u32, Key, u64), Sum> = FxHashMap::default();
    let whole = span.from_ns..span.to_ns;
    if part.has_samples() {
        part.samples(&Scope { range_ns: whole, sessions: &is_selected }, &mut |sample| {
            if matches.has_thread(sample.session, sample.thread) {
                let bucket = (sample.time_ns - span.from_ns) / bucket_ns;
                let sum = stacks.entry((sample.stack, (sample.session, sample.thread), bucket)).or_default();
                sum.add(sample.sum());
            }
        })?;
    } else {
        // Older parts have only sums.
        for (bucket, start_ns) in (0..).zip(whole.step_by(bucket_ns as usize)) {
            let range_ns = start_ns..span.to_ns.min(start_ns + bucket_ns);
            let scope = Scope { range_ns, sessions: &is_selected };
            let is_match = |session, thread| matches.has_thread(session, thread);
            part.thread_stacks(&scope, &is_match, &mut |session, thread, stack, cell| {
                stacks.entry((stack, (session, thread), bucket)).or_default().add(cell);
            })?;
        }
    }
    with_dictionary(part, |dictionary| {
        let shown = selection.filters_stacks().then(|| selection.matching_stacks(dictionary));
        let mut rows: Vec<_> = stacks
            .into_iter()
            .filter(|((stack, ..), _)| {
                shown.as_ref().is_none_or(|shown| shown.get(*stack as usize) == Some(&true))
            })
            .map(|((stack, key, bucket), cell)| {
                let row = dictionary.stack(stack);
                (row.node, key, bucket, number_of(dictionary.string(row.stop)), cell)
            })
            .collect();
        // Equal data yields equal files.
        rows.sort_unstable_by_key(|&(node, key, bucket, state, _)| (node, key, bucket, state));
        // Nodes of the tree by those of the dictionary; 0 where there is none yet, and for the root.
        let mut placed = vec![0; dictionary.nodes().len()];
        let mut path = Vec::new();
        for (node, key, bucket, state, cell) in rows {
            let mut above = node;
            while above != 0 && placed[above as usize] == 0 {
                path.push(above);
                above = dictionary.nodes()[above as usize].parent;
            }
            let mut at = placed[above as usize];
            while let Some(next) = path.pop() {
                let frame = dictionary.nodes()[next as usize].frame;
                let name = tree.name(&dictionary.frame_text(frame));
                at = tree.child(at, name, dictionary.frame(frame).kind);
                placed[next as usize] = at;
            }
            sums.entry((at, key, bucket, state)).or_default().add(cell);
        }
    })?;
    Ok(())
}

/// Returns the number of the state of a stack with this root.
fn number_of(root: &str) -> u8 {
    ThreadState::split(root).1.map_or(UNKNOWN_STATE, |state| state.number() as u8)
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
