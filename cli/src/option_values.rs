//! Types for option values: durations and sizes with a unit.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// A value that a configuration file holds as a string, in the syntax of the command line.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String", bound = "T: FromStr, T::Err: std::fmt::Display")]
pub struct Text<T>(pub T);

impl<T: FromStr> TryFrom<String> for Text<T>
where
    T::Err: std::fmt::Display,
{
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Text).map_err(|error: T::Err| error.to_string())
    }
}

/// A duration in whole seconds, such as `90d`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a time with its unit (s, m, h or d), for example 90d";
        let (number, unit_s) = match text.char_indices().last() {
            Some((at, 's')) => (&text[..at], 1),
            Some((at, 'm')) => (&text[..at], 60),
            Some((at, 'h')) => (&text[..at], 3600),
            Some((at, 'd')) => (&text[..at], 86_400),
            _ => return Err(EXPECTED),
        };
        let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s));
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
        let (number, shift) = match text.char_indices().last() {
            Some((at, 'M')) => (&text[..at], 20),
            Some((at, 'G')) => (&text[..at], 30),
            Some((at, 'T')) => (&text[..at], 40),
            _ => return Err(EXPECTED),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.filter(|&bytes| bytes >= 16 << 20).map(Size).ok_or(EXPECTED)
    }
}
