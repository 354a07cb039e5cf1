//! Mistakes in the text of a request, each with a text of one line for the user.

use std::path::PathBuf;

use super::options::Mode;
use super::table::OPTIONS;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    #[error("option '{0}' needs a value, as in {0}=...")]
    NoValue(String),
    #[error("option '{option}': '{value}' is not {expected}")]
    BadValue {
        option: &'static str,
        value: String,
        /// The accepted form.
        expected: &'static str,
    },
    #[error(
        "option 'debug': '{0}' is a developers' hook, which this agent was built without; build one with \
                 cargo build --release -p agent --features hooks"
    )]
    NoHooks(String),
    #[error(
        "option 'file': the agent does not write the format of {0}; write file=NAME.tickwalk, then tickwalk export -o {0} \
         NAME.tickwalk"
    )]
    OtherFormat(String),
    #[error(
        "options 'signal' and 'dumpsignal' name the same signal, {0}; choose another one for dumpsignal="
    )]
    SameSignal(i32),
    /// A new program would die of the signal.
    #[error(
        "option 'signal': clock=perf needs 23 (SIGURG) or 28 (SIGWINCH), which cannot end a program that replaces this one; \
         {0} belongs to timers, so leave signal= or clock=perf out"
    )]
    SignalOfTimers(i32),
    #[error("option 'signal': {0} is for clock=perf only; choose 27 (SIGPROF) or a real-time signal")]
    SignalOfEvents(i32),
    #[error(
        "option 'loop': each period would overwrite the file of the one before; write %t, the time, into file="
    )]
    SameFile,
    #[error("option 'loop' has no effect without file=; the collector's samples are divided by time already")]
    NothingToDivide,
    #[error(
        "option 'event': '{0}' is not sampled; write event=cpu for CPU time, or event=wall for wall time"
    )]
    Event(String),
    /// Samples of one processor only, or with their processor, which timers cannot give.
    #[error(
        "option '{0}': timers of threads count CPU time on all processors; leave it out, or bind the JVM with taskset"
    )]
    OneProcessor(&'static str),
    #[error("cannot read tokenfile={path}: {error}; its first line must be the token")]
    TokenFile {
        path: String,
        /// Why, in words.
        error: String,
    },
    #[error("no command; write start, stop, dump, status or version, or a format")]
    NoCommand,
    #[error(
        "metrics and meminfo are commands of async-profiler that Tickwalk does not have; status shows the state of a \
         profile"
    )]
    OtherCommand,
    /// With `strict` nothing may be without effect.
    #[error("{0}")]
    Strict(Warning),
}

/// A part of a request that has no effect. The rest of the request has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    #[error("unknown option '{0}'; {hint}", hint = hint(.0))]
    Unknown(String),
    #[error("'{word}' has no effect here; {remedy}")]
    NoEffect {
        word: String,
        /// Why, or what to write instead.
        remedy: &'static str,
    },
    #[error("option '{option}' has no effect with mode={}; leave one of them out", mode.name())]
    OtherMode { option: String, mode: Mode },
}

impl Warning {
    /// Returns the word, if the meanings of several such words need no lines of their own.
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::NoEffect { word, .. } => Some(word),
            Self::Unknown(_) | Self::OtherMode { .. } => None,
        }
    }
}

/// A request that is refused, and what is needed to report that.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BadRequest {
    /// The leftmost mistake.
    pub error: OptionError,
    /// True if the JVM must not start for it.
    pub is_strict: bool,
    /// The mode, as far as the text says it.
    pub mode: Mode,
    /// File for the message.
    pub messages: Option<PathBuf>,
}

/// Returns what to write in place of an unknown option.
fn hint(name: &str) -> String {
    const SIMILAR: f64 = 0.75;
    let rated = OPTIONS.iter().map(|option| (strsim::jaro_winkler(name, option.name), option.name));
    match rated.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((similarity, option)) if similarity >= SIMILAR => format!("did you mean {option}?"),
        _ => {
            let names: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
            format!("the options are {}", names.join(", "))
        }
    }
}
