//! The option string after `-agentpath:libtickwalk.so=`: a comma-separated list of `name[=value]`.
//!
//! Problem: users mistype options, and a profiler must not stop their program for it.
//! Approach: parse everything into [`Options`] before anything is started; each mistake is one [`OptionError`]
//! whose text names the option, the value and the accepted form.
//! Invariant: all values of an `Options` are in their ranges.

use std::path::PathBuf;
use std::time::Duration;

use sampler_thread::period::interval;
use sampler_thread::send::delivery::DEFAULT_WINDOW;

use crate::debug_options::{self, DebugError, DebugOptions};

/// Shortest accepted sampling interval.
///
/// CPU timers expire at the scheduler's tick (1 to 10 ms), so a shorter interval only increases the overrun count.
pub const MIN_INTERVAL: Duration = Duration::from_micros(10);
/// Longest accepted sampling interval.
pub const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Default of `interval`: 100 samples per second of CPU time.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(10);
/// Default of `maxstack`, the most stack bytes copied per sample.
///
/// A thousand interpreted frames take about 130 KiB; 512 KiB holds the deepest stacks of real programs.
pub const DEFAULT_MAX_STACK: usize = 512 * 1024;
/// Smallest and largest accepted `maxstack`.
pub const MAX_STACK_RANGE: std::ops::RangeInclusive<usize> = 4096..=1024 * 1024;

/// Smallest and largest accepted `budget` in millionths.
///
/// Waking and listing threads alone takes about a thousandth of a busy processor.
pub const BUDGET_RANGE: std::ops::RangeInclusive<u64> = 1_000..=500_000;

/// Smallest and largest accepted `window` in bytes: the size of one message, and a size that no server lacks.
pub const WINDOW_RANGE: std::ops::RangeInclusive<u64> = (16 << 10)..=(256 << 20);

/// Names of all options, for the error about an unknown one.
const KNOWN: &str = "mode, interval, rate, budget, signal, collector, ca, token, tokenfile, insecure, window, file, \
                     maxstack, log, gcdrain, debug, strict";
/// Default of `gcdrain`, the longest wait of a garbage collection pause.
///
/// Waking the sampler takes some 50 us and a warm walk about 10; collections pause for milliseconds.
pub const DEFAULT_PAUSE_BUDGET: Duration = Duration::from_micros(200);
/// Largest accepted `gcdrain`.
pub const MAX_PAUSE_BUDGET: Duration = Duration::from_millis(100);

/// The clock whose expirations are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Each thread's own CPU clock.
    #[default]
    CpuTime,
}

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

/// All options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The clock whose expirations are sampled.
    pub mode: Mode,
    /// CPU time between two expirations of a thread's timer.
    pub interval: Duration,
    /// Samples per second of the whole machine, from which the interval follows.
    pub rate: Option<u64>,
    /// Most CPU time the profiler may use, in millionths of the process's; the interval is lengthened to keep it.
    pub budget_ppm: Option<u64>,
    /// Signal number, or `None` for the first free real-time signal.
    pub signal: Option<i32>,
    /// Collector to stream to.
    pub collector: Option<Collector>,
    /// Certificates trusted for a TLS collector, in PEM form; those of the system if `None`.
    pub certificates: Option<PathBuf>,
    /// Shared secret for the collector; empty for none.
    pub token: String,
    /// Whether samples may cross a network unencrypted.
    pub insecure: bool,
    /// Bytes sent and not acknowledged above which samples are merged.
    pub window: u64,
    /// Recording file to write, `%p` already replaced by the process id.
    pub file: Option<PathBuf>,
    /// Most stack bytes copied per sample.
    pub max_stack: usize,
    /// Log level on standard error.
    pub log: tracing::level_filters::LevelFilter,
    /// True if the JVM must not start when profiling cannot start.
    pub strict: bool,
    /// Longest wait of a garbage collection pause until pending samples are named; zero for no wait.
    pub pause_budget: Duration,
    /// Options for experiments.
    pub debug: DebugOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::CpuTime,
            interval: DEFAULT_INTERVAL,
            rate: None,
            budget_ppm: None,
            signal: None,
            collector: None,
            certificates: None,
            token: String::new(),
            insecure: false,
            window: DEFAULT_WINDOW,
            file: None,
            max_stack: DEFAULT_MAX_STACK,
            log: tracing::level_filters::LevelFilter::WARN,
            strict: false,
            pause_budget: DEFAULT_PAUSE_BUDGET,
            debug: DebugOptions::default(),
        }
    }
}

