//! The samples of one process within a selection, with the dictionary rows they refer to.
//!
//! Exports and the summary use it. The dictionary holds only the rows that the samples refer to, merged from all
//! parts of a store.

use std::collections::BTreeMap;

use proto::framing::FramingError;
use proto::v1::{Hello, Thread};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dictionary::stop::{UNKNOWN, is_failure, reason};
use crate::dictionary::{Copies, Dictionary};
use crate::query::error::QueryError;
use crate::query::matches::Matches;
use crate::query::selection::Selection;
use crate::query::span::Span;
use crate::session::thread::account_owner;
use crate::session::{LIVE, Session};
use crate::source::recording::Recording;
use crate::source::{Extent, Part, Sample, Scope, Source, Sum};

/// Maximum number of processes of an export, because all of their sessions and threads are in memory.
const MOST_PROCESSES: usize = 1_000;

/// One process within a selection.
#[derive(Clone, Debug)]
pub struct ProcessProfile {
    session: Session,
    dictionary: Dictionary,
    samples: Vec<Sample>,
    /// All samples of the session by thread.
    by_thread: FxHashMap<u32, Sum>,
    is_part: bool,
    goes_on: bool,
    cut: Option<FramingError>,
}

impl ProcessProfile {
    /// Reads the only process of `selection` in `source`.
    ///
    /// # Errors
    /// If the selection has no process or more than one, or if the source cannot be read.
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<ProcessProfile, QueryError> {
        let span = selection.span(source, now_ns);
        let sessions = sessions_of(source, selection, &span, 2)?;
        if sessions.len() != 1 {
            return Err(QueryError::OneProcess(sessions.len()));
        }
        let (id, session) = sessions.into_iter().next().ok_or(QueryError::OneProcess(0))?;
        // A recording gets no further samples.
        let goes_on = source.end_ns().is_none() && session.state(now_ns) == LIVE;
        Ok(ProcessProfile { goes_on, ..Self::read(source, selection, &span, id, session)? })
    }

