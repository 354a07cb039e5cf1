//! CPU time in time buckets, by process or by thread; and the CPU time of threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use proto::v1::{Thread, ThreadKind};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::error::QueryError;
use super::matches::Matches;
use super::modes::Modes;
use super::selection::Selection;
use super::span::Span;
use super::waiting::{Buckets, WaitingTimes, waiting};
use crate::dictionary::stop::UNKNOWN;
use crate::session::Session;
use crate::session::thread::{default_name, kind_text, virtual_id};
use crate::source::{Extent, Gap, Part, Scope, Source, Threads, with_dictionary};
use crate::text::quantity::total;

const NS_PER_S: u64 = 1_000_000_000;

/// Maximum number of buckets of a timeline, more than the columns of a screen.
pub const MOST_BUCKETS: u64 = 10_000;

/// Maximum number of rows of a timeline and of a table of threads.
pub const MOST_ROWS: usize = 10_000;

/// Meaning of the rows of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    All,
    Process,
    Thread,
    /// A row for each value of a label, such as `service` or one that processes were given.
    Label(String),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Value of the label, if rows stand for values of a label.
    pub group: String,
    pub process: String,
    pub thread: String,
    pub kind: &'static str,
    /// `java.lang.Thread.threadId()` of a virtual thread, else 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub java_id: i64,
    pub cpu_ns: Vec<u64>,
}

/// CPU time in buckets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Timeline {
    pub from_ns: u64,
    pub to_ns: u64,
    pub bucket_ns: u64,
    pub rows: Vec<Row>,
    pub rows_left_out: usize,
    /// CPU time of the rows that are left out.
    pub left_out_ns: u64,
    pub waiting: WaitingTimes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    #[serde(skip_serializing_if = "Modes::can_be_summed")]
    pub modes: Modes,
}

/// CPU time of one thread in a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ThreadTime {
    pub process: String,
    pub tid: u32,
    pub thread: String,
    pub kind: &'static str,
    /// `java.lang.Thread.threadId()` of a virtual thread, else 0; `carriers` has the names of its carriers.
    #[serde(skip_serializing_if = "is_zero")]
    pub java_id: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carriers: Vec<String>,
    pub cpu_ns: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

pub(super) type Key = (u64, u32);

/// Returns the timeline of a selection. `bucket_ns` 0 chooses a width for about 200 buckets.
///
/// # Errors
/// If the source cannot be read, or the width yields more than [`MOST_BUCKETS`].
pub fn timeline(
    source: &dyn Source,
    selection: &Selection,
    by: &By,
    bucket_ns: u64,
    limit: usize,
    now_ns: u64,
) -> Result<Timeline, QueryError> {
    let span = selection.span_with_modes(source, now_ns)?;
    let width_ns = span.to_ns - span.from_ns;
    let bucket_ns = if bucket_ns == 0 { round_bucket_ns(source, &span) } else { bucket_ns };
    let buckets = width_ns.div_ceil(bucket_ns);
    if buckets > MOST_BUCKETS {
        return Err(QueryError::BadValue {
            parameter: "bucket",
            expected: "a width that makes 10000 buckets or fewer",
        });
    }
    let groups = match by {
        By::Label(label) => Groups::of(source, label)?,
        _ => Groups::default(),
    };
    let range_ns = span.range_ns();
    let mut sums = Sums {
        by,
        groups,
        from_ns: span.from_ns,
        bucket_ns,
        widest_ns: bucket_ns,
        cells: FxHashMap::default(),
    };
    for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
        sums.add_part(&**part, selection, &range_ns)?;
    }
    // Older parts may have coarser times than the buckets.
    let factor = sums.widest_ns.div_ceil(bucket_ns);
    let buckets = buckets.div_ceil(factor) as usize;
    let Rows { rows, left_out: rows_left_out, left_out_ns } =
        sums.rows(source, &range_ns, Columns { factor, count: buckets }, limit)?;
    let bucket_ns = bucket_ns * factor;
    let all = Buckets { from_ns: span.from_ns, width_ns: bucket_ns, count: buckets };
    Ok(Timeline {
        waiting: waiting(source, selection, &span, all)?,
        from_ns: span.from_ns,
        to_ns: span.to_ns,
        bucket_ns,
        rows,
        rows_left_out,
        left_out_ns,
        gaps: span.gaps,
        modes: span.modes,
    })
}

/// The busiest rows of a timeline.
struct Rows {
    rows: Vec<Row>,
    /// Number of the other rows, and their CPU time.
    left_out: usize,
    left_out_ns: u64,
}

/// CPU time by row and bucket of a timeline.
struct Sums<'b> {
    by: &'b By,
    groups: Groups,
    from_ns: u64,
    bucket_ns: u64,
    /// Width of the widest cell of time in the parts; at least that of a bucket.
    widest_ns: u64,
    cells: FxHashMap<Key, BTreeMap<u64, u64>>,
}

