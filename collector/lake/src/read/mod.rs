//! A selection of a lake, read into memory as a source of samples.
//!
//! Folders are selected by service and hour, row groups by their times and stacks, and rows by their sessions. Rows
//! that two writers have are dropped. What remains has to fit into memory; larger selections are for SQL engines.

mod fetch;
mod files;
mod names;
mod rows;
mod sessions;
pub mod source;
#[cfg(test)]
mod tests;
mod times;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::RowGroupMetaData;
use profile::dictionary::Dictionary;
use profile::dictionary::stop::UNKNOWN;
use profile::session::Session;
use profile::source::{Extent, Kind, Part, ReadError, Row, Sample, Scope, Source, Wanted, whole_minutes};
use profile::text::quantity::count;
use proto::framing::FramingError;
use proto::v1::FrameKind;
use rustc_hash::FxHashSet;

use crate::layout::{Table, service_folder};
use crate::sql;
use crate::storage::{Entry, Lake, LakeError};
use crate::table::accounts::read_group;
use crate::table::columns::{Group, range_of};
use crate::table::samples::Samples;
use crate::table::stacks::Stacks;
use crate::write::interval::Received;
use fetch::Fetcher;
pub use fetch::Progress;
use files::{Listed, list};
use rows::{Kept, Rows};
use sessions::Sessions;
use times::Times;

/// How much one machine reads.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most samples of a selection.
    pub samples: usize,
    /// Most bytes of the files that have them.
    pub bytes: u64,
}

impl Default for Limits {
    /// 10 million samples have some 600 MB in memory. In files they have some 100 MB, so 1 GB has too many of them,
    /// unless most are of processes that are not selected.
    fn default() -> Limits {
        Limits { samples: 10_000_000, bytes: 1 << 30 }
    }
}

/// Attempts to read a selection whose files are compacted meanwhile.
const ATTEMPTS: usize = 3;

/// Repeats `read` if a file is gone, because a compacted file has its content then.
fn repeated_if_gone<T>(mut read: impl FnMut() -> Result<T, LakeError>) -> Result<T, LakeError> {
    let mut attempts = 1;
    loop {
        match read() {
            Err(LakeError::Gone(_)) if attempts < ATTEMPTS => attempts += 1,
            result => return result,
        }
    }
}

/// A selection of a lake.
#[derive(Debug)]
pub struct Selected {
    dictionary: Dictionary,
    sessions: BTreeMap<u64, Session>,
    samples: Vec<Received>,
    /// Requests, bytes and files that were read.
    pub progress: Progress,
    /// Samples that several writers had; each is in the selection once.
    pub doubled: u64,
}

impl Selected {
    /// Reads what is wanted of `lake`. Meanwhile, `report` is called several times a second.
    ///
    /// # Errors
    /// If the object store fails, a file is damaged, the selection is too large, or it is no longer needed.
    pub fn read(
        lake: &Lake,
        wanted: &Wanted<'_>,
        limits: Limits,
        report: &dyn Fn(Progress),
    ) -> Result<Selected, LakeError> {
        let fetcher = Fetcher { lake, is_over: wanted.is_over, report, done: Cell::default() };
        repeated_if_gone(|| {
            let index = Index::read(&fetcher, wanted, limits)?;
            let sessions = index.selected(wanted);
            Self::of_index(&fetcher, &index, sessions, wanted, limits)
        })
    }

