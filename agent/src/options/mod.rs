//! The option string after `-agentpath:libtickwalk.so=`: a comma-separated list of `name[=value]`.
//!
//! Problem: users mistype options, and a profiler must not stop their program for it.
//! Approach: parse everything into [`Options`] before anything is started; each mistake is one [`OptionError`]
//! whose text names the option, the value and the accepted form.
//! The spellings of async-profiler that mean the same are accepted: `start` and `threads` without a value, `event`,
//! `jstackdepth` and `timeout`.
//! Invariant: all values of an `Options` are in their ranges.

use std::path::PathBuf;
use std::time::Duration;

use sampler_thread::name::shown::Shown;
use sampler_thread::period::interval;
use sampler_thread::send::delivery::{DEFAULT_END_SILENCE, DEFAULT_WINDOW};
use tracing::level_filters::LevelFilter;

use debug::{DebugError, DebugOptions};
use dumps::DumpOptions;
use redaction::Redaction;
use table::OPTIONS;
use thread_choice::ThreadChoice;
use values::{
    is_interval, parse_budget, parse_collector, parse_depth, parse_level, parse_rate, parse_seconds,
    parse_signal, parse_size, parse_switch, parse_time, read_token,
};

pub use values::Collector;

pub mod debug;
pub mod dumps;
pub mod environment;
pub mod file_name;
pub(crate) mod redaction;
pub mod table;
pub mod thread_choice;
mod values;

/// Signals that perf events may use: their default action is to be ignored, so a signal that is pending in execve(2)
/// cannot end the new program.
pub const SIGNALS_OF_EVENTS: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

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
/// Smallest accepted `duration` and `loop`: a recording has statistics once a second.
pub const MIN_DURATION: Duration = Duration::from_secs(1);

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

/// Purpose of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Sample CPU time.
    #[default]
    CpuTime,
    /// Sample wall time.
    Wall,
    /// Sample CPU time by the VM's stack traces, which are those of safepoints.
    Jvmti,
    /// Offer the stack-walk API.
    Api,
}

