//! A selection of a lake, read into memory as a source of samples.
//!
//! Folders are selected by service and hour, row groups by their times, and rows by their sessions. Rows that two
//! writers have are dropped. What remains has to fit into memory; larger selections are for SQL engines.

mod names;
mod sessions;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use parquet::file::serialized_reader::SerializedFileReader;
use profile::dictionary::Dictionary;
use profile::query::selection::Selection;
use profile::session::Session;
use profile::source::{Extent, Kind, Part, ReadError, Row, Sample, Scope, Source, minutes_of, whole_minutes};
use proto::framing::FramingError;
use proto::v1::{FrameKind, Thread, ThreadKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::layout::{Table, day_of, service_folder};
use crate::storage::{Entry, Lake, LakeError};
use crate::table::accounts::read_accounts;
use crate::table::samples::Samples;
use crate::table::stacks::Stacks;
use sessions::Sessions;

/// Most samples of a selection: about 2 GB in memory.
const MOST_SAMPLES: usize = 10_000_000;

/// Files that are in memory at the same time.
const FILES: usize = 32;

/// Attempts to read a selection whose files are compacted meanwhile.
const ATTEMPTS: usize = 3;

/// A selection of a lake.
#[derive(Debug)]
pub struct Selected {
    dictionary: Dictionary,
    sessions: BTreeMap<u64, Session>,
    samples: Vec<Sample>,
    /// Bytes of the files that were read.
    pub read_bytes: u64,
    /// Samples that several writers had; each is in the selection once.
    pub doubled: u64,
}

impl Selected {
    /// Reads the sessions that `selection` selects in `lake`, with their samples in its time.
    ///
    /// # Errors
    /// If the object store fails, a file is damaged, or the selection is too large.
    pub fn read(lake: &Lake, selection: &Selection, now_ns: u64) -> Result<Selected, LakeError> {
        let mut attempts = 1;
        loop {
            match Self::try_read(lake, selection, now_ns) {
                // Another file has its content.
                Err(LakeError::Gone(_)) if attempts < ATTEMPTS => attempts += 1,
                result => return result,
            }
        }
    }

    fn try_read(lake: &Lake, selection: &Selection, now_ns: u64) -> Result<Selected, LakeError> {
        // Queries widen ranges to whole minutes.
        let range_ns = selection.limits_ns(now_ns);
        let minutes_ns = whole_minutes(range_ns.start, range_ns.end);
        let range_us = (minutes_ns.start / 1000).cast_signed()..(minutes_ns.end / 1000).cast_signed();
        let entries = entries_of(lake, &services_of(lake, selection)?, &range_us)?;
        let mut reader = Reader { lake, read_bytes: 0 };
        let mut sessions = Sessions::default();
        reader.each(&entries, Table::Accounts, |file| {
            sessions.add(read_accounts(&file)?);
            Ok(())
        })?;
        let sessions = sessions.selected(selection);
        let wanted: FxHashSet<String> = sessions.keys().map(|id| format!("{id:016x}")).collect();
        let services: FxHashSet<String> =
            sessions.values().map(|session| service_folder(session.service())).collect();
        let entries: Vec<Entry> =
            entries.into_iter().filter(|entry| services.contains(&entry.folder.service)).collect();
        let mut samples = Samples::default();
        let mut is_wanted: FxHashMap<u32, bool> = FxHashMap::default();
        let mut too_many = false;
        reader.each(&entries, Table::Samples, |file| {
            if too_many {
                return Ok(());
            }
            let first = samples.rows.len();
            samples.read(&file, &range_us)?;
            let Samples { texts, rows } = &mut samples;
            let mut fresh = rows.split_off(first);
            fresh.retain(|row| {
                let session = is_wanted.entry(row.session);
                *session.or_insert_with(|| wanted.contains(&texts.string(row.session)))
                    && range_us.contains(&row.time_us)
            });
            rows.append(&mut fresh);
            too_many = rows.len() > MOST_SAMPLES;
            Ok(())
        })?;
        if too_many {
            return Err(LakeError::TooLarge(MOST_SAMPLES));
        }
        let read = samples.rows.len();
        samples.settle();
        let doubled = (read - samples.rows.len()) as u64;
        let ids: FxHashSet<i64> = samples.rows.iter().map(|row| row.stack).collect();
        let mut stacks = Stacks::default();
        reader.each(&entries, Table::Stacks, |file| stacks.read(&file, Some(&ids)))?;
        let selected = Selected::of(&samples, &stacks, sessions);
        Ok(Selected { read_bytes: reader.read_bytes, doubled, ..selected })
    }

    /// Returns the selection with these rows.
    fn of(samples: &Samples, stacks: &Stacks, mut sessions: BTreeMap<u64, Session>) -> Selected {
        let (dictionary, numbers) = names::dictionary(stacks);
        let mut ids: FxHashMap<u32, u64> = FxHashMap::default();
        let mut kept = Vec::with_capacity(samples.rows.len());
        for row in &samples.rows {
            let session = *ids
                .entry(row.session)
                .or_insert_with(|| u64::from_str_radix(&samples.texts.string(row.session), 16).unwrap_or(0));
            let thread = row.thread_number.cast_unsigned();
            if let Some(known) = sessions.get_mut(&session)
                && known.thread(thread).is_none()
            {
                known.add_thread(Thread {
                    id: thread,
                    tid: u32::try_from(row.thread_id).unwrap_or(0),
                    name: samples.texts.string(row.thread),
                    kind: thread_kind(&samples.texts.string(row.thread_kind)).into(),
                    java_id: row.virtual_thread,
                    carrier: row.carrier.cast_unsigned(),
                });
            }
            kept.push(Sample {
                session,
                time_ns: row.time_us.cast_unsigned().saturating_mul(1000),
                thread,
                stack: numbers.get(&row.stack).copied().unwrap_or(0),
                cpu_ns: row.cpu_ns.cast_unsigned(),
                count: u32::try_from(row.samples).unwrap_or(u32::MAX),
            });
        }
        Selected { dictionary, sessions, samples: kept, read_bytes: 0, doubled: 0 }
    }
}

/// Returns the folders of the services in which the selected processes can be.
fn services_of(lake: &Lake, selection: &Selection) -> Result<Vec<String>, LakeError> {
    let all = lake.services()?;
    let names: Vec<String> = selection.processes().iter().map(|name| service_folder(name)).collect();
    // A process may be named by its id or its pid as well, which is in no path.
    let are_services = !names.is_empty() && names.iter().all(|name| all.contains(name));
    Ok(if are_services { names } else { all })
}

/// Returns the files of these services in the hours that overlap the range.
fn entries_of(lake: &Lake, services: &[String], range_us: &Range<i64>) -> Result<Vec<Entry>, LakeError> {
    const DAY_US: i64 = 86_400_000_000;
    let days = range_us.start.div_euclid(DAY_US)..=range_us.end.div_euclid(DAY_US);
    let mut entries = Vec::new();
    for service in services {
        for date in lake.dates(service)? {
            let day = date.strip_prefix("date=").and_then(day_of);
            if !day.is_some_and(|day| days.contains(&day)) {
                continue;
            }
            entries.extend(lake.files(service, &date)?.into_iter().filter(|entry| {
                let own = entry.folder.range_us();
                own.start < range_us.end && range_us.start < own.end
            }));
        }
    }
    Ok(entries)
}

/// Reads files of a lake and counts their bytes.
struct Reader<'l> {
    lake: &'l Lake,
    read_bytes: u64,
}