    /// Reads the samples of `sessions`.
    fn of_index(
        fetcher: &Fetcher<'_>,
        index: &Index,
        sessions: BTreeMap<u64, Session>,
        wanted: &Wanted<'_>,
        limits: Limits,
    ) -> Result<Selected, LakeError> {
        let too_large = |size: String| too_large(size, fetcher.lake, wanted, &index.times);
        let whole = |rows, stacks: &Stacks, sessions| {
            let selected = Selected::of(rows, stacks, sessions, fetcher.done.get());
            selected.ok_or_else(|| too_large("more stacks than fit into memory".to_owned()))
        };
        if !wanted.has_samples {
            return whole(Rows::default(), &Stacks::default(), sessions);
        }
        let services: FxHashSet<String> =
            sessions.values().map(|session| service_folder(session.service())).collect();
        let entries: Vec<&Entry> =
            index.entries.iter().filter(|entry| services.contains(&entry.folder.service)).collect();
        let bytes = sample_bytes(&entries);
        if bytes > limits.bytes {
            return Err(too_large(format!("files of {} MB", count(bytes >> 20))));
        }
        let kept = Kept { sessions: sessions.keys().copied().collect(), times: index.times.clone() };
        let Some(mut rows) = read_rows(fetcher, &entries, kept, limits.samples)? else {
            return Err(too_large(format!("more than {} samples", count(limits.samples as u64))));
        };
        let doubled = rows.drop_doubles();
        let stacks = read_stacks(fetcher, &entries, &rows.stacks)?;
        Ok(Selected { doubled, ..whole(rows, &stacks, sessions)? })
    }

    /// Returns the selection with these rows; `None` if its stacks are too many.
    fn of(
        rows: Rows,
        stacks: &Stacks,
        mut sessions: BTreeMap<u64, Session>,
        progress: Progress,
    ) -> Option<Selected> {
        let (dictionary, numbers) = names::dictionary(stacks)?;
        let Rows { mut samples, stacks: ids, threads, .. } = rows;
        for ((session, _), thread) in threads {
            if let Some(session) = sessions.get_mut(&session) {
                session.add_thread(thread);
            }
        }
        let known: Vec<u32> = ids.iter().map(|id| numbers.get(id).copied().unwrap_or(0)).collect();
        for Received { sample, .. } in &mut samples {
            sample.stack = sample.stack.checked_sub(1).map_or(0, |place| known[place as usize]);
        }
        Some(Selected { dictionary, sessions, samples, progress, doubled: 0 })
    }

    fn all(&self) -> impl Iterator<Item = Sample> {
        self.samples.iter().map(|received| received.sample)
    }
}

/// The files and sessions of some services and times.
#[derive(Debug)]
struct Index {
    times: Times,
    entries: Vec<Entry>,
    sessions: BTreeMap<u64, Session>,
}

impl Index {
    fn read(fetcher: &Fetcher<'_>, wanted: &Wanted<'_>, limits: Limits) -> Result<Index, LakeError> {
        let times = Times::of(wanted.ranges_ns);
        let Listed { entries, is_of_services, requests } = fetcher.run(list(fetcher.lake, wanted, &times))?;
        let done = fetcher.done.get();
        fetcher.done.set(Progress { requests: done.requests + requests, ..done });
        let all: Vec<&Entry> = entries.iter().collect();
        let bytes = sample_bytes(&all);
        // Of some processes, fewer services may be read.
        let is_exact = is_of_services || wanted.processes.is_empty();
        if wanted.has_samples && is_exact && bytes > limits.bytes {
            let size = format!("files of {} MB", count(bytes >> 20));
            return Err(too_large(size, fetcher.lake, wanted, &times));
        }
        let mut sessions = Sessions::default();
        let decode = |group: &Group<'_>| {
            let mut accounts = Vec::new();
            read_group(group, &mut accounts).map(|()| accounts)
        };
        fetcher.each(
            &all,
            Table::Accounts,
            |_| true,
            decode,
            |accounts| {
                sessions.add(accounts);
                Ok(())
            },
        )?;
        Ok(Index { times, sessions: sessions.all(), entries })
    }

    /// Returns the selected sessions.
    fn selected(&self, wanted: &Wanted<'_>) -> BTreeMap<u64, Session> {
        let is_selected =
            |id: u64, session: &Session| wanted.sessions.is_none_or(|is_selected| is_selected(id, session));
        let all = self.sessions.iter().filter(|(id, session)| is_selected(**id, session));
        all.map(|(id, session)| (*id, session.clone())).collect()
    }
}

/// Returns the error of a selection of this size, with a command for an engine.
fn too_large(size: String, lake: &Lake, wanted: &Wanted<'_>, times: &Times) -> LakeError {
    let service = wanted.processes.first().map(String::as_str);
    LakeError::TooLarge(size, sql::command(&lake.to_string(), service, times.span_us()))
}

