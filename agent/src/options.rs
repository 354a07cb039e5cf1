//! The option string after `-agentpath:libtickwalk.so=`: a comma-separated list of `name[=value]`.
//!
//! Problem: users mistype options, and a profiler must not stop their program for it.
//! Approach: parse everything into [`Options`] before anything is started; each mistake is one [`OptionError`]
//! whose text names the option, the value and the accepted form.
//! The spellings of async-profiler that mean the same are accepted: [`ALWAYS_SO`], `event` and `jstackdepth`.
//! Invariant: all values of an `Options` are in their ranges.

use std::path::PathBuf;
use std::time::Duration;

use sampler_thread::period::interval;
use sampler_thread::send::delivery::{DEFAULT_END_SILENCE, DEFAULT_WINDOW};
use tracing::level_filters::LevelFilter;

use crate::debug_options::{self, DebugError, DebugOptions};
use crate::redaction::Redaction;

use table::OPTIONS;

pub mod environment;
pub mod file_name;
pub mod table;

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
/// Smallest and largest accepted `maxstack`; Linux gives a program's first thread 8 MiB.
pub const MAX_STACK_RANGE: std::ops::RangeInclusive<usize> = 4096..=8 * 1024 * 1024;

/// Default of `depth`, the most frames of a stack: the deepest recursions that a thread stack of 1 MiB holds have 10,000 to
/// 20,000 frames.
pub const DEFAULT_DEPTH: u32 = 16_384;
/// Smallest and largest accepted `depth`.
pub const DEPTH_RANGE: std::ops::RangeInclusive<u32> = 16..=65_536;

/// Smallest and largest accepted `budget` in millionths.
///
/// Waking and listing threads alone takes about a thousandth of a busy processor.
pub const BUDGET_RANGE: std::ops::RangeInclusive<u64> = 1_000..=500_000;

/// Smallest and largest accepted `window` in bytes: the size of one message, and a size that no server lacks.
pub const WINDOW_RANGE: std::ops::RangeInclusive<u64> = (16 << 10)..=(256 << 20);

/// Largest accepted `exitwait`.
pub const MAX_END_SILENCE: Duration = Duration::from_secs(60);

/// Smallest accepted `abandon`: the pauses between attempts to reach a collector are not much shorter.
pub const MIN_ABANDON: Duration = Duration::from_secs(1);

/// Default of `gcdrain`, the longest wait of a garbage collection pause.
///
/// Waking the sampler takes some 50 us and a warm walk about 10; collections pause for milliseconds.
pub const DEFAULT_PAUSE_BUDGET: Duration = Duration::from_micros(200);
/// Largest accepted `gcdrain`.
pub const MAX_PAUSE_BUDGET: Duration = Duration::from_millis(100);

/// Largest accepted name of a service, and label, in bytes.
const MOST_NAME_BYTES: usize = 256;
/// Most labels of a process.
const MOST_LABELS: usize = 32;

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

/// Purpose of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Sample CPU time.
    #[default]
    CpuTime,
    /// Offer the stack-walk API.
    Api,
}

/// All options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Purpose of the agent.
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
    /// True if samples may cross a network unencrypted.
    pub insecure: bool,
    /// Bytes sent and not acknowledged above which samples are merged.
    pub window: u64,
    /// Longest silence of the collector while the JVM ends.
    pub end_silence: Duration,
    /// Recording file to write, its pattern already replaced.
    pub file: Option<PathBuf>,
    /// Which arguments of the program are secrets.
    pub redaction: Redaction,
    /// Most stack bytes copied per sample.
    pub max_stack: usize,
    /// Most frames of a stack.
    pub depth: u32,
    /// Name of the program; chosen from its environment if `None`.
    pub service: Option<String>,
    /// Labels of the process, as `key=value`.
    pub labels: Vec<String>,
    /// Log level.
    pub log: LevelFilter,
    /// File for log lines in place of standard error.
    pub log_file: Option<PathBuf>,
    /// True if the JVM must not start when profiling cannot start.
    pub strict: bool,
    /// Longest wait of a garbage collection pause until pending samples are named; zero for no wait.
    pub pause_budget: Duration,
    /// Time without a collector after which it is given up; `None` for never.
    pub abandon: Option<Duration>,
    /// False if the agent waits for a start.
    pub starts: bool,
    /// Options for experiments.
    pub debug: DebugOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            interval: DEFAULT_INTERVAL,
            rate: None,
            budget_ppm: None,
            signal: None,
            collector: None,
            certificates: None,
            token: String::new(),
            insecure: false,
            window: DEFAULT_WINDOW,
            end_silence: DEFAULT_END_SILENCE,
            file: None,
            redaction: Redaction::default(),
            max_stack: DEFAULT_MAX_STACK,
            depth: DEFAULT_DEPTH,
            service: None,
            labels: Vec::new(),
            log: LevelFilter::WARN,
            log_file: None,
            strict: false,
            pause_budget: DEFAULT_PAUSE_BUDGET,
            abandon: None,
            starts: true,
            debug: DebugOptions::default(),
        }
    }
}

