//! Reading: samples and sums of a stretch of time, from blocks and from what is still open.
//!
//! Every sample of the range is visited once, in the coarsest resolution that fits: whole days and hours from
//! their sums, the rest by minutes, and the minutes that the range cuts by single samples.
//! Where retention has removed the fine levels, a bucket belongs to the range if it begins in it.

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

/// A partition of a store, or a recording, to be read.
#[derive(Clone, Debug)]
pub struct View {
    partition: Arc<Partition>,
    dictionary_reader: Arc<DictionaryReader>,
}

/// Where the sums of a range are found.
#[derive(Default)]
struct Plan {
    /// Level and start of buckets.
    buckets: Vec<(Level, Range<u64>)>,
    /// Minutes of which a part is wanted.
    cut: Vec<u64>,
}

impl View {
    pub(super) fn new(partition: Arc<Partition>, dictionary_reader: &Arc<DictionaryReader>) -> View {
        View { partition, dictionary_reader: Arc::clone(dictionary_reader) }
    }

    /// Whether this is a view of the same partition as `other`: numbers of stacks mean the same in both.
    pub fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.partition, &other.partition)
    }

    /// Calls `read` with what samples refer to. Of an old partition it may have to be read from its file first, one at a
    /// time in all of the store: others wait meanwhile, as samples do where it is in memory, so `read` should be quick,
    /// and must not ask for another one.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn dictionary<R>(&self, read: impl FnOnce(&Dictionary) -> R) -> Result<R, StoreError> {
        let memory = self.partition.memory.read();
        if !memory.is_unloaded {
            return Ok(read(&memory.dictionary));
        }
        // Whoever waits for its turn holds no lock that somebody else needs.
        drop(memory);
        self.dictionary_reader.read(&self.partition, read)
    }

    /// Calls `visit` with the sessions whose ids `is_selected` says yes to, in the order of ids. Those of an old partition may
    /// be read from its file, one after the other; samples cannot be taken in while the others are visited, so `visit`
    /// should be quick.
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

    /// Whether there may be samples in this range of time, in nanoseconds since the epoch.
    pub fn overlaps(&self, range_ns: &Range<u64>) -> bool {
        let own = self.range_ns();
        own.start < range_ns.end && range_ns.start < own.end
    }

    /// Time from the first sample to the last, in whole minutes; nanoseconds since the epoch.
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

    /// Visits CPU time by session and stack; a key can come several times.
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

    /// Visits CPU time by session, thread and stack, for the threads of a session that `is_selected` says yes to; a key can
    /// come several times.
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

    /// Visits CPU time by session, thread and time: start of the time cell in seconds since the epoch, and its
    /// width. Cells are a second wide where minutes are kept, a minute or an hour in older parts.
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

    /// Visits single samples, minute by minute and session by session, as far as they are kept.
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

    /// Tells whether single samples of all its time are still kept.
    pub fn has_samples(&self) -> bool {
        self.partition.coverage.read().removed == 0
    }

    /// Reads what is open and begins a transaction at one moment, between two folds.
    fn begin<R>(
        &self,
        read: impl FnOnce(&PartitionMemory, &Coverage) -> R,
    ) -> Result<(Option<Reading<'_>>, R), StoreError> {
        let memory = self.partition.memory.read();
        let reading = self.partition.begin_read()?;
        // What roll-ups and retention have done until then, not since.
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
        // A damaged offset is the only one that can lead beyond the end of time.
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

/// Covers the range with buckets, each as coarse as the range, the roll-ups made and `threads` allow.
fn plan(coverage: &Coverage, range_ns: &Range<u64>, threads: Threads) -> Plan {
    let mut plan = Plan::default();
    // Clocks of agents may stand anywhere, the end of the numbers included.
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
        // Without samples, a bucket that begins before the range is not of it.
        at_s += finest.width_s();
    }
    // From here on only the finest level will do, so whole buckets are taken at once: a clock that is wrong by centuries
    // would make them hundreds of millions.
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
            // Only the end of the range can cut a bucket of the finest level.
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