/// The columns of a timeline, each made of `factor` buckets.
#[derive(Clone, Copy)]
struct Columns {
    factor: u64,
    count: usize,
}

impl Sums<'_> {
    fn put(&mut self, session: u64, thread: u32, time_ns: u64, cpu_ns: u64) {
        let key = match self.by {
            By::All => (0, 0),
            By::Process => (session, 0),
            By::Thread => (session, thread),
            By::Label(_) => (self.groups.of_session.get(&session).copied().unwrap_or_default(), 0),
        };
        let bucket = time_ns.saturating_sub(self.from_ns) / self.bucket_ns;
        let cell = self.cells.entry(key).or_default().entry(bucket).or_default();
        *cell = cell.saturating_add(cpu_ns);
    }

    fn add_part(
        &mut self,
        part: &dyn Part,
        selection: &Selection,
        range_ns: &Range<u64>,
    ) -> Result<(), QueryError> {
        let matches = Matches::of(part, selection)?;
        let is_selected = |id: u64| matches.has_session(id);
        let scope = Scope { range_ns: range_ns.clone(), sessions: &is_selected };
        if self.bucket_ns < NS_PER_S || selection.filters_stacks() {
            let stacks = selection
                .filters_stacks()
                .then(|| with_dictionary(part, |dictionary| selection.matching_stacks(dictionary)))
                .transpose()?;
            return Ok(part.samples(&scope, &mut |sample| {
                let stack = sample.stack as usize;
                let is_match =
                    stacks.as_ref().is_none_or(|stacks| stacks.get(stack).copied().unwrap_or(false));
                if is_match && matches.has_thread(sample.session, sample.thread) {
                    self.put(sample.session, sample.thread, sample.time_ns, sample.cpu_ns);
                }
            })?);
        }
        let are_apart = *self.by == By::Thread || selection.filters_threads();
        let threads = if are_apart { Threads::Apart } else { Threads::Together };
        Ok(part.times(&scope, threads, &mut |session, thread, cell_s, cpu_ns| {
            if matches.has_thread(session, thread) {
                self.widest_ns = self.widest_ns.max((cell_s.end - cell_s.start) * NS_PER_S);
                self.put(session, thread, cell_s.start.saturating_mul(NS_PER_S), cpu_ns);
            }
        })?)
    }

    /// Returns the `limit` busiest rows, and the number of the others.
    fn rows(
        self,
        source: &dyn Source,
        range_ns: &Range<u64>,
        columns: Columns,
        limit: usize,
    ) -> Result<Rows, QueryError> {
        let totals: FxHashMap<Key, u64> =
            self.cells.iter().map(|(&key, cells)| (key, total(cells.values().copied()))).collect();
        let (threads, row_of) = match self.by {
            By::Thread => thread_rows(source, range_ns, &totals)?,
            By::All | By::Process | By::Label(_) => {
                let mut keys: Vec<Key> = totals.keys().copied().collect();
                keys.sort_unstable_by_key(|key| (Reverse(totals[key]), *key));
                let row_of = keys.iter().copied().zip(0..).collect();
                let row = |(id, _): Key| match self.by {
                    By::Process => ThreadTime::of_process(id),
                    _ => ThreadTime::default(),
                };
                (keys.into_iter().map(row).collect(), row_of)
            }
        };
        let left_out = threads.len().saturating_sub(limit);
        let mut rows: Vec<Row> =
            threads.into_iter().take(limit).map(|thread| Row::empty(thread, columns.count)).collect();
        let mut left_out_ns = 0;
        for (key, cells) in self.cells {
            let Some(row) = rows.get_mut(row_of[&key]) else {
                left_out_ns = total([left_out_ns, totals[&key]]);
                continue;
            };
            if let By::Label(_) = self.by {
                row.group.clone_from(&self.groups.texts[key.0 as usize]);
            }
            for (bucket, cpu_ns) in cells {
                if let Some(cell) = row.cpu_ns.get_mut((bucket / columns.factor) as usize) {
                    *cell = cell.saturating_add(cpu_ns);
                }
            }
        }
        Ok(Rows { rows, left_out, left_out_ns })
    }
}

