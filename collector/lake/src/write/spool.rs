//! Sealed intervals on the local disk, until they are in object storage.
//!
//! Problem: what was acknowledged must reach the lake once, although the collector may be killed and the object store
//! may be away at any moment.
//! Approach: a store seals an interval in the transaction that empties its journal. [`Spool::seal`] writes the files of
//! an interval into a folder `NUMBER.new`; the transaction stores the number; [`Spool::commit`] removes the suffix. A
//! start removes unfinished folders whose number the store does not have, because the journal still has their messages,
//! and completes the others. A folder without suffix is uploaded and then removed.
//! Invariant: an interval's files have the same names and contents in each attempt to upload them, so attempts can be
//! repeated.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

use crate::write::interval::{Interval, KnownStacks};

/// Extension of the folder of an interval that the store may not have committed.
const UNFINISHED: &str = "new";

/// Stands for `/` in names of spooled files. Paths of a lake do not contain it.
const SEPARATOR: &str = "+";

/// File with the id of the writer.
const WRITER: &str = "writer";

/// Most stacks that are remembered as written, of all folders: 50 MB. Beyond, all are forgotten and written again.
const MOST_STACKS: usize = 2 << 20;

/// Intervals that wait in a directory.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    writer: u64,
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the intervals by number.
    waiting: BTreeMap<u64, u64>,
    /// The highest number that was given to an interval.
    last: u64,
    /// The number of an interval that is sealed but not committed, its bytes, and the stacks in its files.
    sealed: Option<(u64, u64, KnownStacks)>,
    known: KnownStacks,
    delivery: Delivery,
    is_closed: bool,
}

/// Counters of uploads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Intervals that wait.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Intervals uploaded since the start.
    pub intervals: u64,
    /// Bytes uploaded.
    pub bytes: u64,
    /// Failed attempts.
    pub failures: u64,
    /// True while attempts fail.
    pub is_failing: bool,
}

/// A committed interval.
#[derive(Debug)]
pub struct Sealed {
    /// Its number.
    pub number: u64,
    /// Its files in the order in which they have to be uploaded: path in the lake, and local path.
    pub files: Vec<(String, PathBuf)>,
}