/// Why an option string was refused. The text of each is one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No option has this name.
    #[error("unknown option '{0}'; {hint}", hint = hint(.0))]
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
    /// The file's name is that of another format.
    #[error(
        "option 'file': the agent writes recordings, and {0} is another format; write file=NAME.tickwalk, then \
         tickwalk export -o {0} NAME.tickwalk"
    )]
    OtherFormat(String),
    /// The event is none that is sampled.
    #[error(
        "option 'event': '{0}' is not sampled; write event=cpu, or leave it out: Tickwalk samples CPU time"
    )]
    Event(String),
    /// The option belongs to profiles.
    #[error("option '{0}' has no effect with mode=api; the options there are log and strict")]
    NotForApi(String),
    /// The file with the token cannot be read.
    #[error("cannot read tokenfile={path}: {error}; its first line must be the token")]
    TokenFile {
        /// The file.
        path: String,
        /// Why, in words.
        error: String,
    },
}

/// Options that name a destination.
pub const DESTINATIONS: [&str; 2] = ["file=", "collector="];

/// Options that apply to `mode=api`.
const API_OPTIONS: [&str; 3] = ["mode", "log", "strict"];

/// Words of async-profiler's options that name what is always so. `start` is another one, unless it has a value.
///
/// Source of these, of `event` and of `jstackdepth`: async-profiler 4, `docs/ProfilerOptions.md`.
const ALWAYS_SO: [&str; 1] = ["threads"];

/// Events of async-profiler that are CPU time.
const CPU_EVENTS: [&str; 3] = ["cpu", "ctimer", "itimer"];

/// Returns what to write in place of an unknown option.
fn hint(name: &str) -> String {
    const SIMILAR: f64 = 0.75;
    let rated = OPTIONS.map(|option| (strsim::jaro_winkler(name, option.name), option.name));
    match rated.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((similarity, option)) if similarity >= SIMILAR => format!("did you mean {option}?"),
        _ => format!("the options are {}", OPTIONS.map(|option| option.name).join(", ")),
    }
}

/// Returns whether an option string asks for the stack-walk API, even if another part of it is invalid.
pub fn is_for_api(text: &str) -> bool {
    text.split(',').any(|part| part.trim() == "mode=api")
}

/// Returns whether an option string contains `strict`, even if another part of it is invalid.
pub fn is_strict(text: &str) -> bool {
    text.split(',').any(|part| part.trim() == "strict")
}

/// Returns whether the options make the agent wait for a start, even if another part of them is invalid.
pub fn waits_for_start(text: &str) -> bool {
    let mut parts = text.rsplit(',').map(str::trim);
    parts.find(|part| *part == "start" || part.starts_with("start=")) == Some("start=no")
}

