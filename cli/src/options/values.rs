//! Types for option values: durations and sizes with a unit.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use profile::text::quantity::duration;
use profile::text::units::{duration_ns, duration_or_seconds_ns, size_bytes};

/// A duration such as `100ms`, `30s` or `90d`; a number alone is a number of seconds.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a time above zero, such as 100ms, 30s, 5m, 1h or 90d";
        let ns = duration_or_seconds_ns(text).filter(|&ns| ns > 0);
        ns.map(|ns| Time(Duration::from_nanos(ns))).ok_or(EXPECTED)
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&duration(self.0.as_nanos().try_into().unwrap_or(u64::MAX)))
    }
}

/// How long data is kept: at least one second. The unit is required, so that 7 cannot mean both days and seconds.
#[derive(Clone, Copy, Debug)]
pub struct Age(pub Duration);

impl FromStr for Age {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a time of at least 1s with its unit (s, m, h or d), for example 90d";
        let ns = duration_ns(text).filter(|&ns| ns >= 1_000_000_000);
        ns.map(|ns| Age(Duration::from_nanos(ns))).ok_or(EXPECTED)
    }
}

/// A number of bytes such as `20G` or `20g`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a size of at least 16M (units k, M, G, T), for example 20G";
        size_bytes(text).filter(|&bytes| bytes >= 16 << 20).map(Size).ok_or(EXPECTED)
    }
}

/// Reads a text as it is, and offers values to help texts and to the completions of shells.
#[derive(Clone, Debug)]
pub struct Offered(Vec<&'static str>);

impl Offered {
    /// Offers `values`; others are accepted as well, and judged where they are used.
    pub fn new(values: impl IntoIterator<Item = &'static str>) -> Self {
        Self(values.into_iter().collect())
    }
}

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// Reads the time of an interval of a lake. An hour is that of a folder; the samples of a shorter time than 10 s make
/// files that are mostly fixed parts.
pub fn lake_every(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "write a time from 10s to 1h with its unit (s, m or h), for example 5m";
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(3600);
    duration_ns(text).map(Duration::from_nanos).filter(|every| RANGE.contains(every)).ok_or(EXPECTED)
}

/// Reads a number of rows; the most is that of the HTTP API.
pub fn rows(text: &str) -> Result<usize, &'static str> {
    const EXPECTED: &str = "write a number of rows from 1 to 10000";
    text.parse().ok().filter(|rows| (1..=10_000).contains(rows)).ok_or(EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let seconds = |text: &str| text.parse::<Age>().ok().map(|Age(time)| time.as_secs());
        assert_eq!(["10s", "2m", "1h", "90d"].map(seconds), [10, 120, 3600, 7_776_000].map(Some));
        assert_eq!(["7", "0s", "100ms", "-1s", "s", ""].map(seconds), [None; 6]);
        let millis = |text: &str| text.parse::<Time>().ok().map(|Time(time)| time.as_millis());
        assert_eq!(["10", "100ms", "1h"].map(millis), [10_000, 100, 3_600_000].map(Some));
        assert_eq!(["0", "0s", "-1s", "s", ""].map(millis), [None; 5]);
        let bytes = |text: &str| text.parse::<Size>().ok().map(|Size(bytes)| bytes);
        assert_eq!(["16M", "16m", "16777216"].map(bytes), [Some(16 << 20); 3]);
        assert_eq!(["20g", "1T"].map(bytes), [Some(20 << 30), Some(1 << 40)]);
        let every = |text: &str| lake_every(text).ok().map(|every| every.as_secs());
        assert_eq!(
            ["10s", "1h", "5m", "9s", "61m", "60"].map(every),
            [Some(10), Some(3600), Some(300), None, None, None]
        );
        assert_eq!(["1M", "0", "20k", "G"].map(bytes), [None; 4]);
    }
}