    /// Reads the processes of `selection` in `source` lazily, one after the other. Processes without selected samples
    /// are left out, unless the selection is all of a single process.
    ///
    /// # Errors
    /// If the selection has no process or more than 1,000, or if the source cannot be read.
    pub fn each<'s>(
        source: &'s dyn Source,
        selection: &'s Selection,
        now_ns: u64,
    ) -> Result<impl Iterator<Item = Result<ProcessProfile, QueryError>> + 's, QueryError> {
        let span = selection.span(source, now_ns);
        let sessions = sessions_of(source, selection, &span, MOST_PROCESSES + 1)?;
        match sessions.len() {
            0 => return Err(QueryError::OneProcess(0)),
            1..=MOST_PROCESSES => {}
            _ => return Err(QueryError::ManyProcesses(MOST_PROCESSES)),
        }
        let is_single = sessions.len() == 1 && !selection.narrows_sessions();
        let profiles =
            sessions.into_iter().map(move |(id, session)| Self::read(source, selection, &span, id, session));
        Ok(profiles.filter(move |profile| {
            is_single || profile.as_ref().map_or(true, |profile| !profile.samples.is_empty())
        }))
    }

    fn read(
        source: &dyn Source,
        selection: &Selection,
        span: &Span,
        id: u64,
        session: Session,
    ) -> Result<ProcessProfile, QueryError> {
        let mut profile = ProcessProfile {
            session,
            dictionary: Dictionary::unlimited(),
            samples: Vec::new(),
            by_thread: FxHashMap::default(),
            is_part: selection.narrows_sessions(),
            goes_on: false,
            cut: source.cut(),
        };
        for part in source.parts().iter().filter(|part| part.overlaps(&span.range_ns())) {
            profile.add_part(&**part, id, selection, span)?;
        }
        profile.by_thread = match profile.is_part {
            true => session_by_thread(source, id)?,
            false => sums_by_thread(&profile.samples),
        };
        if source.parts().iter().any(|part| !part.has_samples()) {
            // Sums by group of threads have no accounts.
            profile.session.retire_all();
        }
        Ok(profile)
    }

    /// Reads all samples of a source with one process, such as a recording.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn whole(source: &dyn Source) -> Result<ProcessProfile, QueryError> {
        Self::of(source, &Selection::default(), 0)
    }

    /// Returns all of a recording, whose memory is used again.
    pub fn of_recording(recording: Recording) -> ProcessProfile {
        let cut = recording.cut();
        let (session, dictionary, samples) = recording.into_parts();
        let by_thread = sums_by_thread(&samples);
        ProcessProfile { session, dictionary, samples, by_thread, is_part: false, goes_on: false, cut }
    }

    /// Builds a profile from sums of one session: thread, stack of the part's dictionary, and sum.
    ///
    /// The result has the threads of these sums, the account of the whole session without accounts of threads, and
    /// `time_ns` as the time of its samples. `None` if the part
    /// does not know the session.
    pub fn of_cells(part: &dyn Part, id: u64, cells: &[(u32, u32, Sum)], time_ns: u64) -> Option<Self> {
        let threads: FxHashSet<u32> = cells.iter().map(|&(thread, ..)| thread).collect();
        let mut known = None;
        let read = part.sessions(Extent::Threads, &|session| session == id, &mut |_, session| {
            let mut copy = Session::default();
            copy.introduce(session.hello.clone());
            copy.statistics = session.statistics.clone();
            (copy.samples, copy.biased, copy.sampled_ns) =
                (session.samples, session.biased, session.sampled_ns);
            copy.retired_kernel_ns = session.kernel_ns();
            copy.retired_sampled_ns = session.accounted_sampled_ns();
            for thread in threads.iter().filter_map(|&thread| session.thread(thread)) {
                copy.add_thread(thread.clone());
                session.thread(thread.carrier).cloned().map(|carrier| copy.add_thread(carrier));
            }
            known = Some(copy);
        });
        let samples = cells.iter().map(|&(thread, stack, cell)| Sample {
            session: id,
            time_ns,
            thread,
            stack,
            cpu_ns: cell.cpu_ns,
            count: u32::try_from(cell.samples).unwrap_or(u32::MAX),
        });
        let mut samples: Vec<Sample> = samples.collect();
        let mut own = Dictionary::unlimited();
        let read = read.and_then(|()| {
            part.dictionary(&mut |dictionary| {
                let mut copies = Copies::default();
                for sample in &mut samples {
                    sample.stack = own.copy_stack(dictionary, sample.stack, &mut copies);
                }
            })
        });
        let session = known?;
        if read.is_err() {
            // Without names, the samples keep their CPU time.
            samples.iter_mut().for_each(|sample| sample.stack = 0);
        }
        let by_thread = FxHashMap::default();
        Some(ProcessProfile {
            session,
            dictionary: own,
            samples,
            by_thread,
            is_part: true,
            goes_on: false,
            cut: None,
        })
    }

    fn add_part(
        &mut self,
        part: &dyn Part,
        id: u64,
        selection: &Selection,
        span: &Span,
    ) -> Result<(), QueryError> {
        let matches = Matches::of(part, selection)?;
        let is_session = |session: u64| session == id;
        let scope = Scope { range_ns: span.range_ns(), sessions: &is_session };
        let mut samples = Vec::new();
        if part.has_samples() {
            part.samples(&scope, &mut |sample| {
                if matches.has_thread(id, sample.thread) {
                    samples.push(sample);
                }
            })?;
        } else {
            // Only sums are left; they get the time at which the part begins.
            let time_ns = part.range_ns().start.max(span.from_ns);
            let is_selected = |session, thread| matches.has_thread(session, thread);
            part.thread_stacks(&scope, &is_selected, &mut |session, thread, stack, cell| {
                let count = u32::try_from(cell.samples).unwrap_or(u32::MAX);
                samples.push(Sample { session, time_ns, thread, stack, cpu_ns: cell.cpu_ns, count });
            })?;
        }
        let own = &mut self.dictionary;
        part.dictionary(&mut |dictionary| {
            let stacks = selection.filters_stacks().then(|| selection.matching_stacks(dictionary));
            let is_match = |stack: u32| {
                stacks.as_ref().is_none_or(|stacks| stacks.get(stack as usize).copied().unwrap_or(false))
            };
            samples.retain(|sample| is_match(sample.stack));
            let mut copies = Copies::default();
            for sample in &mut samples {
                sample.stack = own.copy_stack(dictionary, sample.stack, &mut copies);
            }
        })?;
        self.samples.append(&mut samples);
        Ok(())
    }

    /// Returns the session; its account covers all its time.
    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn hello(&self) -> &Hello {
        &self.session.hello
    }

    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Returns the samples; those of a recording in the order of arrival.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the sums by thread and stack, in ascending order of both.
    pub fn cells(&self) -> Vec<(u32, u32, Sum)> {
        let mut cells: FxHashMap<(u32, u32), Sum> = FxHashMap::default();
        for sample in &self.samples {
            cells.entry((sample.thread, sample.stack)).or_default().add(sample.sum());
        }
        let mut cells: Vec<_> =
            cells.into_iter().map(|((thread, stack), cell)| (thread, stack, cell)).collect();
        cells.sort_unstable_by_key(|&(thread, stack, _)| (thread, stack));
        cells
    }

    /// Returns the sums of the selected samples by thread.
    pub fn by_thread(&self) -> FxHashMap<u32, Sum> {
        sums_by_thread(&self.samples)
    }

    /// Returns the sums of all samples of the session by thread, regardless of the selection.
    pub fn session_by_thread(&self) -> &FxHashMap<u32, Sum> {
        &self.by_thread
    }

    /// Returns the number of samples by stop reason of their walks.
    pub fn stops(&self) -> BTreeMap<String, u64> {
        let mut stops = BTreeMap::new();
        for sample in &self.samples {
            let count: &mut u64 = stops.entry(reason(self.root_of(sample.stack)).to_owned()).or_default();
            *count = count.saturating_add(sample.count.into());
        }
        stops
    }

    pub fn total(&self) -> Sum {
        let mut total = Sum::default();
        self.samples.iter().for_each(|sample| total.add(sample.sum()));
        total
    }

    /// Returns the start of the session, or the time of its first sample if that is earlier, in nanoseconds since the
    /// epoch.
    pub fn start_ns(&self) -> u64 {
        let first = self.samples.iter().map(|sample| sample.time_ns).min();
        first.map_or(self.hello().wall_clock_ns, |first| first.min(self.hello().wall_clock_ns))
    }

    /// Returns the time from [`start_ns`](Self::start_ns) to the last sample.
    pub fn duration_ns(&self) -> u64 {
        let last = self.samples.iter().map(|sample| sample.time_ns).max().unwrap_or(0);
        last.saturating_sub(self.start_ns())
    }

    /// Returns the service with the process id.
    pub fn title(&self) -> String {
        format!("{} ({})", self.session.service(), self.hello().pid)
    }

    pub fn thread(&self, id: u32) -> Option<&Thread> {
        self.session.thread(id)
    }

    /// Returns the name of the thread with this number, or [`UNKNOWN`] if it was never introduced.
    pub fn thread_name(&self, id: u32) -> &str {
        self.thread(id).map_or(UNKNOWN, |thread| &thread.name)
    }

    /// Returns the thread whose account includes this one.
    pub fn account_owner(&self, thread: u32) -> u32 {
        self.thread(thread).map_or(thread, account_owner)
    }

    pub fn is_failed(&self, stack: u32) -> bool {
        is_failure(self.root_of(stack))
    }

    /// Returns the stop reason of the walk of this stack, with the thread's state in a profile of wall time.
    pub fn root_of(&self, stack: u32) -> &str {
        self.dictionary.string(self.dictionary.stack(stack).stop)
    }

    /// Returns whether only a part of the session's samples is selected. The account always covers the whole session.
    pub fn is_part(&self) -> bool {
        self.is_part
    }

    /// Returns whether the session continues, so that its end is not missing.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Records that the session continues, which a copy of its recording does not show.
    pub fn set_going_on(&mut self) {
        self.goes_on = self.session.goodbye.is_none();
    }

    /// Returns why reading the recording stopped before its last byte; `None` if every byte was read.
    pub fn cut(&self) -> Option<FramingError> {
        self.cut
    }
}