/// Returns the bytes of the files with samples.
fn sample_bytes(entries: &[&Entry]) -> u64 {
    let samples = entries.iter().filter(|entry| Table::of_file(&entry.name) == Some(Table::Samples));
    samples.map(|entry| entry.len).sum()
}

/// Reads the samples that are kept; `None` if they are more than `most`.
fn read_rows(
    fetcher: &Fetcher<'_>,
    entries: &[&Entry],
    kept: Kept,
    most: usize,
) -> Result<Option<Rows>, LakeError> {
    let kept = Arc::new(kept);
    let in_times = |group: &RowGroupMetaData| {
        range_of(group, "time").is_none_or(|(first, last)| kept.times.overlap(first, last))
    };
    let own = Arc::clone(&kept);
    let decode = move |group: &Group<'_>| {
        let mut samples = Samples::default();
        samples.read_group(group)?;
        let unknown = samples.texts.number(UNKNOWN.as_bytes());
        Ok(Rows::of(&samples, &own, unknown))
    };
    let mut rows = Rows::default();
    let mut is_too_large = false;
    let result = fetcher.each(entries, Table::Samples, in_times, decode, |more| {
        rows.append(more);
        is_too_large = rows.samples.len() > most;
        // Ends reading.
        if is_too_large { Err(LakeError::Late) } else { Ok(()) }
    });
    if is_too_large {
        return Ok(None);
    }
    result.map(|()| Some(rows))
}

/// Reads the stacks with these ids.
fn read_stacks(fetcher: &Fetcher<'_>, entries: &[&Entry], ids: &[i64]) -> Result<Stacks, LakeError> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    // Stacks are sorted by id, so a few of them are in a few row groups.
    let has_some = |group: &RowGroupMetaData| {
        range_of(group, "stack_id").is_none_or(|(first, last)| {
            let next = sorted.partition_point(|id| *id < first);
            sorted.get(next).is_some_and(|id| *id <= last)
        })
    };
    let wanted: FxHashSet<i64> = ids.iter().copied().collect();
    let decode = move |group: &Group<'_>| {
        let mut stacks = Stacks::default();
        stacks.read_group(group, Some(&wanted)).map(|()| stacks)
    };
    let mut stacks = Stacks::default();
    fetcher.each(entries, Table::Stacks, has_some, decode, |more| {
        stacks.append(&more);
        Ok(())
    })?;
    Ok(stacks)
}

/// Returns the kind of a frame by its name in the table.
fn frame_kind(text: &str) -> FrameKind {
    let mut kinds = (0..).map_while(|number| FrameKind::try_from(number).ok());
    kinds.find(|kind| profile::dictionary::frame_parts::kind_text(*kind) == text).unwrap_or_default()
}

impl Source for Selected {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        vec![Box::new(self)]
    }

    /// Writers may add samples at any time.
    fn end_ns(&self) -> Option<u64> {
        None
    }

    fn cut(&self) -> Option<FramingError> {
        None
    }
}

impl Part for &Selected {
    fn range_ns(&self) -> Range<u64> {
        let times = || self.all().map(|sample| sample.time_ns);
        let ends = times().min().zip(times().max());
        ends.map_or(0..0, |(first_ns, last_ns)| whole_minutes(first_ns, last_ns))
    }

    fn has_samples(&self) -> bool {
        true
    }

    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
        read(&self.dictionary);
        Ok(())
    }

    fn sessions(
        &self,
        _: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError> {
        for (&id, session) in self.sessions.iter().filter(|(id, _)| is_selected(**id)) {
            visit(id, session);
        }
        Ok(())
    }

    fn read(&self, scope: &Scope<'_>, _: Kind<'_>, visit: &mut dyn FnMut(Row)) -> Result<(), ReadError> {
        let is_selected =
            |sample: &Sample| scope.range_ns.contains(&sample.time_ns) && (scope.sessions)(sample.session);
        self.all().filter(is_selected).for_each(|sample| visit(Row::Sample(sample)));
        Ok(())
    }
}
