//! The values of all options.
//!
//! Invariant: all values of an [`Options`] that was parsed are in their ranges.

use std::path::PathBuf;
use std::time::Duration;

use sampler_thread::name::shown::Shown;
use sampler_thread::send::delivery::{DEFAULT_END_SILENCE, DEFAULT_WINDOW};
use tracing::level_filters::LevelFilter;

use crate::kinds::debug::DebugOptions;
use crate::kinds::dumps::DumpOptions;
use crate::kinds::output::ResultFile;
use crate::kinds::redaction::Redaction;
use crate::kinds::thread_choice::ThreadChoice;

/// Default of `interval`: 100 samples per second of CPU time.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(10);
/// Default of `maxstack`, the most stack bytes copied per sample.
///
/// A thousand interpreted frames take about 130 KiB; 512 KiB holds the deepest stacks of real programs.
pub const DEFAULT_MAX_STACK: usize = 512 * 1024;
/// Default of `depth`, the most frames of a stack: the deepest recursions that a thread stack of 1 MiB holds have
/// 10,000 to 20,000 frames.
pub const DEFAULT_DEPTH: u32 = 16_384;
/// Default of `gcdrain`, the longest wait of a garbage collection pause.
///
/// Waking the sampler takes some 50 us and a warm walk about 10; collections pause for milliseconds.
pub const DEFAULT_PAUSE_BUDGET: Duration = Duration::from_micros(200);

/// Purpose of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    CpuTime,
    /// Sample wall time.
    Wall,
    /// Sample CPU time by the VM's stack traces, which are those of safepoints.
    Jvmti,
    /// Offer the stack-walk API.
    Api,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuTime => "cputime",
            Self::Wall => "wall",
            Self::Jvmti => "jvmti",
            Self::Api => "api",
        }
    }
}

/// The source of the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockOption {
    #[default]
    Timer,
    /// A perf event for each thread.
    Perf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collector {
    /// A Unix domain socket.
    Unix(PathBuf),
    /// `host:port`, unencrypted.
    Tcp(String),
    /// `host:port`, TLS.
    Tls(String),
}

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
    /// The value of `file`, in which variables stand for others.
    pub pattern: Option<String>,
    /// Recording file to write, its pattern already replaced.
    pub file: Option<PathBuf>,
    /// File of another format to write at the end, its pattern already replaced.
    pub result: Option<ResultFile>,
    /// Time after which the profile ends by itself.
    pub duration: Option<Duration>,
    /// Time after which the profile ends and the next one begins.
    pub repeats_after: Option<Duration>,
    pub threads: ThreadChoice,
    /// The arguments of the program that are secrets.
    pub redaction: Redaction,
    /// Most stack bytes copied per sample.
    pub max_stack: usize,
    /// Most frames of a stack.
    pub depth: u32,
    /// The shown frames of a stack.
    pub shown: Shown,
    /// Name of the program; chosen from its environment if `None`.
    pub service: Option<String>,
    /// Labels of the process, as `key=value`.
    pub labels: Vec<String>,
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
            pattern: None,
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

impl Options {
    /// The interval in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX)
    }
}
