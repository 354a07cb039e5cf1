//! Reads samples and sums of a range of time, from blocks and from open minutes.
//!
//! Each sample of the range is visited once, in the coarsest resolution that fits: whole days and hours from their
//! sums, the rest by minutes, and minutes at the ends of the range by single samples. Where retention has removed the
//! fine levels, a bucket belongs to the range in which its first sample can be: where it begins, or where the partition
//! does.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::FairMutex;

use super::damage;
use super::error::StoreError;
use super::memory::{MINUTE_S, OpenMinute};
use super::partition::{self, Coverage, Partition, Reading, RowKey};
use super::rollup::Level;
use profile::dictionary::Dictionary;
use profile::session::Session;
use profile::source::{Extent, Gap, Kind, Part, ReadError, Row, Sample, Scope, Threads};

const NS_PER_S: u64 = 1_000_000_000;

/// Permits one query at a time to read the dictionary of an unloaded partition, which can take a hundred MiB.
///
/// A query reads one dictionary, uses it, and frees it before the next one. Other queries wait in a fair queue, so a
/// query about one partition runs between two dictionaries of a query about many. A query that waits holds no lock and
/// no open read transaction, and never requests a second dictionary while it has one.
#[derive(Debug, Default)]
pub(super) struct DictionaryReader {
    lock: FairMutex<()>,
    /// Number of dictionaries read.
    pub(super) count: AtomicU64,
}

/// A partition of a store, for queries.
#[derive(Clone, Debug)]
pub struct View {
    partition: Arc<Partition>,
    dictionary_reader: Arc<DictionaryReader>,
}

/// The buckets and minutes that cover a range.
#[derive(Default)]
struct Plan {
    /// Buckets that lie in the range, as runs of one level; seconds since the epoch.
    buckets: Vec<(Level, Range<u64>)>,
    /// Minutes that lie in the range only in part.
    cut: Vec<u64>,
}

impl View {
    pub(super) fn new(partition: Arc<Partition>, dictionary_reader: &Arc<DictionaryReader>) -> View {
        View { partition, dictionary_reader: Arc::clone(dictionary_reader) }
    }

    /// Returns the gap of a partition that a query found damaged.
    pub(super) fn gap(&self) -> Option<Gap> {
        let coverage = *self.partition.coverage.read();
        // Relaxed: the flag is never reset and guards nothing else.
        let is_damaged = self.partition.is_damaged.load(Ordering::Relaxed);
        is_damaged.then(|| damage::gap(self.partition.database.path(), coverage.first_s..coverage.end_s))
    }

    /// Reads with `read`; the first time, after the partition was found complete. A closed partition that is damaged is
    /// left out from then on.
    fn read_checked<R>(&self, read: impl FnOnce() -> Result<R, StoreError>) -> Result<R, ReadError> {
        let result = self.partition.verify().and_then(|()| read());
        if let Err(error @ (StoreError::Damaged | StoreError::Block(_))) = result {
            let memory = self.partition.memory.read();
            let is_closed = memory.is_unloaded || memory.dictionary.is_closed();
            if is_closed && !self.partition.is_damaged.swap(true, Ordering::Relaxed) {
                let path = self.partition.database.path().display();
                tracing::error!(%path, %error, "a partition is damaged: its time is missing in answers");
            }
        }
        Ok(result?)
    }

    /// Returns whether `other` is a view of the same partition, so that stack numbers mean the same in both.
    pub fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.partition, &other.partition)
    }

    /// Returns the time from the first minute, or coarser bucket, that starts in `limits`, to the end of the last one.
    fn filled_within(&self, limits: &Range<u64>) -> Result<Range<u64>, StoreError> {
        let range_s = limits.start.div_ceil(NS_PER_S)..limits.end / NS_PER_S;
        let memory = self.partition.memory.read();
        let reading = self.partition.database.begin_read()?;
        let finest = finest_level(&reading.coverage()?);
        let stored = partition::THREAD_STACKS.ends(reading.connection()?, finest, range_s.clone())?;
        let open = memory.open.range((range_s.start, 0)..(range_s.end.max(range_s.start), 0));
        let open_s = (open.clone().next().map(|(key, _)| key.0), open.last().map(|(key, _)| key.0));
        let open = open_s.0.zip(open_s.1).map(|(first, last)| first..last + MINUTE_S);
        let stored = stored.map(|(first, last)| first..last + finest.width_s());
        let both = stored.into_iter().chain(open).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let found = both.unwrap_or_default();
        Ok(found.start.saturating_mul(NS_PER_S)..found.end.saturating_mul(NS_PER_S))
    }

    /// Visits open minutes and begins a transaction at the same moment, between two folds.
    fn begin(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(Row)) -> Result<Reading<'_>, StoreError> {
        let memory = self.partition.memory.read();
        let reading = self.partition.database.begin_read()?;
        let Range { start, end } = minutes_of(scope);
        for (&(start_s, session), minute) in memory.open.range((start, 0)..(end.max(start), 0)) {
            if (scope.sessions)(session) {
                samples_of(minute, start_s, session, scope).for_each(|sample| visit(Row::Sample(sample)));
            }
        }
        Ok(reading)
    }
}

