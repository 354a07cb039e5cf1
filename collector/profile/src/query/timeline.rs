//! CPU time in time buckets, by process or by thread; and the CPU time of threads.

use std::collections::BTreeMap;
use std::ops::Range;

use proto::v1::{Thread, ThreadKind};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::error::QueryError;
use super::matches::Matches;
use super::selection::{Selection, Span};
use crate::quantity::total;
use crate::session::Session;
use crate::source::{Extent, Scope, Source, Threads, with_dictionary};
use crate::stop::UNKNOWN;
use crate::thread::{default_name, kind_text, virtual_id};

const NS_PER_S: u64 = 1_000_000_000;

/// Maximum number of buckets of a timeline, more than the columns of a screen.
pub const MOST_BUCKETS: u64 = 10_000;

/// Maximum number of rows of a timeline and of a table of threads.
pub const MOST_ROWS: usize = 10_000;

/// Meaning of the rows of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// One row for all.
    #[default]
    All,
    /// A row for each process.
    Process,
    /// A row for each thread.
    Thread,
}

/// One row of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct Row {
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
#[allow(missing_docs, reason = "described in collector/API.md")]
pub struct Timeline {
    pub from_ns: u64,
    pub to_ns: u64,
    pub bucket_ns: u64,
    pub rows: Vec<Row>,
    pub rows_left_out: usize,
}

/// CPU time of one thread in a selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described in collector/API.md")]
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
    by: By,
    bucket_ns: u64,
    limit: usize,
    now_ns: u64,
) -> Result<Timeline, QueryError> {
    let span = selection.span(source, now_ns);
    let width_ns = span.to_ns - span.from_ns;
    let bucket_ns = if bucket_ns == 0 { default_bucket_ns(width_ns) } else { bucket_ns };
    let buckets = width_ns.div_ceil(bucket_ns);
    if buckets > MOST_BUCKETS {
        return Err(QueryError::BadValue {
            parameter: "bucket",
            expected: "a width that makes 10000 buckets or fewer",
        });
    }
    let key = |session, thread| match by {
        By::All => (0, 0),
        By::Process => (session, 0),
        By::Thread => (session, thread),
    };
    let mut cells: FxHashMap<Key, BTreeMap<u64, u64>> = FxHashMap::default();
    let mut widest_ns = bucket_ns;
    let range_ns = span.from_ns..span.to_ns;
    for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
        let matches = Matches::of(&**part, selection)?;
        let is_selected = |id: u64| matches.has_session(id);
        let scope = Scope { range_ns: range_ns.clone(), sessions: &is_selected };
        let mut put = |session, thread, time_ns: u64, cpu_ns: u64| {
            let bucket = time_ns.saturating_sub(span.from_ns) / bucket_ns;
            let cell = cells.entry(key(session, thread)).or_default().entry(bucket).or_default();
            *cell = cell.saturating_add(cpu_ns);
        };
        if bucket_ns < NS_PER_S || selection.filters_stacks() {
            let stacks = selection
                .filters_stacks()
                .then(|| with_dictionary(&**part, |dictionary| selection.matching_stacks(dictionary)))
                .transpose()?;
            part.samples(&scope, &mut |sample| {
                let stack = sample.stack as usize;
                let is_match =
                    stacks.as_ref().is_none_or(|stacks| stacks.get(stack).copied().unwrap_or(false));
                if is_match && matches.has_thread(sample.session, sample.thread) {
                    put(sample.session, sample.thread, sample.time_ns, sample.cpu_ns);
                }
            })?;
        } else {
            let threads = if by == By::Thread || selection.filters_threads() {
                Threads::Apart
            } else {
                Threads::Together
            };
            part.times(&scope, threads, &mut |session, thread, cell_s, cpu_ns| {
                if matches.has_thread(session, thread) {
                    widest_ns = widest_ns.max((cell_s.end - cell_s.start) * NS_PER_S);
                    put(session, thread, cell_s.start.saturating_mul(NS_PER_S), cpu_ns);
                }
            })?;
        }
    }
    let mut titles = match by {
        By::All => FxHashMap::default(),
        By::Process => cells.keys().map(|&key| (key, Title::of_process(key.0))).collect(),
        By::Thread => {
            describe_threads(source, &range_ns, cells.keys(), |id, _, thread| Title::of(id, thread))?
        }
    };
    // Older parts may have coarser times than the buckets.
    let factor = widest_ns.div_ceil(bucket_ns);
    let buckets = buckets.div_ceil(factor) as usize;
    let mut rows: Vec<(u64, Title, BTreeMap<u64, u64>)> = merge_carriers(cells, &mut titles, by)
        .into_iter()
        .map(|(title, cells)| (total(cells.values().copied()), title, cells))
        .collect();
    rows.sort_by(|a, b| {
        b.0.cmp(&a.0).then_with(|| (&a.1.process, &a.1.thread).cmp(&(&b.1.process, &b.1.thread)))
    });
    let rows_left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let rows = rows.into_iter().map(|(_, title, cells)| title.into_row(&cells, factor, buckets)).collect();
    Ok(Timeline {
        from_ns: span.from_ns,
        to_ns: span.to_ns,
        bucket_ns: bucket_ns * factor,
        rows,
        rows_left_out,
    })
}