impl Options {
    /// The interval in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns whether an option string names a file or a collector.
    pub fn names_destination(text: &str) -> bool {
        text.split(',').any(|part| DESTINATIONS.iter().any(|name| part.trim().starts_with(name)))
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
        if options.mode == Mode::Api {
            let mut names =
                text.split(',').map(|part| part.split_once('=').map_or(part, |(name, _)| name).trim());
            let other = names.find(|name| !name.is_empty() && !API_OPTIONS.contains(name));
            return other.map_or(Ok(options), |name| Err(OptionError::NotForApi(name.to_owned())));
        }
        if options.file.is_none() && options.collector.is_none() {
            options.file = file_name::path(file_name::DEFAULT_PATTERN);
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        if let Some(option) = ALWAYS_SO.into_iter().find(|word| *word == name) {
            return match value {
                None => Ok(()),
                Some(value) => Err(OptionError::BadValue {
                    option,
                    value: value.to_owned(),
                    expected: "given without a value",
                }),
            };
        }
        let name = match (name, value) {
            ("event", None | Some("")) => return Err(OptionError::NoValue("event")),
            ("event", Some(event)) if CPU_EVENTS.contains(&event) => return Ok(()),
            ("event", Some(event)) => return Err(OptionError::Event(event.to_owned())),
            ("jstackdepth", _) => "depth",
            ("start", None) => {
                self.starts = true;
                return Ok(());
            }
            (name, _) => name,
        };
        let known = OPTIONS.iter().find(|option| option.name == name);
        let known = known.ok_or_else(|| OptionError::Unknown(name.to_owned()))?;
        let (option, is_flag) = (known.name, known.value.is_empty());
        let expected = if option == "debug" { debug_options::FORM } else { known.form };
        let text = value.unwrap_or_default();
        if text.is_empty() && !is_flag {
            return Err(OptionError::NoValue(option));
        }
        let bad = || OptionError::BadValue { option, value: text.to_owned(), expected };
        match option {
            "file" if file_name::is_other_format(text) => {
                return Err(OptionError::OtherFormat(text.to_owned()));
            }
            "tokenfile" => self.token = read_token(text)?,
            "debug" => self.debug.set(text, parse_time).map_err(|error| match error {
                DebugError::Malformed => bad(),
                DebugError::NoHooks => OptionError::NoHooks(text.to_owned()),
            })?,
            _ if is_flag && value.is_some() => return Err(bad()),
            _ => self.set_value(option, text).ok_or_else(bad)?,
        }
        Ok(())
    }

    /// Sets an option; returns `None` if the value does not have the accepted form.
    fn set_value(&mut self, option: &str, value: &str) -> Option<()> {
        match option {
            "mode" if value == "cputime" => self.mode = Mode::CpuTime,
            "mode" if value == "api" => self.mode = Mode::Api,
            "interval" => (self.rate, self.interval) = (None, parse_time(value).filter(is_interval)?),
            "rate" => {
                let (rate, interval) = parse_rate(value, interval::processors())?;
                (self.rate, self.interval) = (Some(rate), interval);
            }
            "budget" => self.budget_ppm = Some(parse_budget(value)?),
            "signal" => self.signal = Some(parse_signal(value)?),
            "collector" => self.collector = Some(parse_collector(value)?),
            "ca" => self.certificates = Some(value.into()),
            "token" => self.token = value.to_owned(),
            "insecure" => self.insecure = true,
            "window" => self.window = parse_size(value).filter(|bytes| WINDOW_RANGE.contains(bytes))?,
            "exitwait" => self.end_silence = parse_time(value).filter(|time| *time <= MAX_END_SILENCE)?,
            "file" => self.file = Some(file_name::path(value)?),
            "service" if value.len() <= MOST_NAME_BYTES => self.service = Some(value.to_owned()),
            "label" => {
                let (key, text) = value.split_once('=')?;
                let fits = self.labels.len() < MOST_LABELS && value.len() <= MOST_NAME_BYTES;
                if key.is_empty() || text.is_empty() || !fits {
                    return None;
                }
                self.labels.push(value.to_owned());
            }
            "logfile" => self.log_file = Some(file_name::path(value)?),
            "redact" => self.redaction = Redaction::parse(value)?,
            "maxstack" => {
                let bytes = usize::try_from(parse_size(value)?).ok();
                self.max_stack = bytes.filter(|bytes| MAX_STACK_RANGE.contains(bytes))?;
            }
            "depth" => self.depth = value.parse().ok().filter(|depth| DEPTH_RANGE.contains(depth))?,
            "log" => self.log = parse_level(value)?,
            "gcdrain" if value == "off" => self.pause_budget = Duration::ZERO,
            "gcdrain" => self.pause_budget = parse_time(value).filter(|time| *time <= MAX_PAUSE_BUDGET)?,
            "strict" => self.strict = true,
            "abandon" if value == "never" => self.abandon = None,
            "abandon" => self.abandon = Some(parse_time(value).filter(|time| *time >= MIN_ABANDON)?),
            "start" if value == "yes" => self.starts = true,
            "start" if value == "no" => self.starts = false,
            _ => return None,
        }
        Some(())
    }
}

fn is_interval(time: &Duration) -> bool {
    (MIN_INTERVAL..=MAX_INTERVAL).contains(time)
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
fn parse_rate(value: &str, processors: u64) -> Option<(u64, Duration)> {
    let (rate, unit) = split_number(value)?;
    let nanos = interval::period_of_rate(rate, processors).filter(|_| unit == "/s")?;
    Some((rate, Some(Duration::from_nanos(nanos)).filter(is_interval)?))
}

/// Reads a share as in `1%`, with up to four decimals, in millionths.
fn parse_budget(value: &str) -> Option<u64> {
    let number = value.strip_suffix('%')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
        return None;
    }
    let parts = format!("{whole}{decimals:0<4}").parse().ok();
    parts.filter(|parts| BUDGET_RANGE.contains(parts))
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

fn parse_signal(value: &str) -> Option<i32> {
    let number = match value {
        "PROF" | "SIGPROF" => libc::SIGPROF,
        other => other.parse().ok()?,
    };
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let is_unused = number == libc::SIGPROF || number == libc::SIGVTALRM || real_time.contains(&number);
    is_unused.then_some(number)
}

fn parse_collector(value: &str) -> Option<Collector> {
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

fn parse_level(value: &str) -> Option<LevelFilter> {
    match value {
        "none" => Some(LevelFilter::OFF),
        "error" | "warn" | "info" | "debug" => value.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
