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

/// A duration in whole seconds, such as `90d`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a time with its unit (s, m, h or d), for example 90d";
        let seconds = with_unit(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]);
        seconds.map(|seconds| Time(Duration::from_secs(seconds))).ok_or(EXPECTED)
    }
}

/// A number of bytes such as `20G`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a size of at least 16M with its unit (M, G or T), for example 20G";
        let bytes = with_unit(text, &[("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)]);
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