/// Why an option string was refused. The text of each is one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No option has this name.
    #[error("unknown option '{0}'; the options are {KNOWN}")]
    Unknown(String),
    /// The option needs a value.
    #[error("option '{0}' needs a value, as in {0}=...")]
    NoValue(&'static str),
    /// The value does not fit the option.
    #[error("option '{option}': '{value}' is not {expected}")]
    BadValue {
        /// Option name.
        option: &'static str,
        /// The value.
        value: String,
        /// The accepted form.
        expected: &'static str,
    },
    /// The hook is not part of this build.
    #[error(
        "option 'debug': '{0}' is a developers' hook, which this agent was built without; build one with \
                 cargo build --release -p agent --features hooks"
    )]
    NoHooks(String),
    /// Neither `file` nor `collector` was given.
    #[error("no destination: give file=PATH or collector=unix:PATH or collector=HOST:PORT")]
    NoDestination,
    /// The file with the token cannot be read.
    #[error("cannot read tokenfile={path}: {error}; its first line must be the token")]
    TokenFile {
        /// The file.
        path: String,
        /// Why, in words.
        error: String,
    },
}

const RATE_FORM: &str =
    "samples per second of the whole machine, as in 500/s, that make an interval of 10us to 60s";
const BUDGET_FORM: &str = "a share of the program's CPU time between 0.1% and 50%, as in 1%";
const INTERVAL_FORM: &str = "a time between 10us and 60s, as in 10ms (units ns, us, ms, s)";
const PAUSE_BUDGET_FORM: &str = "'off' or a time up to 100ms, as in 200us (units ns, us, ms, s)";
const MAX_STACK_FORM: &str = "a size between 4k and 1m, as in 512k";

/// Returns whether an option string contains `strict`, even if another part of it is invalid.
pub fn is_strict(text: &str) -> bool {
    text.split(',').any(|part| part.trim() == "strict")
}

impl Options {
    /// The interval in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Parses the option string; empty parts are skipped.
    ///
    /// # Errors
    /// The leftmost mistake.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            options.set(name, value)?;
        }
        if options.file.is_none() && options.collector.is_none() {
            return Err(OptionError::NoDestination);
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let need = |option| value.filter(|v| !v.is_empty()).ok_or(OptionError::NoValue(option));
        match name {
            "mode" => self.mode = parse_mode(need("mode")?)?,
            "interval" => (self.rate, self.interval) = (None, parse_interval(need("interval")?)?),
            "rate" => {
                let (rate, interval) = parse_rate(need("rate")?, interval::processors())?;
                (self.rate, self.interval) = (Some(rate), interval);
            }
            "budget" => self.budget_ppm = Some(parse_budget(need("budget")?)?),
            "signal" => self.signal = Some(parse_signal(need("signal")?)?),
            "collector" => self.collector = Some(parse_collector(need("collector")?)?),
            "file" => {
                let path = need("file")?.replace("%p", &std::process::id().to_string());
                self.file = Some(PathBuf::from(path));
            }
            "ca" => self.certificates = Some(PathBuf::from(need("ca")?)),
            "token" => self.token = need("token")?.to_owned(),
            "tokenfile" => self.token = read_token(need("tokenfile")?)?,
            "window" => self.window = parse_window(need("window")?)?,
            "insecure" if value.is_none() => self.insecure = true,
            "insecure" => return Err(bad("insecure", value.unwrap_or(""), "given without a value")),
            "maxstack" => self.max_stack = parse_max_stack(need("maxstack")?)?,
            "log" => self.log = parse_level(need("log")?)?,
            "debug" => {
                let text = need("debug")?;
                self.debug.set(text, parse_time).map_err(|error| match error {
                    DebugError::Malformed => bad("debug", text, debug_options::FORM),
                    DebugError::NoHooks => OptionError::NoHooks(text.to_owned()),
                })?;
            }
            "gcdrain" => self.pause_budget = parse_pause_budget(need("gcdrain")?)?,
            "strict" if value.is_none() => self.strict = true,
            "strict" => return Err(bad("strict", value.unwrap_or(""), "given without a value")),
            other => return Err(OptionError::Unknown(other.to_owned())),
        }
        Ok(())
    }
}

fn bad(option: &'static str, value: &str, expected: &'static str) -> OptionError {
    OptionError::BadValue { option, value: value.to_owned(), expected }
}

fn parse_mode(value: &str) -> Result<Mode, OptionError> {
    match value {
        "cputime" => Ok(Mode::CpuTime),
        other => Err(bad("mode", other, "'cputime', the only mode")),
    }
}

/// Splits `10ms` into its number and its unit.
fn split_number(value: &str) -> Option<(u64, &str)> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit))
}

