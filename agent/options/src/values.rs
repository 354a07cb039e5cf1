//! Values of options, from their text.
//!
//! Durations and sizes have the syntax of the command `tickwalk`, by the same parser.

use std::ops::RangeInclusive;
use std::time::Duration;

use profile::text::units;
use sampler_thread::name::shown::MostFrames;
use sampler_thread::period::interval;
use tracing::level_filters::LevelFilter;

use super::options::{ClockOption, Collector, Mode, Options};
use crate::kinds::debug::DebugError;

/// Shortest and longest accepted sampling interval.
///
/// CPU timers expire at the scheduler's tick (1 to 10 ms), so a shorter interval only increases the overrun count; perf
/// events have periods of at least 100 us.
pub const INTERVALS: RangeInclusive<Duration> = Duration::from_micros(10)..=Duration::from_secs(60);
/// Smallest and largest accepted `maxstack`; Linux gives a program's first thread 8 MiB.
pub const MAX_STACK_RANGE: RangeInclusive<u64> = 4096..=8 * 1024 * 1024;
/// Smallest and largest accepted `window` in bytes: the size of one message, and a size that no server lacks.
pub const WINDOW_RANGE: RangeInclusive<u64> = (16 << 10)..=(256 << 20);
/// Accepted values of `exitwait`.
pub const END_SILENCES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
/// Accepted values of `abandon`: the pauses between attempts to reach a collector are not much shorter than a second.
pub const ABANDONED_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::MAX;
/// Accepted values of `gcdrain`.
pub const PAUSE_BUDGETS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(100);
/// Smallest accepted `duration` and `loop`: a recording has statistics once a second.
pub const MIN_DURATION: Duration = Duration::from_secs(1);
/// Smallest and largest accepted `depth`, as one number.
pub const DEPTH_RANGE: RangeInclusive<u32> = 16..=65_536;
/// Smallest and largest accepted `budget` in millionths.
///
/// Waking and listing threads alone takes about a thousandth of a busy processor.
pub const BUDGET_RANGE: RangeInclusive<u64> = 1_000..=500_000;

/// Signals that perf events may use: their default action is to be ignored, so a signal that is pending in execve(2)
/// cannot end the new program.
pub const SIGNALS_OF_EVENTS: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

/// Largest accepted name of a service, and label, in bytes.
const MOST_NAME_BYTES: usize = 256;
/// Most labels of a process.
const MOST_LABELS: usize = 32;

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// It does not have the accepted form.
    Form,
    /// The file with the token cannot be read, for this reason.
    TokenFile(String),
    /// It is a developers' hook, which this build does not have.
    NoHooks,
}

/// Sets an option whose value has been read, if it has the accepted form.
pub(crate) fn put<T>(place: &mut T, value: Option<T>) -> Result<(), Wrong> {
    *place = value.ok_or(Wrong::Form)?;
    Ok(())
}

/// The same as [`put`], for an option without a default.
pub(crate) fn put_some<T>(place: &mut Option<T>, value: Option<T>) -> Result<(), Wrong> {
    put(place, Some(Some(value.ok_or(Wrong::Form)?)))
}

/// Returns an error unless a value had the accepted form.
pub(crate) fn form(accepted: Option<()>) -> Result<(), Wrong> {
    accepted.ok_or(Wrong::Form)
}

/// Reads a value by `read` unless it is `word`, which stands for none.
pub(crate) fn unless<T>(value: &str, word: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if value == word { Some(None) } else { read(value).map(Some) }
}

/// Reads a duration with its unit.
pub(crate) fn time(value: &str, accepted: RangeInclusive<Duration>) -> Option<Duration> {
    units::duration_ns(value).map(Duration::from_nanos).filter(|time| accepted.contains(time))
}

/// Reads a duration of a profile; a number alone is a number of seconds.
pub(crate) fn seconds(value: &str) -> Option<Duration> {
    units::duration_or_seconds_ns(value).map(Duration::from_nanos).filter(|time| *time >= MIN_DURATION)
}

/// Reads a size with its unit, in bytes.
pub(crate) fn size(value: &str, accepted: RangeInclusive<u64>) -> Option<u64> {
    units::size_bytes(value).filter(|bytes| accepted.contains(bytes))
}

