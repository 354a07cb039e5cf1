//! Values of options, from their text.
//!
//! Durations and sizes have the syntax of the command `tickwalk`, by the same parser.

use std::path::PathBuf;
use std::time::Duration;

use profile::text::units;
use sampler_thread::name::shown::MostFrames;
use sampler_thread::period::interval;
use tracing::level_filters::LevelFilter;

/// Shortest accepted sampling interval.
///
/// CPU timers expire at the scheduler's tick (1 to 10 ms), so a shorter interval only increases the overrun count; perf
/// events have periods of at least 100 us.
pub const MIN_INTERVAL: Duration = Duration::from_micros(10);
/// Longest accepted sampling interval.
pub const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Smallest and largest accepted `depth`, as one number.
pub const DEPTH_RANGE: std::ops::RangeInclusive<u32> = 16..=65_536;

/// Smallest and largest accepted `budget` in millionths.
///
/// Waking and listing threads alone takes about a thousandth of a busy processor.
pub const BUDGET_RANGE: std::ops::RangeInclusive<u64> = 1_000..=500_000;

/// Address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collector {
    /// A Unix domain socket.
    Unix(PathBuf),
    /// `host:port`, unencrypted.
    Tcp(String),
    /// `host:port`, TLS.
    Tls(String),
}

/// Returns whether a time is accepted as an interval.
pub(super) fn is_interval(time: &Duration) -> bool {
    (MIN_INTERVAL..=MAX_INTERVAL).contains(time)
}

/// Reads a duration with its unit.
pub(super) fn parse_time(value: &str) -> Option<Duration> {
    units::duration_ns(value).map(Duration::from_nanos)
}

/// Reads a duration; a number alone is a number of seconds.
pub(super) fn parse_seconds(value: &str) -> Option<Duration> {
    units::duration_or_seconds_ns(value).map(Duration::from_nanos)
}

/// Reads a size with its unit, in bytes.
pub(super) fn parse_size(value: &str) -> Option<u64> {
    units::size_bytes(value)
}

/// Reads `yes` or `no`.
pub(super) fn parse_switch(value: &str) -> Option<bool> {
    match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Reads a depth: most frames as in `500`, or most Java frames and most native ones as in `500/40`. Returns the most frames of
/// a walk, and both numbers if there are two.
pub(super) fn parse_depth(value: &str) -> Option<(u32, Option<MostFrames>)> {
    let Some((java, native)) = value.split_once('/') else {
        return Some((value.parse().ok().filter(|depth| DEPTH_RANGE.contains(depth))?, None));
    };
    let most = MostFrames { java: java.parse().ok()?, native: native.parse().ok()? };
    let fits = |frames: u32| frames <= *DEPTH_RANGE.end();
    (most.java > 0 && fits(most.java) && fits(most.native)).then_some((*DEPTH_RANGE.end(), Some(most)))
}

/// Reads a rate as in `500/s`; returns it and the interval at which all processors, when busy, yield that many samples
/// per second together.
pub(super) fn parse_rate(value: &str, processors: u64) -> Option<(u64, Duration)> {
    let rate = value.strip_suffix("/s")?.parse().ok()?;
    let nanos = interval::period_of_rate(rate, processors)?;
    Some((rate, Some(Duration::from_nanos(nanos)).filter(is_interval)?))
}

/// Reads a share as in `1%`, with up to four decimals, in millionths.
pub(super) fn parse_budget(value: &str) -> Option<u64> {
    let number = value.strip_suffix('%')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
        return None;
    }
    let parts = format!("{whole}{decimals:0<4}").parse().ok();
    parts.filter(|parts| BUDGET_RANGE.contains(parts))
}

/// Reads the first line of a file; the error is in words.
pub(super) fn read_token(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() { Err("it is empty".to_owned()) } else { Ok(token.to_owned()) }
}

pub(super) fn parse_signal(value: &str) -> Option<i32> {
    let number = match value {
        "PROF" | "SIGPROF" => libc::SIGPROF,
        other => other.parse().ok()?,
    };
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let is_unused = [libc::SIGPROF, libc::SIGVTALRM, libc::SIGURG, libc::SIGWINCH].contains(&number);
    (is_unused || real_time.contains(&number)).then_some(number)
}

pub(super) fn parse_collector(value: &str) -> Option<Collector> {
    if let Some(path) = value.strip_prefix("unix:") {
        return (!path.is_empty()).then(|| Collector::Unix(path.into()));
    }
    let (scheme, address): (fn(String) -> Collector, _) = match value.strip_prefix("tls:") {
        Some(address) => (Collector::Tls, address),
        None => (Collector::Tcp, value.strip_prefix("tcp:").unwrap_or(value)),
    };
    let (host, port) = address.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| scheme(address.to_owned()))
}

pub(super) fn parse_level(value: &str) -> Option<LevelFilter> {
    match value {
        "none" => Some(LevelFilter::OFF),
        "error" | "warn" | "info" | "debug" => value.parse().ok(),
        _ => None,
    }
}