/// Returns the rows of a timeline. The numbers that a virtual thread has on several carriers become one row.
fn merge_carriers(
    cells: FxHashMap<Key, BTreeMap<u64, u64>>,
    titles: &mut FxHashMap<Key, Title>,
    by: By,
) -> Vec<(Title, BTreeMap<u64, u64>)> {
    let mut rows: Vec<(Title, BTreeMap<u64, u64>)> = Vec::with_capacity(cells.len());
    let mut row_of: FxHashMap<(u64, i64), usize> = FxHashMap::default();
    for (key, cells) in cells {
        let title = titles.remove(&key).unwrap_or_else(|| match by {
            By::Thread => Title::of_unknown(key.0),
            _ => Title::default(),
        });
        let known = match title.java_id {
            0 => rows.len(),
            java_id => *row_of.entry((key.0, java_id)).or_insert(rows.len()),
        };
        let Some((row, sums)) = rows.get_mut(known) else {
            rows.push((title, cells));
            continue;
        };
        if row.thread == default_name(row.java_id) {
            row.thread = title.thread;
        }
        for (bucket, cpu_ns) in cells {
            let sum = sums.entry(bucket).or_default();
            *sum = sum.saturating_add(cpu_ns);
        }
    }
    rows
}

/// Returns the threads of a selection by CPU time, the busiest first.
///
/// # Errors
/// If the source cannot be read.
pub fn threads(
    source: &dyn Source,
    selection: &Selection,
    now_ns: u64,
) -> Result<(Vec<ThreadTime>, Span), QueryError> {
    let span = selection.span(source, now_ns);
    let mut times: FxHashMap<Key, u64> = FxHashMap::default();
    let range_ns = span.from_ns..span.to_ns;
    for part in source.parts().iter().filter(|part| part.overlaps(&range_ns)) {
        let matches = Matches::of(&**part, selection)?;
        let is_selected = |id: u64| matches.has_session(id);
        let scope = Scope { range_ns: range_ns.clone(), sessions: &is_selected };
        // Consecutive values mostly belong to one thread; they are summed first, to save look-ups of the thread.
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
    let mut known = describe_threads(source, &range_ns, times.keys(), ThreadTime::of)?;
    let mut rows: Vec<ThreadTime> = times
        .into_iter()
        .map(|(key, cpu_ns)| {
            let row = known.remove(&key).unwrap_or_else(|| ThreadTime::new(Title::of_unknown(key.0)));
            ThreadTime { cpu_ns, ..row }
        })
        .collect();
    merge_carrier_rows(&mut rows);
    rows.sort_by(|a, b| {
        b.cpu_ns
            .cmp(&a.cpu_ns)
            .then_with(|| (&a.process, &a.thread, a.tid).cmp(&(&b.process, &b.thread, b.tid)))
    });
    Ok((rows, span))
}

/// Returns the results of `of` for the threads of `keys`, as described by the last partition that has them. Unknown
/// threads are left out.
pub(super) fn describe_threads<'k, T>(
    source: &dyn Source,
    range_ns: &Range<u64>,
    keys: impl Iterator<Item = &'k Key>,
    of: impl Fn(u64, &Session, &Thread) -> T,
) -> Result<FxHashMap<Key, T>, QueryError> {
    let mut missing: FxHashMap<u64, FxHashSet<u32>> = FxHashMap::default();
    for &(session, thread) in keys {
        missing.entry(session).or_default().insert(thread);
    }
    let mut found = FxHashMap::default();
    for part in source.parts().iter().rev().filter(|part| part.overlaps(range_ns)) {
        let mut found_here = Vec::new();
        part.sessions(Extent::Threads, &|id| missing.contains_key(&id), &mut |id, session| {
            let known = missing[&id].iter().filter_map(|&thread| session.thread(thread));
            found_here.extend(known.map(|thread| ((id, thread.id), of(id, session, thread))));
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

/// Merges the rows of a virtual thread on several carriers.
fn merge_carrier_rows(rows: &mut Vec<ThreadTime>) {
    rows.sort_unstable_by(|a, b| {
        (&a.process, a.java_id, &a.carriers).cmp(&(&b.process, b.java_id, &b.carriers))
    });
    rows.dedup_by(|next, kept| {
        let is_same = next.java_id != 0 && next.java_id == kept.java_id && next.process == kept.process;
        if is_same {
            kept.cpu_ns = kept.cpu_ns.saturating_add(next.cpu_ns);
            kept.carriers.append(&mut next.carriers);
            // The agent may have read the name late and sent it for one carrier only.
            if kept.thread == default_name(kept.java_id) {
                kept.thread = std::mem::take(&mut next.thread);
            }
            // There is more than one kernel thread.
            kept.tid = 0;
        }
        is_same
    });
}

/// Process and thread of a row.
#[derive(Default)]
pub(super) struct Title {
    process: String,
    thread: String,
    kind: &'static str,
    /// `java.lang.Thread.threadId()` of a virtual thread, else 0.
    java_id: i64,
}

impl Title {
    fn of_process(id: u64) -> Title {
        Title { process: format!("{id:016x}"), ..Title::default() }
    }

    fn of(id: u64, thread: &Thread) -> Title {
        let (kind, java_id) = (kind_text(thread.kind()), virtual_id(thread));
        Title { thread: thread.name.clone(), kind, java_id, ..Title::of_process(id) }
    }

    /// Returns the title of a thread that was never introduced.
    pub(super) fn of_unknown(id: u64) -> Title {
        Title { thread: UNKNOWN.to_owned(), kind: "native", ..Title::of_process(id) }
    }

    /// Returns the row with its CPU time summed over `factor` buckets each.
    fn into_row(self, cells: &BTreeMap<u64, u64>, factor: u64, buckets: usize) -> Row {
        let mut cpu_ns = vec![0u64; buckets];
        for (bucket, ns) in cells {
            if let Some(cell) = cpu_ns.get_mut((bucket / factor) as usize) {
                *cell = cell.saturating_add(*ns);
            }
        }
        let Title { process, thread, kind, java_id } = self;
        Row { process, thread, kind, java_id, cpu_ns }
    }
}

impl ThreadTime {
    pub(super) fn new(title: Title) -> ThreadTime {
        let Title { process, thread, kind, java_id } = title;
        ThreadTime { process, tid: 0, thread, kind, java_id, carriers: Vec::new(), cpu_ns: 0 }
    }

    pub(super) fn of(id: u64, session: &Session, thread: &Thread) -> ThreadTime {
        let is_virtual = thread.kind() == ThreadKind::Virtual;
        let carrier = is_virtual.then(|| session.thread(thread.carrier)).flatten();
        let carriers = carrier.map(|carrier| carrier.name.clone()).into_iter().collect();
        ThreadTime { tid: thread.tid, carriers, ..ThreadTime::new(Title::of(id, thread)) }
    }
}

/// Returns a round bucket width in nanoseconds, for about 200 buckets.
pub(super) fn default_bucket_ns(width_ns: u64) -> u64 {
    const WIDTHS_S: [u64; 14] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400];
    let least_s = width_ns / NS_PER_S / 200;
    let width_s = WIDTHS_S.into_iter().find(|&width_s| width_s >= least_s);
    width_s.unwrap_or(least_s.div_ceil(86_400) * 86_400) * NS_PER_S
}
