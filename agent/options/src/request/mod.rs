//! A request to the agent: what to do, with which options.
//!
//! Sources: async-profiler 4, `docs/ProfilerOptions.md`, `docs/IntegratingAsyncProfiler.md`.

mod draft;
mod parser;
mod words;

use std::path::PathBuf;

use tracing::level_filters::LevelFilter;

use crate::error::Warning;
use crate::kinds::output::{Format, Output};
use crate::options::Options;

/// The way by which a request comes; it decides what applies where the text says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// `-agentpath`, when the JVM starts.
    Load,
    /// An attach to a JVM that runs.
    Attach,
    /// async-profiler's Java API.
    Java,
    C,
    /// The command, which checks the text before the agent gets it.
    Command,
}

impl Door {
    /// The effect of a text that names none.
    pub(crate) fn action(self) -> Option<Action> {
        match self {
            Self::Load | Self::Attach | Self::C | Self::Command => Some(Action::Start),
            Self::Java => None,
        }
    }

    /// The format of a file that is written when a profile ends, and whose name does not tell it.
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Load | Self::Attach | Self::C | Self::Command => Format::Recording,
            Self::Java => Format::Text,
        }
    }

    /// Returns whether a profile without a destination is recorded into a file with a name.
    pub(crate) fn names_recording(self) -> bool {
        matches!(self, Self::Load | Self::Attach)
    }

    /// Returns whether values can be checked that depend on the environment and the files of the JVM.
    pub(crate) fn is_in_jvm(self) -> bool {
        self != Self::Command
    }
}

/// The effect of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a profile, or wait for a start (`start=no`).
    Start,
    /// Start a profile and keep the results of the last one.
    Resume,
    /// End the profile; write a result if one is requested.
    Stop,
    /// Write a result.
    Dump,
    /// Tell whether a profile runs.
    Status,
    /// Write the stacks of all threads.
    Stacks,
    Check,
    List,
    Version,
}

/// Threads whose samples results have, if not those of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Kernel ids of the threads that are chosen at the start, as ranges.
    pub threads: Vec<std::ops::RangeInclusive<i32>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The way by which it came.
    pub door: Door,
    pub action: Action,
    pub options: Options,
    /// The parts of the text that count.
    pub text: String,
    /// The requested result.
    pub output: Option<Output>,
    /// File for the result or the answer, unless a profile writes it when it ends.
    pub file: Option<PathBuf>,
    /// Chosen threads.
    pub filter: Option<Filter>,
    /// True if an answer that only confirms is left out.
    pub is_quiet: bool,
    /// File for messages about this request, which its sender reads.
    pub messages: Option<PathBuf>,
    /// Socket of the sender, for the answer.
    pub reply: Option<PathBuf>,
    /// Parts without effect.
    pub warnings: Vec<Warning>,
}

impl Request {
    /// Returns whether it starts a profile, or the wait for a start.
    pub fn starts(&self) -> bool {
        matches!(self.action, Action::Start | Action::Resume)
    }

    /// Returns the lines about parts without effect, as far as the log level admits warnings.
    pub fn warning_lines(&self) -> Vec<String> {
        if self.options.log < LevelFilter::WARN {
            return Vec::new();
        }
        let words: Vec<&str> = self.warnings.iter().filter_map(Warning::word).collect();
        let mut lines: Vec<String> = Vec::new();
        if words.len() > 1 {
            lines.push(format!("these words have no effect here: {}", words.join(", ")));
        }
        let single = self.warnings.iter().filter(|warning| words.len() == 1 || warning.word().is_none());
        lines.extend(single.map(ToString::to_string));
        lines
    }
}