impl Reader<'_> {
    /// Calls `read` with each file of a table.
    fn each(
        &mut self,
        entries: &[Entry],
        table: Table,
        mut read: impl FnMut(SerializedFileReader<Bytes>) -> Result<(), parquet::errors::ParquetError>,
    ) -> Result<(), LakeError> {
        let paths: Vec<String> = entries
            .iter()
            .filter(|entry| Table::of_file(&entry.name) == Some(table))
            .map(Entry::path)
            .collect();
        for paths in paths.chunks(FILES) {
            for (path, bytes) in paths.iter().zip(self.lake.get_all(paths)?) {
                self.read_bytes += bytes.len() as u64;
                let result = SerializedFileReader::new(bytes).and_then(&mut read);
                result.map_err(|error| LakeError::Damaged(path.clone(), error.to_string()))?;
            }
        }
        Ok(())
    }
}

fn thread_kind(text: &str) -> ThreadKind {
    use profile::session::thread::kind_text;
    let kinds = (0..).map_while(|number| ThreadKind::try_from(number).ok());
    // `native` stands for unknown kinds as well.
    kinds
        .filter(|kind| *kind != ThreadKind::Unspecified)
        .find(|kind| kind_text(*kind) == text)
        .unwrap_or_default()
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
        minutes_of(&self.samples)
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
            |sample: &&Sample| scope.range_ns.contains(&sample.time_ns) && (scope.sessions)(sample.session);
        self.samples.iter().filter(is_selected).for_each(|sample| visit(Row::Sample(*sample)));
        Ok(())
    }
}