/// Returns the threads of a selection by CPU time, the busiest first.
pub fn threads(
    source: &dyn Source,
    selection: &Selection,
    now_ns: u64,
) -> Result<(Vec<ThreadTime>, Span), QueryError> {
    let span = selection.span_with_modes(source, now_ns)?;
    let mut times: FxHashMap<Key, u64> = FxHashMap::default();
    let range_ns = span.from_ns..span.to_ns;
    for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
        let matches = Matches::of(&**part, selection)?;
        let is_selected = |id: u64| matches.has_session(id);
        let scope = Scope { range_ns: range_ns.clone(), sessions: &is_selected };
        // Consecutive values mostly belong to one thread, so they are summed first, which saves look-ups.
        let mut run: Option<(Key, u64)> = None;
        let mut put = |session: u64, thread: u32, cpu_ns: u64| match &mut run {
            Some((key, sum)) if *key == (session, thread) => *sum = sum.saturating_add(cpu_ns),
            _ => add_run(&mut times, &matches, run.replace(((session, thread), cpu_ns))),
        };
        if selection.filters_stacks() {
            let stacks = with_dictionary(&**part, |dictionary| selection.matching_stacks(dictionary))?;
            let is_match = |session, thread| matches.has_thread(session, thread);
            part.thread_stacks(&scope, &is_match, &mut |session, thread, stack, cell| {
                if stacks.get(stack as usize).copied().unwrap_or(false) {
                    put(session, thread, cell.cpu_ns);
                }
            })?;
        } else {
            part.times(&scope, Threads::Apart, &mut |session, thread, _, cpu_ns| {
                put(session, thread, cpu_ns)
            })?;
        }
        add_run(&mut times, &matches, run);
    }
    Ok((thread_rows(source, &range_ns, &times)?.0, span))
}

/// Returns the threads of `times`, the busiest first, and the row of each number. The numbers that a virtual thread
/// has on several carriers have one row.
pub(super) fn thread_rows(
    source: &dyn Source,
    range_ns: &Range<u64>,
    times: &FxHashMap<Key, u64>,
) -> Result<(Vec<ThreadTime>, FxHashMap<Key, usize>), QueryError> {
    let mut known = describe_threads(source, range_ns, times.keys())?;
    let mut merged: BTreeMap<(u64, i64, u32), (ThreadTime, Vec<Key>)> = BTreeMap::new();
    // In the order of numbers, so that equal data yields equal names.
    let times: BTreeMap<Key, u64> = times.iter().map(|(&key, &cpu_ns)| (key, cpu_ns)).collect();
    for (key, cpu_ns) in times {
        let mut thread = known.remove(&key).unwrap_or_else(|| ThreadTime::of_unknown(key.0));
        let own = if thread.java_id == 0 { key.1 } else { 0 };
        let (row, keys) = merged.entry((key.0, thread.java_id, own)).or_default();
        keys.push(key);
        let cpu_ns = row.cpu_ns.saturating_add(cpu_ns);
        if keys.len() == 1 {
            *row = thread;
        } else {
            row.carriers.append(&mut thread.carriers);
            // The agent may have read the name late and sent it for only one carrier.
            if row.thread == default_name(row.java_id) {
                row.thread = thread.thread;
            }
            // There is more than one kernel thread.
            row.tid = 0;
        }
        row.cpu_ns = cpu_ns;
    }
    let mut rows: Vec<(ThreadTime, Vec<Key>)> = merged.into_values().collect();
    rows.iter_mut().for_each(|(row, _)| row.carriers.sort_unstable());
    rows.sort_by(|(a, _), (b, _)| {
        let order = b.cpu_ns.cmp(&a.cpu_ns);
        order.then_with(|| (&a.process, &a.thread, a.tid).cmp(&(&b.process, &b.thread, b.tid)))
    });
    let row_of = (0..).zip(&rows).flat_map(|(row, (_, keys))| keys.iter().map(move |&key| (key, row)));
    let row_of = row_of.collect();
    Ok((rows.into_iter().map(|(row, _)| row).collect(), row_of))
}

/// Returns the threads of `keys` as described by the last partition that has them. Unknown threads are left out.
fn describe_threads<'k>(
    source: &dyn Source,
    range_ns: &Range<u64>,
    keys: impl Iterator<Item = &'k Key>,
) -> Result<FxHashMap<Key, ThreadTime>, QueryError> {
    let mut missing: FxHashMap<u64, FxHashSet<u32>> = FxHashMap::default();
    for &(session, thread) in keys {
        missing.entry(session).or_default().insert(thread);
    }
    let mut found = FxHashMap::default();
    for part in source.parts().iter().rev().filter(|part| part.overlaps(range_ns)) {
        let mut found_here = Vec::new();
        part.sessions(Extent::Threads, &|id| missing.contains_key(&id), &mut |id, session| {
            let known = missing[&id].iter().filter_map(|&thread| session.thread(thread));
            found_here.extend(known.map(|thread| ((id, thread.id), ThreadTime::of(id, session, thread))));
        })?;
        for ((id, thread), description) in found_here {
            if let Some(threads) = missing.get_mut(&id) {
                threads.remove(&thread);
            }
            found.insert((id, thread), description);
        }
        missing.retain(|_, threads| !threads.is_empty());
    }
    Ok(found)
}