impl Spool {
    /// Opens the spool in `directory`, which is created if it does not exist. Up to `limit` bytes wait in it; then
    /// [`is_full`](Self::is_full) holds. `committed` is the number of the last interval that the store has.
    ///
    /// # Errors
    /// If the directory cannot be read or written.
    pub fn open(directory: &Path, limit: u64, committed: u64) -> io::Result<Spool> {
        fs::create_dir_all(directory)?;
        let writer = writer_id(&directory.join(WRITER))?;
        let mut state = State { last: committed, ..State::default() };
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let Some(number) = number_of(&path) else { continue };
            if path.extension().is_some() {
                if number > committed {
                    fs::remove_dir_all(&path)?;
                    continue;
                }
                fs::rename(&path, path.with_extension(""))?;
            }
            state.last = state.last.max(number);
            state.waiting.insert(number, length(&path.with_extension(""))?);
        }
        Ok(Spool {
            directory: directory.to_owned(),
            writer,
            limit,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Returns the id of this writer, which is part of all names of its files.
    pub fn writer(&self) -> u64 {
        self.writer
    }

    /// Returns whether the permitted number of bytes waits.
    pub fn is_full(&self) -> bool {
        self.state.lock().waiting.values().sum::<u64>() >= self.limit
    }

    /// Writes the files of an interval to the disk, and returns its number. They are not uploaded before
    /// [`commit`](Self::commit). The next call replaces an interval that was not committed. Called by one thread.
    ///
    /// # Errors
    /// If the disk is full, or cannot be written.
    pub fn seal(&self, interval: &Interval<'_>) -> io::Result<u64> {
        let (number, known) = {
            let mut state = self.state.lock();
            state.sealed = None;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let number = (state.last + 1).max(u64::try_from(now.as_millis()).unwrap_or(0));
            state.last = number;
            (number, std::mem::take(&mut state.known))
        };
        let folder = self.directory.join(format!("{number:014}.{UNFINISHED}"));
        let result =
            interval.files(self.writer, number, &known).map_err(io::Error::other).and_then(|files| {
                let bytes = files.files.iter().map(|file| file.bytes.len() as u64).sum();
                write_folder(
                    &folder,
                    files.files.iter().map(|file| (file.path.as_str(), file.bytes.as_slice())),
                )?;
                Ok((bytes, files.stacks))
            });
        let mut state = self.state.lock();
        state.known = known;
        match result {
            Ok((bytes, stacks)) => {
                state.sealed = Some((number, bytes, stacks));
                Ok(number)
            }
            Err(error) => {
                // Most often the disk is full. If the folder cannot be removed now, the next start removes it.
                let _ = fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Releases the interval with this number for upload, after the store has committed the number.
    ///
    /// # Errors
    /// If its folder cannot be renamed; the next start repeats it.
    pub fn commit(&self, number: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some((sealed, bytes, stacks)) = state.sealed.take().filter(|(sealed, ..)| *sealed == number)
        else {
            return Ok(());
        };
        let folder = self.directory.join(format!("{sealed:014}"));
        fs::rename(folder.with_extension(UNFINISHED), &folder)?;
        sync(&self.directory)?;
        state.waiting.insert(sealed, bytes);
        if state.known.values().map(|stacks| stacks.len()).sum::<usize>() > MOST_STACKS {
            state.known.clear();
        }
        for (folder, stacks) in stacks {
            state.known.entry(folder).or_default().extend(stacks);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Removes the folder of an interval whose transaction failed.
    pub fn discard(&self, number: u64) {
        self.state.lock().sealed = None;
        // If it cannot be removed now, the next start removes it.
        let _ = fs::remove_dir_all(self.directory.join(format!("{number:014}.{UNFINISHED}")));
    }

    /// Returns the oldest committed interval.
    ///
    /// # Errors
    /// If its folder cannot be read.
    pub fn oldest(&self) -> io::Result<Option<Sealed>> {
        let Some(number) = self.state.lock().waiting.keys().next().copied() else { return Ok(None) };
        let mut files = Vec::new();
        for entry in fs::read_dir(self.directory.join(format!("{number:014}")))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Names begin with a number that keeps the order.
            if let Some((order, name)) = name.split_once(SEPARATOR) {
                files.push((order.to_owned(), name.replace(SEPARATOR, "/"), path.clone()));
            }
        }
        files.sort();
        Ok(Some(Sealed { number, files: files.into_iter().map(|(_, name, path)| (name, path)).collect() }))
    }

    /// Removes an interval that was uploaded.
    ///
    /// # Errors
    /// If its folder cannot be removed; it is uploaded again then.
    pub fn remove(&self, number: u64) -> io::Result<()> {
        fs::remove_dir_all(self.directory.join(format!("{number:014}")))?;
        let mut state = self.state.lock();
        let bytes = state.waiting.remove(&number).unwrap_or(0);
        state.delivery.intervals += 1;
        state.delivery.bytes += bytes;
        state.delivery.is_failing = false;
        Ok(())
    }

    /// Counts a failed attempt; returns whether it is the first one after a success.
    pub fn count_failure(&self) -> bool {
        let delivery = &mut self.state.lock().delivery;
        delivery.failures += 1;
        !std::mem::replace(&mut delivery.is_failing, true)
    }

    /// Returns the counters.
    pub fn delivery(&self) -> Delivery {
        let state = self.state.lock();
        Delivery {
            waiting: state.waiting.len() as u64,
            waiting_bytes: state.waiting.values().sum(),
            ..state.delivery
        }
    }

    /// Ends all waits: no further interval is sealed.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Returns whether the spool is closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Waits until an interval waits or the spool is closed.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.is_closed {
            self.changed.wait(&mut state);
        }
    }

    /// Waits for this time, or until the spool is closed.
    pub fn wait_for(&self, time: Duration) {
        let mut state = self.state.lock();
        let end = std::time::Instant::now() + time;
        while !state.is_closed && !self.changed.wait_until(&mut state, end).timed_out() {}
    }
}

/// Reads the id of the writer, or makes one.
fn writer_id(path: &Path) -> io::Result<u64> {
    match fs::read_to_string(path) {
        Ok(text) => u64::from_str_radix(text.trim(), 16).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{} has no id; remove it", path.display()))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Seeded by the system.
            let id = RandomState::new().hash_one(path);
            let unfinished = path.with_extension(UNFINISHED);
            let mut file = File::create(&unfinished)?;
            writeln!(file, "{id:016x}")?;
            file.sync_all()?;
            fs::rename(&unfinished, path)?;
            sync(path.parent().unwrap_or(path))?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

/// Writes files into a new folder; after this returns they survive a loss of power.
fn write_folder<'f>(folder: &Path, files: impl Iterator<Item = (&'f str, &'f [u8])>) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (order, (path, bytes)) in files.enumerate() {
        let name = format!("{order:06}{SEPARATOR}{}", path.replace('/', SEPARATOR));
        let mut file = File::create(folder.join(name))?;
        file.write_all(bytes)?;
        file.sync_all()?;
    }
    sync(folder)?;
    sync(folder.parent().unwrap_or(folder))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the number of the folder of an interval; `None` for other paths.
fn number_of(path: &Path) -> Option<u64> {
    let extension = path.extension();
    let stem = path.file_stem()?.to_str()?;
    let is_folder = extension.is_none_or(|extension| extension == UNFINISHED);
    stem.parse().ok().filter(|_| is_folder && stem.len() == 14)
}

/// Returns the bytes of the files in a folder.
fn length(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use profile::dictionary::Dictionary;
    use profile::session::Session;
    use profile::source::Sample;
    use proto::v1::Hello;

    use super::*;
    use crate::layout::Table;
    use crate::write::interval::Received;

    const LIMIT: u64 = 1 << 20;

    /// Seals an interval with one sample of the unknown stack.
    fn seal(spool: &Spool) -> u64 {
        let mut session = Session::default();
        session.introduce(Hello { session_id: 7, service: "shop".into(), ..Hello::default() });
        let sample = Sample { session: 7, time_ns: 5_000_000_000, thread: 1, stack: 0, cpu_ns: 10, count: 1 };
        let interval = Interval {
            dictionary: &Dictionary::default(),
            sessions: BTreeMap::from([(7, &session)]),
            samples: vec![Received { sample, sequence: 3, row: 0 }],
        };
        spool.seal(&interval).expect("a disk")
    }

    fn tables(spool: &Spool) -> Vec<Table> {
        let oldest = spool.oldest().expect("a folder").expect("an interval waits");
        let names = oldest.files.iter().filter_map(|(path, _)| path.rsplit_once('/'));
        names.filter_map(|(_, name)| Table::of_file(name)).collect()
    }

    #[test]
    fn an_interval_waits_once_it_is_committed() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let spool = Spool::open(directory.path(), LIMIT, 0).expect("a disk");
        let number = seal(&spool);
        assert!(spool.oldest().expect("a disk").is_none() && !spool.is_full());
        spool.commit(number).expect("a disk");
        assert_eq!(tables(&spool), [Table::Stacks, Table::Accounts, Table::Samples]);
        let delivery = spool.delivery();
        assert!((delivery.waiting, delivery.waiting_bytes > 500) == (1, true), "{delivery:?}");
        spool.remove(number).expect("a disk");
        assert_eq!((spool.delivery().waiting, spool.delivery().intervals), (0, 1));
    }

    #[test]
    fn a_start_keeps_the_intervals_that_the_store_has_and_removes_others() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let spool = Spool::open(directory.path(), LIMIT, 0).expect("a disk");
        let writer = spool.writer();
        let first = seal(&spool);
        // Killed before the folder is released; the store has the number.
        let spool = Spool::open(directory.path(), LIMIT, first).expect("a disk");
        assert_eq!((spool.writer(), spool.delivery().waiting), (writer, 1));
        let second = seal(&spool);
        assert!(second > first);
        // Killed before the store has the number.
        let spool = Spool::open(directory.path(), LIMIT, first).expect("a disk");
        assert_eq!(spool.delivery().waiting, 1);
        let third = seal(&spool);
        spool.commit(third).expect("a disk");
        assert_eq!(spool.oldest().expect("a disk").map(|oldest| oldest.number), Some(first));
        spool.remove(first).expect("a disk");
        assert_eq!(spool.oldest().expect("a disk").map(|oldest| oldest.number), Some(third));
    }

    #[test]
    fn stacks_are_written_once_but_not_forgotten_with_a_failed_transaction() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let spool = Spool::open(directory.path(), LIMIT, 0).expect("a disk");
        let failed = seal(&spool);
        spool.discard(failed);
        let first = seal(&spool);
        spool.commit(first).expect("a disk");
        assert_eq!(tables(&spool), [Table::Stacks, Table::Accounts, Table::Samples]);
        spool.remove(first).expect("a disk");
        let second = seal(&spool);
        spool.commit(second).expect("a disk");
        assert_eq!(tables(&spool), [Table::Accounts, Table::Samples]);
    }

    #[test]
    fn a_spool_is_full_at_its_limit() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let spool = Spool::open(directory.path(), 1, 0).expect("a disk");
        let number = seal(&spool);
        spool.commit(number).expect("a disk");
        assert!(spool.is_full());
    }
}