/// Returns up to `limit` of the selected sessions with their threads, each from its last part.
fn sessions_of(
    source: &dyn Source,
    selection: &Selection,
    span: &Span,
    limit: usize,
) -> Result<BTreeMap<u64, Session>, QueryError> {
    let mut found: BTreeMap<u64, Session> = BTreeMap::new();
    for part in source.parts().iter().rev() {
        let mut more = Vec::new();
        part.sessions(Extent::Threads, &|id| !found.contains_key(&id), &mut |id, session| {
            if found.len() + more.len() < limit
                && selection.is_during(session, span)
                && selection.matches_session(id, session)
            {
                more.push((id, session.clone()));
            }
        })?;
        found.extend(more);
    }
    Ok(found)
}

fn sums_by_thread(samples: &[Sample]) -> FxHashMap<u32, Sum> {
    let mut sums: FxHashMap<u32, Sum> = FxHashMap::default();
    for sample in samples {
        sums.entry(sample.thread).or_default().add(sample.sum());
    }
    sums
}

fn session_by_thread(source: &dyn Source, id: u64) -> Result<FxHashMap<u32, Sum>, QueryError> {
    let mut sums: FxHashMap<u32, Sum> = FxHashMap::default();
    let scope = Scope { range_ns: 0..u64::MAX, sessions: &|session| session == id };
    for part in source.parts() {
        part.thread_stacks(&scope, &|_, _| true, &mut |_, thread, _, cell| {
            sums.entry(thread).or_default().add(cell);
        })?;
    }
    Ok(sums)
}