/// The source of the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockOption {
    /// A timer for each thread.
    #[default]
    Timer,
    /// A perf event for each thread.
    Perf,
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
    /// The source of the signals.
    pub clock: ClockOption,
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
    /// File of another format to write at the end, its pattern already replaced.
    pub result: Option<PathBuf>,
    /// Time after which the profile ends by itself.
    pub duration: Option<Duration>,
    /// Time after which the profile ends and the next one begins.
    pub repeats_after: Option<Duration>,
    /// Which threads are sampled.
    pub threads: ThreadChoice,
    /// Which arguments of the program are secrets.
    pub redaction: Redaction,
    /// Most stack bytes copied per sample.
    pub max_stack: usize,
    /// Most frames of a stack.
    pub depth: u32,
    /// Which frames of a stack are shown.
    pub shown: Shown,
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
    /// When all stacks are written without a command.
    pub dumps: DumpOptions,
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
            clock: ClockOption::default(),
            signal: None,
            collector: None,
            certificates: None,
            token: String::new(),
            insecure: false,
            window: DEFAULT_WINDOW,
            end_silence: DEFAULT_END_SILENCE,
            file: None,
            result: None,
            duration: None,
            repeats_after: None,
            threads: ThreadChoice::default(),
            redaction: Redaction::default(),
            max_stack: DEFAULT_MAX_STACK,
            depth: DEFAULT_DEPTH,
            shown: Shown::default(),
            service: None,
            labels: Vec::new(),
            log: LevelFilter::WARN,
            log_file: None,
            strict: false,
            pause_budget: DEFAULT_PAUSE_BUDGET,
            abandon: None,
            starts: true,
            dumps: DumpOptions::default(),
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
        "option 'file': the agent does not write the format of {0}; write file=NAME.tickwalk, then tickwalk export -o {0} \
         NAME.tickwalk"
    )]
    OtherFormat(String),
    /// A signal has two purposes.
    #[error(
        "options 'signal' and 'dumpsignal' name the same signal, {0}; choose another one for dumpsignal="
    )]
    SameSignal(i32),
    /// Every period would write the same file.
    #[error(
        "option 'loop': each period would overwrite the file of the one before; write %t, the time, into file="
    )]
    SameFile,
    /// A stream to a collector has no files.
    #[error("option 'loop' has no effect without file=; the collector's samples are divided by time already")]
    NothingToDivide,
    /// The event is none that is sampled.
    #[error(
        "option 'event': '{0}' is not sampled; write event=cpu for CPU time, or event=wall for wall time"
    )]
    Event(String),
    /// The option belongs to profiles.
    #[error("option '{0}' has no effect with mode=api; the options there are log and strict")]
    NotForApi(String),
    /// The option belongs to CPU time.
    #[error("option '{0}' has no effect with mode=wall, which samples by timers; leave one of them out")]
    NotForWall(&'static str),
    /// A new program would die of the signal.
    #[error(
        "option 'signal': clock=perf needs 23 (SIGURG) or 28 (SIGWINCH), which cannot end a program that replaces this one; \
         {0} belongs to timers, so leave signal= or clock=perf out"
    )]
    SignalOfTimers(i32),
    /// The signal may be lost while another one is pending.
    #[error("option 'signal': {0} is for clock=perf only; choose 27 (SIGPROF) or a real-time signal")]
    SignalOfEvents(i32),
    /// The option belongs to signals.
    #[error(
        "option '{0}' has no effect with mode=jvmti, which asks the VM for stacks; leave one of them out"
    )]
    NotForJvmti(&'static str),
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

/// Events of async-profiler that are CPU time.
///
/// Source of these, and of `threads`, `start`, `jstackdepth` and `timeout`: async-profiler 4, `docs/ProfilerOptions.md`.
const CPU_EVENTS: [&str; 3] = ["cpu", "ctimer", "itimer"];

/// Returns what to write in place of an unknown option.
fn hint(name: &str) -> String {
    const SIMILAR: f64 = 0.75;
    // Those of async-profiler.
    if ["include", "exclude"].contains(&name) {
        return format!(
            "the agent keeps all stacks; select when you read them, as in tickwalk top --{name} PATTERN FILE"
        );
    }
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
        if let Some(signal) = options.dumps.signal.filter(|_| options.dumps.signal == options.signal) {
            return Err(OptionError::SameSignal(signal));
        }
        if let Some(signal) = options.signal {
            match (options.clock, SIGNALS_OF_EVENTS.contains(&signal)) {
                (ClockOption::Perf, false) => return Err(OptionError::SignalOfTimers(signal)),
                (ClockOption::Timer, true) => return Err(OptionError::SignalOfEvents(signal)),
                _ => {}
            }
        }
        let other = [
            ("clock=perf", options.clock == ClockOption::Perf),
            ("budget", options.budget_ppm.is_some()),
            // Of signals and of stacks that are copied, so for safepoints only.
            ("signal", options.signal.is_some()),
            ("maxstack", options.max_stack != Self::default().max_stack),
            ("native=no", !options.shown.native),
            ("vm=no", !options.shown.vm),
        ];
        let first_of = |others: &[(&'static str, bool)]| {
            others.iter().find(|(_, is_set)| *is_set).map(|(name, _)| *name)
        };
        match options.mode {
            Mode::Wall => first_of(&other[..2]).map_or(Ok(()), |name| Err(OptionError::NotForWall(name)))?,
            Mode::Jvmti => first_of(&other).map_or(Ok(()), |name| Err(OptionError::NotForJvmti(name)))?,
            _ => {}
        }
        if options.repeats_after.is_some() {
            let pattern = text.rsplit(',').find_map(|part| part.trim().strip_prefix("file="));
            match pattern {
                Some(pattern) if !pattern.contains(file_name::TIME) => return Err(OptionError::SameFile),
                None if options.collector.is_some() => return Err(OptionError::NothingToDivide),
                Some(_) => {}
                None => options.file = file_name::path(file_name::DEFAULT_PATTERN_OF_PERIODS),
            }
        } else if options.file.is_none() && options.result.is_none() && options.collector.is_none() {
            options.file = file_name::path(file_name::DEFAULT_PATTERN);
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let name = match (name, value) {
            // Threads are always apart; with a value this is an option of ours.
            ("threads", None) => return Ok(()),
            ("event", None | Some("")) => return Err(OptionError::NoValue("event")),
            ("event", Some(event)) if CPU_EVENTS.contains(&event) => return Ok(()),
            ("event", Some("wall")) => {
                self.mode = Mode::Wall;
                return Ok(());
            }
            ("event", Some(event)) => return Err(OptionError::Event(event.to_owned())),
            ("jstackdepth", _) => "depth",
            ("timeout", _) => "duration",
            ("start", None) => {
                self.starts = true;
                return Ok(());
            }
            (name, _) => name,
        };
        let known = OPTIONS.iter().find(|option| option.name == name);
        let known = known.ok_or_else(|| OptionError::Unknown(name.to_owned()))?;
        let (option, is_flag) = (known.name, known.value.is_empty());
        let expected = if option == "debug" { debug::FORM } else { known.form };
        let text = value.unwrap_or_default();
        if text.is_empty() && !is_flag {
            return Err(OptionError::NoValue(option));
        }
        let bad = || OptionError::BadValue { option, value: text.to_owned(), expected };
        match option {
            "file" if file_name::is_other_format(text) => {
                return Err(OptionError::OtherFormat(text.to_owned()));
            }
            "tokenfile" => {
                self.token = read_token(text)
                    .map_err(|error| OptionError::TokenFile { path: text.to_owned(), error })?;
            }
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
            "mode" if value == "wall" => self.mode = Mode::Wall,
            "mode" if value == "jvmti" => self.mode = Mode::Jvmti,
            "mode" if value == "api" => self.mode = Mode::Api,
            "interval" => (self.rate, self.interval) = (None, parse_time(value).filter(is_interval)?),
            "rate" => {
                let (rate, interval) = parse_rate(value, interval::processors())?;
                (self.rate, self.interval) = (Some(rate), interval);
            }
            "budget" => self.budget_ppm = Some(parse_budget(value)?),
            "clock" if value == "timer" => self.clock = ClockOption::Timer,
            "clock" if value == "perf" => self.clock = ClockOption::Perf,
            "signal" => self.signal = Some(parse_signal(value)?),
            "collector" => self.collector = Some(parse_collector(value)?),
            "ca" => self.certificates = Some(value.into()),
            "token" => self.token = value.to_owned(),
            "insecure" => self.insecure = true,
            "window" => self.window = parse_size(value).filter(|bytes| WINDOW_RANGE.contains(bytes))?,
            "exitwait" => self.end_silence = parse_time(value).filter(|time| *time <= MAX_END_SILENCE)?,
            "file" => {
                let path = file_name::path(value)?;
                let is_result = file_name::is_result(value);
                (self.file, self.result) = if is_result { (None, Some(path)) } else { (Some(path), None) };
            }
            "duration" => self.duration = Some(parse_seconds(value).filter(|time| *time >= MIN_DURATION)?),
            "loop" => self.repeats_after = Some(parse_seconds(value).filter(|time| *time >= MIN_DURATION)?),
            "threads" => self.threads.sample(value)?,
            "skipthreads" => self.threads.skip(value)?,
            "native" => self.shown.native = parse_switch(value)?,
            "vm" => self.shown.vm = parse_switch(value)?,
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
            "depth" => (self.depth, self.shown.most) = parse_depth(value)?,
            "log" => self.log = parse_level(value)?,
            "gcdrain" if value == "off" => self.pause_budget = Duration::ZERO,
            "gcdrain" => self.pause_budget = parse_time(value).filter(|time| *time <= MAX_PAUSE_BUDGET)?,
            "strict" => self.strict = true,
            "abandon" if value == "never" => self.abandon = None,
            "abandon" => self.abandon = Some(parse_time(value).filter(|time| *time >= MIN_ABANDON)?),
            "start" => self.starts = parse_switch(value)?,
            _ => self.dumps.set(option, value)?,
        }
        Some(())
    }
}
#[cfg(test)]
mod tests;
