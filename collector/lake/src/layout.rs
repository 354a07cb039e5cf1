//! Names of folders and files.
//!
//! `service=shop/date=2026-11-29/hour=04/samples-5f0c…-01796000000000.parquet`: a folder has the samples of one
//! service and one hour (UTC) by their own time, with the stacks they refer to, so a selection by service and time
//! selects folders. A file's name has its table, its writer and its interval; no two files of a lake have the same name
//! and different content.

use std::fmt;
use std::ops::Range;

use chrono::NaiveDate;
use xxhash_rust::xxh3::xxh3_64;

/// Beginning of the first part of a path.
const SERVICE: &str = "service=";
/// Longest first part of a path. Names of files on disk have 255 bytes at most, and a spooled file has all parts in its
/// name.
const MOST_SERVICE_BYTES: usize = 128;
/// Bytes that remain of a longer one. A cut escape is no letter of any alphabet, which is harmless here.
const KEPT_SERVICE_BYTES: usize = 96;

/// Milliseconds of an hour.
const HOUR_MS: i64 = 3_600_000;

/// A kind of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Stacks with their frames.
    Stacks,
    /// Sessions with their accounts of CPU time.
    Accounts,
    /// A row for each sample.
    Samples,
}

impl Table {
    /// All tables, in the order in which their files are written: what is referred to comes first.
    pub const ALL: [Table; 3] = [Table::Stacks, Table::Accounts, Table::Samples];

    /// Returns the beginning of its files' names.
    pub fn name(self) -> &'static str {
        match self {
            Table::Stacks => "stacks",
            Table::Accounts => "accounts",
            Table::Samples => "samples",
        }
    }

    /// Returns the name of the file of one interval.
    pub fn file(self, writer: u64, interval: u64) -> String {
        format!("{}-{writer:016x}-{interval:014}.parquet", self.name())
    }

    /// Returns the name of a file that replaces others, whose names have this hash.
    pub fn compacted(self, hash: u64) -> String {
        format!("{}-c-{hash:016x}.parquet", self.name())
    }

    /// Returns the table of a file with this name; `None` for other files.
    pub fn of_file(name: &str) -> Option<Table> {
        let (table, _) = name.strip_suffix(".parquet")?.split_once('-')?;
        Table::ALL.into_iter().find(|known| known.name() == table)
    }
}

/// The folder of a service and an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Folder {
    /// First part of the path, `service=NAME`.
    pub service: String,
    /// Hours since the epoch.
    pub hour: i64,
}

impl Folder {
    /// Returns the folder of a service and a time in microseconds since the epoch.
    pub fn of(service: &str, time_us: i64) -> Folder {
        Folder { service: service_folder(service), hour: time_us.div_euclid(1000 * HOUR_MS) }
    }

    /// Returns the folder of a path below the root of a lake; `None` for other paths.
    pub fn parse(path: &str) -> Option<Folder> {
        let mut parts = path.split('/');
        let service = parts.next().filter(|part| part.starts_with(SERVICE))?;
        let hour: i64 = parts.nth(1)?.strip_prefix("hour=")?.parse().ok()?;
        Some(Folder { service: service.to_owned(), hour: Folder::day(path)? * 24 + hour })
    }

    /// Returns the day of a folder `service=NAME/date=YYYY-MM-DD`, since the epoch.
    pub fn day(path: &str) -> Option<i64> {
        let date: NaiveDate = path.split('/').nth(1)?.strip_prefix("date=")?.parse().ok()?;
        Some(date.to_epoch_days().into())
    }

    /// Returns the range of its times in microseconds since the epoch.
    pub fn range_us(&self) -> Range<i64> {
        self.hour * 1000 * HOUR_MS..(self.hour + 1) * 1000 * HOUR_MS
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, hour) = (self.hour.div_euclid(24), self.hour.rem_euclid(24));
        let date = i32::try_from(day).ok().and_then(NaiveDate::from_epoch_days);
        let date = date.unwrap_or(if day < 0 { NaiveDate::MIN } else { NaiveDate::MAX });
        write!(f, "{}/date={date}/hour={hour:02}", self.service)
    }
}

/// Returns the folder of a service: characters other than letters, digits, `.`, `_` and `-` become `%XX`, and a long
/// name is cut and gets a hash of the whole.
pub fn service_folder(service: &str) -> String {
    let mut path = String::from(SERVICE);
    for byte in service.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => path.push(byte as char),
            byte => path += &format!("%{byte:02X}"),
        }
    }
    if path.len() > MOST_SERVICE_BYTES {
        path.truncate(KEPT_SERVICE_BYTES);
        path += &format!("-{:016x}", xxh3_64(service.as_bytes()));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days() {
        let of_day = |day: i64| Folder { service: "service=a".into(), hour: day * 24 }.to_string();
        for (day, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (20_786, "2026-11-29"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            let path = format!("service=a/date={date}/hour=00");
            assert_eq!(of_day(day), path);
            assert_eq!(Folder::day(&path), Some(day), "{date}");
        }
        for day in (-200_000..200_000).step_by(17) {
            assert_eq!(Folder::day(&of_day(day)), Some(day));
        }
        assert_eq!(of_day(-100_000_000), format!("service=a/date={}/hour=00", NaiveDate::MIN));
        assert_eq!(of_day(100_000_000), format!("service=a/date={}/hour=00", NaiveDate::MAX));
        assert_eq!(Folder::day("service=a/date=2026-13-01"), None);
        assert_eq!(Folder::day("service=a/date=2026-01"), None);
    }

    #[test]
    fn folders_and_their_paths() {
        let folder = Folder::of("shop/ö 1", 1_795_926_896_000_000);
        let path = folder.to_string();
        assert_eq!(path, "service=shop%2F%C3%B6%201/date=2026-11-29/hour=04");
        assert_eq!(Folder::parse(&format!("{path}/samples-1.parquet")), Some(folder.clone()));
        assert!(folder.range_us().contains(&1_795_926_896_000_000));
        assert_eq!(Folder::parse("service=a/date=2026-11-29"), None);
        assert_eq!(Folder::parse("other=a/date=2026-11-29/hour=04"), None);
    }

    #[test]
    fn long_names_of_services_are_cut_and_remain_distinct() {
        let (one, other) = ("x".repeat(5000), "x".repeat(5001));
        assert!(service_folder(&one).len() <= MOST_SERVICE_BYTES);
        assert_ne!(service_folder(&one), service_folder(&other));
    }

    #[test]
    fn files_of_tables() {
        for table in Table::ALL {
            assert_eq!(Table::of_file(&table.file(7, 9)), Some(table));
        }
        assert_eq!(Table::of_file("samples-1.parquet.tmp"), None);
        assert_eq!(Table::of_file("other-1.parquet"), None);
    }
}