/// Reads `yes` or `no`.
pub(crate) fn switch(value: &str) -> Option<bool> {
    match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

pub(crate) fn mode(value: &str) -> Option<Mode> {
    [Mode::CpuTime, Mode::Wall, Mode::Jvmti, Mode::Api].into_iter().find(|mode| mode.name() == value)
}

pub(crate) fn clock(value: &str) -> Option<ClockOption> {
    match value {
        "timer" => Some(ClockOption::Timer),
        "perf" => Some(ClockOption::Perf),
        _ => None,
    }
}

/// Reads the name of a service.
pub(crate) fn name(value: &str) -> Option<String> {
    (value.len() <= MOST_NAME_BYTES).then(|| value.to_owned())
}

/// Adds a label, as in `zone=eu-1`.
pub(crate) fn set_label(options: &mut Options, value: &str) -> Result<(), Wrong> {
    let (key, text) = value.split_once('=').ok_or(Wrong::Form)?;
    let fits = options.labels.len() < MOST_LABELS && value.len() <= MOST_NAME_BYTES;
    if key.is_empty() || text.is_empty() || !fits {
        return Err(Wrong::Form);
    }
    options.labels.push(value.to_owned());
    Ok(())
}

/// Sets the depth: most frames as in `500`, or most Java frames and most native ones as in `500/40`.
pub(crate) fn set_depth(options: &mut Options, value: &str) -> Result<(), Wrong> {
    let (depth, most) = depth(value).ok_or(Wrong::Form)?;
    (options.depth, options.shown.most) = (depth, most);
    Ok(())
}

/// Returns the most frames of a walk, and the most by kind if there are two numbers.
fn depth(value: &str) -> Option<(u32, Option<MostFrames>)> {
    let Some((java, native)) = value.split_once('/') else {
        return Some((value.parse().ok().filter(|depth| DEPTH_RANGE.contains(depth))?, None));
    };
    let most = MostFrames { java: java.parse().ok()?, native: native.parse().ok()? };
    let fits = |frames: u32| frames <= *DEPTH_RANGE.end();
    (most.java > 0 && fits(most.java) && fits(most.native)).then_some((*DEPTH_RANGE.end(), Some(most)))
}

/// Sets a rate as in `500/s`, and the interval that follows from it.
pub(crate) fn set_rate(options: &mut Options, value: &str) -> Result<(), Wrong> {
    let (rate, interval) = rate(value, interval::processors()).ok_or(Wrong::Form)?;
    (options.rate, options.interval) = (Some(rate), interval);
    Ok(())
}

/// Reads a rate as in `500/s`; returns it and the interval at which all processors, when busy, yield that many samples
/// per second together.
pub(crate) fn rate(value: &str, processors: u64) -> Option<(u64, Duration)> {
    let rate = value.strip_suffix("/s")?.parse().ok()?;
    let interval = Duration::from_nanos(interval::period_of_rate(rate, processors)?);
    INTERVALS.contains(&interval).then_some((rate, interval))
}

/// Reads a share as in `1%`, with up to four decimals, in millionths.
pub(crate) fn budget(value: &str) -> Option<u64> {
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
pub(crate) fn read_token(path: &str) -> Result<String, Wrong> {
    let text = std::fs::read_to_string(path).map_err(|error| Wrong::TokenFile(error.to_string()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() { Err(Wrong::TokenFile("it is empty".to_owned())) } else { Ok(token.to_owned()) }
}

pub(crate) fn signal(value: &str) -> Option<i32> {
    let number = match value {
        "PROF" | "SIGPROF" => libc::SIGPROF,
        other => other.parse().ok()?,
    };
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let is_unused = [libc::SIGPROF, libc::SIGVTALRM].contains(&number) || SIGNALS_OF_EVENTS.contains(&number);
    (is_unused || real_time.contains(&number)).then_some(number)
}

pub(crate) fn collector(value: &str) -> Option<Collector> {
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

/// Reads a log level; async-profiler writes them in capitals as well, and has one more.
pub(crate) fn level(value: &str) -> Option<LevelFilter> {
    match &*value.to_ascii_lowercase() {
        "none" => Some(LevelFilter::OFF),
        "trace" => Some(LevelFilter::DEBUG),
        level @ ("error" | "warn" | "info" | "debug") => level.parse().ok(),
        _ => None,
    }
}

/// Adds a value for experiments or tests.
pub(crate) fn set_debug(options: &mut Options, value: &str) -> Result<(), Wrong> {
    let read = |text: &str| units::duration_ns(text).map(Duration::from_nanos);
    options.debug.set(value, read).map_err(|error| match error {
        DebugError::Malformed => Wrong::Form,
        DebugError::NoHooks => Wrong::NoHooks,
    })
}
