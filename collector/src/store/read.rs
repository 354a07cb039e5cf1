//! Reads samples and sums of a range of time, from blocks and from open minutes.
//!
//! Each sample of the range is visited once, in the coarsest resolution that fits: whole days and hours from their
//! sums, the rest by minutes, and minutes at the ends of the range by single samples. Where retention has removed the
//! fine levels, a bucket belongs to the range if it begins in it.

use std::ops::Range;
use std::sync::Arc;

use super::dictionary_reader::DictionaryReader;
use super::error::StoreError;
use super::memory::{MINUTE_S, OpenMinute, PartitionMemory};
use super::partition::{self, Coverage, Partition, Reading};
use super::rollup::Level;
use profile::cell::Cell;
use profile::dictionary::Dictionary;
use profile::session::Session;
use profile::source::{Extent, Part, ReadError, Sample, Scope, Threads};

const NS_PER_S: u64 = 1_000_000_000;

/// A partition of a store, or a recording, for queries.
#[derive(Clone, Debug)]
pub struct View {
    partition: Arc<Partition>,
    dictionary_reader: Arc<DictionaryReader>,
}

/// Which buckets and minutes cover a range.
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

    /// Returns whether `other` is a view of the same partition, so that stack numbers mean the same in both.
    pub fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.partition, &other.partition)
    }

    /// Calls `read` with the dictionary. The dictionary of an unloaded partition is read from its file, one at a time
    /// in the whole store; other queries wait for it. A loaded one delays the writer meanwhile. So `read` must be
    /// quick, and must not request another dictionary.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn dictionary<R>(&self, read: impl FnOnce(&Dictionary) -> R) -> Result<R, StoreError> {
        let memory = self.partition.memory.read();
        if !memory.is_unloaded {
            return Ok(read(&memory.dictionary));
        }
        // Waiting for the dictionary reader must not block the writer.
        drop(memory);
        self.dictionary_reader.read(&self.partition, read)
    }

    /// Calls `visit` with the sessions whose ids `is_selected` accepts, in the order of ids. The sessions of an
    /// unloaded partition are read from its file one by one. Otherwise no samples can be stored meanwhile, so `visit`
    /// must be quick.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn sessions(
        &self,
        extent: Extent,
        is_selected: impl Fn(u64) -> bool,
        mut visit: impl FnMut(u64, &Session),
    ) -> Result<(), StoreError> {
        let memory = self.partition.memory.read();
        if memory.is_unloaded {
            drop(memory);
            return self.partition.read_sessions(extent, is_selected, |id, session| visit(id, session));
        }
        for (&id, session) in memory.sessions.iter().filter(|(id, _)| is_selected(**id)) {
            visit(id, session);
        }
        Ok(())
    }

    /// Returns whether the partition may have samples in this range of time, in nanoseconds since the epoch.
    pub fn overlaps(&self, range_ns: &Range<u64>) -> bool {
        let own = self.range_ns();
        own.start < range_ns.end && range_ns.start < own.end
    }

    /// Returns the time from the first sample to the last in whole minutes, as nanoseconds since the epoch.
    pub fn range_ns(&self) -> Range<u64> {
        let coverage = *self.partition.coverage.read();
        let memory = self.partition.memory.read();
        let (mut first_s, mut end_s) = (coverage.first_s, coverage.end_s);
        if let (Some(first), Some(last)) = (memory.open.keys().next(), memory.open.keys().next_back()) {
            first_s = if end_s == 0 { first.0 } else { first_s.min(first.0) };
            end_s = end_s.max(last.0 + MINUTE_S);
        }
        first_s.saturating_mul(NS_PER_S)..end_s.saturating_mul(NS_PER_S)
    }

    /// Visits CPU time by session and stack; a key may occur several times.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn stacks(&self, scope: &Scope<'_>, mut visit: impl FnMut(u64, u32, Cell)) -> Result<(), StoreError> {
        let (reading, coverage) = self.begin(|memory, coverage| {
            visit_open(memory, scope, |sample| visit(sample.session, sample.stack, sample.cell()));
            *coverage
        })?;
        let Some(reading) = reading else { return Ok(()) };
        let plan = plan(&coverage, &scope.range_ns, Threads::Together);
        for (level, buckets) in plan.buckets {
            reading.sums(&partition::STACKS, level, buckets, scope.sessions, |_, session, block| {
                partition::read_stacks(block, |stack, cell| visit(session, stack, cell))
            })?;
        }
        self.cut_minutes(&reading, scope, &plan.cut, |sample| {
            visit(sample.session, sample.stack, sample.cell());
        })
    }

    /// Visits CPU time by session, thread and stack, for the threads of a session that `is_selected` accepts; a key
    /// may occur several times.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn thread_stacks(
        &self,
        scope: &Scope<'_>,
        is_selected: impl Fn(u64, u32) -> bool,
        mut visit: impl FnMut(u64, u32, u32, Cell),
    ) -> Result<(), StoreError> {
        let mut visit_sample = |sample: Sample| {
            if is_selected(sample.session, sample.thread) {
                visit(sample.session, sample.thread, sample.stack, sample.cell());
            }
        };
        let (reading, coverage) = self.begin(|memory, coverage| {
            visit_open(memory, scope, &mut visit_sample);
            *coverage
        })?;
        let Some(reading) = reading else { return Ok(()) };
        let plan = plan(&coverage, &scope.range_ns, Threads::Apart);
        for (level, buckets) in plan.buckets {
            reading.sums(
                &partition::THREAD_STACKS,
                level,
                buckets,
                scope.sessions,
                |_, session, block| {
                    partition::read_thread_stacks(
                        block,
                        |thread| is_selected(session, thread),
                        |thread, stack, cell| visit(session, thread, stack, cell),
                    )
                },
            )?;
        }
        self.cut_minutes(&reading, scope, &plan.cut, |sample| {
            if is_selected(sample.session, sample.thread) {
                visit(sample.session, sample.thread, sample.stack, sample.cell());
            }
        })
    }

    /// Visits CPU time by session, thread and time cell, which is given in seconds since the epoch. Cells are a
    /// second wide where minutes are kept, and a minute or an hour in older parts.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn times(
        &self,
        scope: &Scope<'_>,
        threads: Threads,
        mut visit: impl FnMut(u64, u32, Range<u64>, u64),
    ) -> Result<(), StoreError> {
        let (reading, coverage) = self.begin(|memory, coverage| {
            visit_open(memory, scope, |sample| {
                let second = sample.time_ns / NS_PER_S;
                visit(sample.session, sample.thread, second..second + 1, sample.cpu_ns);
            });
            *coverage
        })?;
        let Some(reading) = reading else { return Ok(()) };
        let plan = plan(&coverage, &scope.range_ns, threads);
        for (level, buckets) in plan.buckets {
            reading.sums(&partition::TIMES, level, buckets, scope.sessions, |start_s, session, block| {
                for (thread, second, cpu_ns) in partition::read_times(block)? {
                    let from_s = start_s + u64::from(second);
                    visit(session, thread, from_s..from_s + level.cell_s(), cpu_ns);
                }
                Ok(())
            })?;
        }
        self.cut_minutes(&reading, scope, &plan.cut, |sample| {
            let second = sample.time_ns / NS_PER_S;
            visit(sample.session, sample.thread, second..second + 1, sample.cpu_ns);
        })
    }

    /// Visits the single samples that are kept, by minute and session.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn samples(&self, scope: &Scope<'_>, mut visit: impl FnMut(Sample)) -> Result<(), StoreError> {
        let (reading, ()) = self.begin(|memory, _| visit_open(memory, scope, &mut visit))?;
        let Some(reading) = reading else { return Ok(()) };
        let first_s = Level::Minute.start_of(scope.range_ns.start / NS_PER_S);
        let end_s = scope.range_ns.end.div_ceil(NS_PER_S);
        reading.raw(first_s..end_s, scope.sessions, |start_s, session, block| {
            visit_minute(&partition::read_raw(block)?, start_s, session, &scope.range_ns, &mut visit);
            Ok(())
        })
    }

    /// Returns whether all single samples are kept.
    pub fn has_samples(&self) -> bool {
        self.partition.coverage.read().removed == 0
    }

    /// Reads open minutes and begins a transaction at the same moment, between two folds.
    fn begin<R>(
        &self,
        read: impl FnOnce(&PartitionMemory, &Coverage) -> R,
    ) -> Result<(Option<Reading<'_>>, R), StoreError> {
        let memory = self.partition.memory.read();
        let reading = self.partition.begin_read()?;
        // Roll-ups and retention as of the snapshot.
        let coverage = match &reading {
            Some(reading) => reading.coverage()?,
            None => *self.partition.coverage.read(),
        };
        Ok((reading, read(&memory, &coverage)))
    }

    fn cut_minutes(
        &self,
        reading: &Reading<'_>,
        scope: &Scope<'_>,
        minutes: &[u64],
        mut visit: impl FnMut(Sample),
    ) -> Result<(), StoreError> {
        for &start_s in minutes {
            reading.raw(start_s..start_s + 1, scope.sessions, |_, session, block| {
                visit_minute(&partition::read_raw(block)?, start_s, session, &scope.range_ns, &mut visit);
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Part for View {
    fn range_ns(&self) -> Range<u64> {
        self.range_ns()
    }

    fn has_samples(&self) -> bool {
        self.has_samples()
    }

    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
        Ok(self.dictionary(read)?)
    }

    fn sessions(
        &self,
        extent: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError> {
        Ok(self.sessions(extent, is_selected, visit)?)
    }

    fn stacks(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(u64, u32, Cell)) -> Result<(), ReadError> {
        Ok(self.stacks(scope, visit)?)
    }

    fn thread_stacks(
        &self,
        scope: &Scope<'_>,
        is_selected: &dyn Fn(u64, u32) -> bool,
        visit: &mut dyn FnMut(u64, u32, u32, Cell),
    ) -> Result<(), ReadError> {
        Ok(self.thread_stacks(scope, is_selected, visit)?)
    }

    fn times(
        &self,
        scope: &Scope<'_>,
        threads: Threads,
        visit: &mut dyn FnMut(u64, u32, Range<u64>, u64),
    ) -> Result<(), ReadError> {
        Ok(self.times(scope, threads, visit)?)
    }

    fn samples(&self, scope: &Scope<'_>, visit: &mut dyn FnMut(Sample)) -> Result<(), ReadError> {
        Ok(self.samples(scope, visit)?)
    }
}

fn visit_open(memory: &PartitionMemory, scope: &Scope<'_>, mut visit: impl FnMut(Sample)) {
    let first_s = Level::Minute.start_of(scope.range_ns.start / NS_PER_S);
    let end_s = scope.range_ns.end.div_ceil(NS_PER_S);
    for (&(start_s, session), minute) in memory.open.range((first_s, 0)..(end_s.max(first_s), 0)) {
        if (scope.sessions)(session) {
            visit_minute(minute, start_s, session, &scope.range_ns, &mut visit);
        }
    }
}

fn visit_minute(
    minute: &OpenMinute,
    start_s: u64,
    session: u64,
    range_ns: &Range<u64>,
    visit: &mut impl FnMut(Sample),
) {
    for row in 0..minute.len() {
        // Only a damaged offset exceeds the largest time.
        let offset_ns = u64::from(minute.offset_us[row]) * 1000;
        let time_ns = start_s.saturating_mul(NS_PER_S).saturating_add(offset_ns);
        if range_ns.contains(&time_ns) {
            let (thread, stack) = (minute.thread[row], minute.stack[row]);
            visit(Sample {
                session,
                time_ns,
                thread,
                stack,
                cpu_ns: minute.cpu_ns[row],
                count: minute.count[row],
            });
        }
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
    let finest = match coverage.removed {
        0 | 1 => Level::Minute,
        2 => Level::Hour,
        _ => Level::Day,
    };
    let coarsest = if threads == Threads::Apart { finest } else { Level::Day };
    let has_samples = coverage.removed == 0;
    let mut at_s = finest.start_of(from_ns / NS_PER_S);
    let first_cut = at_s.saturating_mul(NS_PER_S) < from_ns;
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
        let Some(level) = level else {
            // Only the end of the range can lie inside a bucket of the finest level.
            if has_samples {
                plan.cut.push(at_s);
            } else {
                push_buckets(&mut plan, finest, at_s..at_s + finest.width_s());
            }
            at_s += finest.width_s();
            continue;
        };
        push_buckets(&mut plan, level, at_s..at_s + level.width_s());
        at_s += level.width_s();
    }
    plan
}

fn push_buckets(plan: &mut Plan, level: Level, buckets: Range<u64>) {
    match plan.buckets.last_mut() {
        Some((last, range)) if *last == level && range.end == buckets.start => range.end = buckets.end,
        _ => plan.buckets.push((level, buckets)),
    }
}
