//! The time and the resolution of a partition's contents, and how far they are written.

use rusqlite::Connection;

use super::super::dictionary::RowCounts;
use super::super::error::{SCHEMA, StoreError};
use super::super::memory::MINUTE_S;
use super::super::rollup::Level;
use super::database::Reading;
use super::tables::{create_all, hash, number, put_number};

/// Names of the numbers of a coverage in `meta`.
const NAMES: [&str; 7] =
    ["created_s", "first_s", "end_s", "rolled_minute_s", "rolled_hour_s", "rolled_day_s", "removed"];
const CHECKSUM: &str = "checksum";
const VERSION: &str = "schema";

/// The first version whose partitions have checksums of keys and of numbers.
const WITH_CHECKSUMS: u64 = 2;

/// The contents of a partition by time and resolution. Times are seconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Coverage {
    /// When it was created.
    pub(in super::super) created_s: u64,
    /// Start of the first minute with samples, and end of the last one.
    pub(in super::super) first_s: u64,
    pub(in super::super) end_s: u64,
    /// End of the part that is rolled up, by [`Level`]; unused for minutes.
    pub(in super::super) rolled_s: [u64; Level::COUNT],
    /// Number of levels removed by retention: 1 single samples, 2 also minutes, 3 also hours.
    pub(in super::super) removed: u64,
}

/// Contents of the file that the next writes continue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// Rows of the dictionary.
    pub(super) rows: RowCounts,
    /// Number of the next fold.
    pub(super) fold: u64,
    /// Number of the next entry of the journal.
    pub(super) journal: u64,
}

impl Coverage {
    /// Adds the minute that starts at `start_s`.
    pub(super) fn include(&mut self, start_s: u64) {
        self.first_s = if self.end_s == 0 { start_s } else { self.first_s.min(start_s) };
        self.end_s = self.end_s.max(start_s + MINUTE_S);
    }

    /// Returns the numbers of `meta`, with their checksum.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Coverage { created_s, first_s, end_s, rolled_s: [minute, hour, day], removed } = *self;
        let numbers = [created_s, first_s, end_s, minute, hour, day, removed];
        NAMES.into_iter().zip(numbers).chain([(CHECKSUM, hash(&numbers.map(u64::cast_signed)))])
    }

    pub(super) fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        self.numbers().try_for_each(|(name, value)| put_number(connection, name, value))
    }

    pub(super) fn read(connection: &Connection) -> Result<Coverage, StoreError> {
        let mut numbers = [0; NAMES.len()];
        for (value, name) in numbers.iter_mut().zip(NAMES) {
            *value = number(connection, name)?.unwrap_or(0);
        }
        let [created_s, first_s, end_s, minute, hour, day, removed] = numbers;
        let is_intact = match number(connection, CHECKSUM)? {
            Some(expected) => expected == hash(&numbers.map(u64::cast_signed)),
            None => number(connection, VERSION)?.unwrap_or(0) < WITH_CHECKSUMS,
        };
        let coverage = Coverage { created_s, first_s, end_s, rolled_s: [minute, hour, day], removed };
        if is_intact { Ok(coverage) } else { Err(StoreError::Damaged) }
    }
}

impl Reading<'_> {
    pub(in super::super) fn coverage(&self) -> Result<Coverage, StoreError> {
        Coverage::read(self.connection()?)
    }
}

/// Returns the statements that create the tables of a new partition.
pub(super) fn create(now_s: u64) -> String {
    let coverage = Coverage { created_s: now_s, ..Coverage::default() };
    let numbers = coverage.numbers().chain([(VERSION, SCHEMA)]);
    let numbers: Vec<String> =
        numbers.map(|(name, value)| format!("('{name}', {})", value.cast_signed())).collect();
    format!("{} INSERT INTO meta VALUES{};", create_all(), numbers.join(", "))
}

/// Checks that the database is a partition of a version that can be read.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    match number(connection, VERSION)? {
        Some(1..=SCHEMA) => Ok(()),
        Some(version) => Err(StoreError::Version(version)),
        None => Err(StoreError::Damaged),
    }
}