impl Part for View {
    fn range_ns(&self) -> Range<u64> {
        let coverage = *self.partition.coverage.read();
        let memory = self.partition.memory.read();
        let (mut first_s, mut end_s) = (coverage.first_s, coverage.end_s);
        if let (Some(first), Some(last)) = (memory.open.keys().next(), memory.open.keys().next_back()) {
            first_s = if end_s == 0 { first.0 } else { first_s.min(first.0) };
            end_s = end_s.max(last.0 + MINUTE_S);
        }
        first_s.saturating_mul(NS_PER_S)..end_s.saturating_mul(NS_PER_S)
    }

    fn range_within(&self, limits: &Range<u64>) -> Range<u64> {
        let own = self.range_ns();
        if limits.start <= own.start && own.end <= limits.end {
            return own;
        }
        // A partition that cannot be read has no range; its next question finds the damage.
        self.filled_within(limits).unwrap_or_default()
    }

    fn has_samples(&self) -> bool {
        self.partition.coverage.read().removed == 0
    }

    /// The dictionary of an unloaded partition is read from its file, one at a time in the whole store; other queries
    /// wait for it. A loaded one delays the writer meanwhile.
    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
        let memory = self.partition.memory.read();
        if !memory.is_unloaded {
            read(&memory.dictionary);
            return Ok(());
        }
        // Waiting for the dictionary reader must not block the writer.
        drop(memory);
        self.read_checked(|| {
            let _guard = self.dictionary_reader.lock.lock();
            // Relaxed: a statistics counter.
            self.dictionary_reader.count.fetch_add(1, Ordering::Relaxed);
            read(&self.partition.read_dictionary()?);
            Ok(())
        })
    }

    /// The sessions of an unloaded partition are read from its file one by one. Otherwise no samples can be stored
    /// meanwhile.
    fn sessions(
        &self,
        extent: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError> {
        self.read_checked(|| Ok(()))?;
        let memory = self.partition.memory.read();
        if memory.is_unloaded {
            drop(memory);
            return self.read_checked(|| {
                self.partition.read_sessions(extent, is_selected, |id, session| visit(id, &session.seen))
            });
        }
        for (&id, session) in memory.sessions.iter().filter(|(id, _)| is_selected(**id)) {
            visit(id, &session.seen);
        }
        Ok(())
    }

    /// Cells of time are a second wide where minutes are kept, and a minute or an hour in older parts.
    fn read(&self, scope: &Scope<'_>, kind: Kind<'_>, visit: &mut dyn FnMut(Row)) -> Result<(), ReadError> {
        self.read_checked(|| {
            let reading = self.begin(scope, visit)?;
            let (table, threads) = match kind {
                Kind::Samples => return each_raw(&reading, minutes_of(scope), scope, visit),
                Kind::Stacks => (partition::STACKS, Threads::Together),
                Kind::ThreadStacks(_) => (partition::THREAD_STACKS, Threads::Apart),
                Kind::Times(threads) => (partition::TIMES, threads),
            };
            // Roll-ups and retention as of the snapshot.
            let plan = plan(&reading.coverage()?, &scope.range_ns, threads);
            for (level, buckets) in plan.buckets {
                table.range(reading.connection()?, Some(level), buckets, scope.sessions, |key, block| {
                    read_sums(kind, level, &key, block, visit)
                })?;
            }
            plan.cut
                .into_iter()
                .try_for_each(|start_s| each_raw(&reading, start_s..start_s + 1, scope, visit))
        })
    }
}

/// Visits the rows of a block of sums.
fn read_sums(
    kind: Kind<'_>,
    level: Level,
    key: &RowKey,
    block: &[u8],
    visit: &mut dyn FnMut(Row),
) -> Result<(), StoreError> {
    let session = key.session;
    match kind {
        Kind::Samples => Ok(()),
        Kind::Stacks => partition::read_stacks(block, |stack, sum| visit(Row::Stack { session, stack, sum })),
        Kind::ThreadStacks(is_selected) => partition::read_thread_stacks(
            block,
            |thread| is_selected(session, thread),
            |thread, stack, sum| visit(Row::ThreadStack { session, thread, stack, sum }),
        ),
        Kind::Times(_) => {
            for (thread, second, cpu_ns) in partition::read_times(block)? {
                let from_s = key.start_s + u64::from(second);
                visit(Row::Time { session, thread, cell_s: from_s..from_s + level.cell_s(), cpu_ns });
            }
            Ok(())
        }
    }
}

