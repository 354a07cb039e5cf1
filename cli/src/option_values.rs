//! Types for option values: durations and sizes with a unit.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

/// Deserializes a value that a configuration file holds as a string, in the syntax of the command line.
pub fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

/// A duration of one second or more, such as `90d`. A number alone is refused: seven days and seven seconds of samples are
/// too different to guess.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a time of at least 1s with its unit (s, m, h or d), for example 90d";
        let seconds = with_unit(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]);
        seconds
            .filter(|&seconds| seconds > 0)
            .map(|seconds| Time(Duration::from_secs(seconds)))
            .ok_or(EXPECTED)
    }
}

/// A number of bytes such as `20G` or `20g`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a size of at least 16M (units M, G, T), for example 20G";
        let units = [("", 1), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
        let bytes = with_unit(&text.to_ascii_uppercase(), &units);
        bytes.filter(|&bytes| bytes >= 16 << 20).map(Size).ok_or(EXPECTED)
    }
}

/// Reads a whole number and its unit, whose factor is in `units`, and returns their product.
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let seconds = |text: &str| text.parse::<Time>().ok().map(|Time(time)| time.as_secs());
        assert_eq!(["10s", "2m", "1h", "90d"].map(seconds), [10, 120, 3600, 7_776_000].map(Some));
        assert_eq!(["7", "0s", "100ms", "-1s", "s", ""].map(seconds), [None; 6]);
        let bytes = |text: &str| text.parse::<Size>().ok().map(|Size(bytes)| bytes);
        assert_eq!(["16M", "16m", "16777216"].map(bytes), [Some(16 << 20); 3]);
        assert_eq!(["20g", "1T"].map(bytes), [Some(20 << 30), Some(1 << 40)]);
        assert_eq!(["1M", "0", "20k", "G"].map(bytes), [None; 4]);
    }
}