/// Adds the CPU time of a run of values of one thread, if the thread matches.
fn add_run(times: &mut FxHashMap<Key, u64>, matches: &Matches, run: Option<(Key, u64)>) {
    if let Some((key, cpu_ns)) = run.filter(|&((session, thread), _)| matches.has_thread(session, thread)) {
        let sum = times.entry(key).or_default();
        *sum = sum.saturating_add(cpu_ns);
    }
}

/// Sessions by the value of a label. The first group has no value.
struct Groups {
    texts: Vec<String>,
    of_session: FxHashMap<u64, u64>,
}

impl Default for Groups {
    fn default() -> Self {
        Groups { texts: vec![String::new()], of_session: FxHashMap::default() }
    }
}

impl Groups {
    fn of(source: &dyn Source, label: &str) -> Result<Groups, QueryError> {
        let mut groups = Groups::default();
        for part in source.parts() {
            part.sessions(Extent::Account, &|_| true, &mut |id, session| {
                let Some(text) = session.label(label) else { return };
                let known = groups.texts.iter().position(|known| *known == text);
                let group = known.unwrap_or_else(|| {
                    groups.texts.push(text.into_owned());
                    groups.texts.len() - 1
                });
                groups.of_session.insert(id, group as u64);
            })?;
        }
        Ok(groups)
    }
}

impl Row {
    fn empty(thread: ThreadTime, buckets: usize) -> Row {
        let ThreadTime { process, thread, kind, java_id, .. } = thread;
        Row { group: String::new(), process, thread, kind, java_id, cpu_ns: vec![0; buckets] }
    }
}

impl ThreadTime {
    fn of_process(id: u64) -> ThreadTime {
        ThreadTime { process: format!("{id:016x}"), ..ThreadTime::default() }
    }

    /// Returns a thread that was never introduced.
    fn of_unknown(id: u64) -> ThreadTime {
        ThreadTime { thread: UNKNOWN.to_owned(), kind: "native", ..ThreadTime::of_process(id) }
    }

    fn of(id: u64, session: &Session, thread: &Thread) -> ThreadTime {
        let is_virtual = thread.kind() == ThreadKind::Virtual;
        let carrier = is_virtual.then(|| session.thread(thread.carrier)).flatten();
        ThreadTime {
            tid: thread.tid,
            thread: thread.name.clone(),
            kind: kind_text(thread.kind()),
            java_id: virtual_id(thread),
            carriers: carrier.map(|carrier| carrier.name.clone()).into_iter().collect(),
            ..ThreadTime::of_process(id)
        }
    }
}

/// Number of buckets of a timeline whose width is not given, about.
const BUCKETS: u64 = 200;

/// Most buckets of samples that are shown one by one.
const SAMPLE_BUCKETS: u64 = 20_000;

/// Returns the width of buckets for about 200 of them: less than a second if single samples are kept for the span.
fn round_bucket_ns(source: &dyn Source, span: &Span) -> u64 {
    fine_bucket_ns(source, span, BUCKETS).unwrap_or_else(|| default_bucket_ns(span.to_ns - span.from_ns))
}

/// Returns the width of buckets in which samples keep their order. The spans of longer recordings are as wide as those
/// of a timeline, because a file of a page would have a row for each sample.
pub(super) fn sample_bucket_ns(source: &dyn Source, span: &Span) -> u64 {
    let default_ns = default_bucket_ns(span.to_ns - span.from_ns);
    let fine_ns = (default_ns == NS_PER_S).then(|| fine_bucket_ns(source, span, SAMPLE_BUCKETS)).flatten();
    fine_ns.unwrap_or(default_ns)
}

/// Returns the least width below a second that makes `most` buckets or fewer.
fn fine_bucket_ns(source: &dyn Source, span: &Span, most: u64) -> Option<u64> {
    const WIDTHS_MS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
    let are_kept = source.parts().iter().all(|part| part.has_samples() || !part.overlaps(&span.range_ns()));
    let width_ns = span.to_ns - span.from_ns;
    let is_enough = |width_ms: &u64| width_ns.div_ceil(width_ms * 1_000_000) <= most;
    WIDTHS_MS.into_iter().find(is_enough).filter(|_| are_kept).map(|width_ms| width_ms * 1_000_000)
}

/// Returns a round bucket width in nanoseconds, for about 200 buckets.
fn default_bucket_ns(width_ns: u64) -> u64 {
    const WIDTHS_S: [u64; 14] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400];
    let least_s = width_ns / NS_PER_S / BUCKETS;
    let width_s = WIDTHS_S.into_iter().find(|&width_s| width_s >= least_s);
    width_s.unwrap_or(least_s.div_ceil(86_400) * 86_400) * NS_PER_S
}