/// Returns the range of starts of the minutes that overlap the scope, in seconds since the epoch.
fn minutes_of(scope: &Scope<'_>) -> Range<u64> {
    Level::Minute.start_of(scope.range_ns.start / NS_PER_S)..scope.range_ns.end.div_ceil(NS_PER_S)
}

/// Returns the samples of a minute that lie in the scope.
fn samples_of<'m>(
    minute: &'m OpenMinute,
    start_s: u64,
    session: u64,
    scope: &'m Scope<'_>,
) -> impl Iterator<Item = Sample> + 'm {
    let sample = move |row| {
        // Only a damaged offset exceeds the largest time.
        let offset_ns = u64::from(minute.offset_us[row]) * 1000;
        let time_ns = start_s.saturating_mul(NS_PER_S).saturating_add(offset_ns);
        let (thread, stack) = (minute.thread[row], minute.stack[row]);
        Sample { session, time_ns, thread, stack, cpu_ns: minute.cpu_ns[row], count: minute.count[row] }
    };
    (0..minute.len()).map(sample).filter(|sample| scope.range_ns.contains(&sample.time_ns))
}

/// Visits the single samples of the scope in the blocks of minutes that start in `range_s`.
fn each_raw(
    reading: &Reading<'_>,
    range_s: Range<u64>,
    scope: &Scope<'_>,
    visit: &mut dyn FnMut(Row),
) -> Result<(), StoreError> {
    partition::RAW.range(reading.connection()?, None, range_s, scope.sessions, |key, block| {
        let minute = partition::read_raw(block)?;
        samples_of(&minute, key.start_s, key.session, scope).for_each(|sample| visit(Row::Sample(sample)));
        Ok(())
    })
}

/// Returns the finest level of sums that retention has left.
fn finest_level(coverage: &Coverage) -> Level {
    match coverage.removed {
        0 | 1 => Level::Minute,
        2 => Level::Hour,
        _ => Level::Day,
    }
}

/// Returns buckets that cover the range, each as coarse as the range, the existing roll-ups and `threads` permit.
fn plan(coverage: &Coverage, range_ns: &Range<u64>, threads: Threads) -> Plan {
    let mut plan = Plan::default();
    // Agent clocks may be arbitrarily wrong, so times may overflow.
    let from_ns = range_ns.start.max(coverage.first_s.saturating_mul(NS_PER_S));
    let end_ns = range_ns.end.min(coverage.end_s.saturating_mul(NS_PER_S));
    if from_ns >= end_ns {
        return plan;
    }
    let finest = finest_level(coverage);
    let coarsest = if threads == Threads::Apart { finest } else { Level::Day };
    let has_samples = coverage.removed == 0;
    let mut at_s = finest.start_of(from_ns / NS_PER_S);
    // The first bucket of a partition may begin before its first sample: it belongs to a range that begins before that
    // sample.
    let is_whole = range_ns.start <= coverage.first_s.saturating_mul(NS_PER_S);
    let first_cut = !is_whole && at_s.saturating_mul(NS_PER_S) < from_ns;
    if first_cut {
        if has_samples {
            plan.cut.push(at_s);
        }
        // Without single samples, a bucket that begins before the range is left out.
        at_s += finest.width_s();
    }
    // After this time only the finest level exists, so its buckets are added as one range: with a clock that is wrong
    // by centuries they would be hundreds of millions.
    let coarser = Level::COARSE.into_iter().filter(|level| *level > finest && *level <= coarsest);
    let rest_s = coarser.map(|level| coverage.rolled_s[level as usize]).max().unwrap_or(0);
    let last_s = finest.start_of(end_ns / NS_PER_S);
    while at_s.saturating_mul(NS_PER_S) < end_ns {
        if at_s >= rest_s && at_s < last_s {
            push_buckets(&mut plan, finest, at_s..last_s);
            at_s = last_s;
            continue;
        }
        let fits = |level: &Level| {
            let is_rolled = *level == finest || at_s < coverage.rolled_s[*level as usize];
            *level >= finest
                && *level <= coarsest
                && is_rolled
                && at_s == level.start_of(at_s)
                && (at_s + level.width_s()).saturating_mul(NS_PER_S) <= end_ns
        };
        let level = [Level::Day, Level::Hour, Level::Minute].into_iter().find(fits);
        let end_s = at_s + level.unwrap_or(finest).width_s();
        // Without a level, the end of the range is inside a bucket of the finest one.
        if level.is_none() && has_samples {
            plan.cut.push(at_s);
        } else {
            push_buckets(&mut plan, level.unwrap_or(finest), at_s..end_s);
        }
        at_s = end_s;
    }
    plan
}

fn push_buckets(plan: &mut Plan, level: Level, buckets: Range<u64>) {
    match plan.buckets.last_mut() {
        Some((last, range)) if *last == level && range.end == buckets.start => range.end = buckets.end,
        _ => plan.buckets.push((level, buckets)),
    }
}