fn parse_time(value: &str) -> Option<Duration> {
    let (number, unit) = split_number(value)?;
    let nanos_per_unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos_per_unit).map(Duration::from_nanos)
}

fn parse_interval(value: &str) -> Result<Duration, OptionError> {
    let fits = |interval: &Duration| (MIN_INTERVAL..=MAX_INTERVAL).contains(interval);
    parse_time(value).filter(fits).ok_or_else(|| bad("interval", value, INTERVAL_FORM))
}

fn parse_pause_budget(value: &str) -> Result<Duration, OptionError> {
    if value == "off" {
        return Ok(Duration::ZERO);
    }
    let fits = |budget: &Duration| *budget <= MAX_PAUSE_BUDGET;
    parse_time(value).filter(fits).ok_or_else(|| bad("gcdrain", value, PAUSE_BUDGET_FORM))
}

/// Reads a size with its unit, in bytes.
fn parse_size(value: &str) -> Option<u64> {
    let (number, unit) = split_number(value)?;
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1024,
        "m" | "M" => 1024 * 1024,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Reads a rate as in `500/s`; returns it and the interval at which all processors, when busy, yield that many samples
/// per second together.
fn parse_rate(value: &str, processors: u64) -> Result<(u64, Duration), OptionError> {
    let refuse = || bad("rate", value, RATE_FORM);
    let (rate, unit) = split_number(value).ok_or_else(refuse)?;
    let nanos = interval::period_of_rate(rate, processors).filter(|_| unit == "/s").ok_or_else(refuse)?;
    let interval = Duration::from_nanos(nanos);
    (MIN_INTERVAL..=MAX_INTERVAL).contains(&interval).then_some((rate, interval)).ok_or_else(refuse)
}

/// Reads a share as in `1%`, with up to four decimals, in millionths.
fn parse_budget(value: &str) -> Result<u64, OptionError> {
    let parse = || {
        let number = value.strip_suffix('%')?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
            return None;
        }
        let parts: u64 = format!("{whole}{decimals:0<4}").parse().ok()?;
        BUDGET_RANGE.contains(&parts).then_some(parts)
    };
    parse().ok_or_else(|| bad("budget", value, BUDGET_FORM))
}

fn parse_max_stack(value: &str) -> Result<usize, OptionError> {
    let bytes = parse_size(value).and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| MAX_STACK_RANGE.contains(bytes))
        .ok_or_else(|| bad("maxstack", value, MAX_STACK_FORM))
}

fn parse_window(value: &str) -> Result<u64, OptionError> {
    let bytes = parse_size(value).filter(|bytes| WINDOW_RANGE.contains(bytes));
    bytes.ok_or_else(|| bad("window", value, "a size between 16k and 256m, as in 4m"))
}

/// Reads the first line of a file.
fn read_token(path: &str) -> Result<String, OptionError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| OptionError::TokenFile { path: path.to_owned(), error: error.to_string() })?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        return Err(OptionError::TokenFile { path: path.to_owned(), error: "it is empty".to_owned() });
    }
    Ok(token.to_owned())
}

fn parse_signal(value: &str) -> Result<i32, OptionError> {
    let refuse =
        || bad("signal", value, "a signal that the JVM does not use (27 = SIGPROF, or a real-time signal)");
    let number: i32 = match value {
        "PROF" | "SIGPROF" => libc::SIGPROF,
        other => other.parse().map_err(|_| refuse())?,
    };
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let is_unused = number == libc::SIGPROF || number == libc::SIGVTALRM || real_time.contains(&number);
    is_unused.then_some(number).ok_or_else(refuse)
}

fn parse_collector(value: &str) -> Result<Collector, OptionError> {
    let refuse = || bad("collector", value, "unix:PATH, HOST:PORT or tls:HOST:PORT");
    if let Some(path) = value.strip_prefix("unix:") {
        return if path.is_empty() { Err(refuse()) } else { Ok(Collector::Unix(PathBuf::from(path))) };
    }
    let (scheme, address): (fn(String) -> Collector, _) = match value.strip_prefix("tls:") {
        Some(address) => (Collector::Tls, address),
        None => (Collector::Tcp, value.strip_prefix("tcp:").unwrap_or(value)),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(refuse)?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(refuse());
    }
    Ok(scheme(address.to_owned()))
}

fn parse_level(value: &str) -> Result<tracing::level_filters::LevelFilter, OptionError> {
    use tracing::level_filters::LevelFilter;
    Ok(match value {
        "none" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        other => return Err(bad("log", other, "one of none, error, warn, info, debug")),
    })
}

impl std::fmt::Display for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
            Self::Tls(address) => write!(f, "tls:{address}"),
        }
    }
}

#[cfg(test)]
mod tests;
