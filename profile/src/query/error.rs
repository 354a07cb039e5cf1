//! Errors of questions.

use std::io;

use crate::source::ReadError;
use crate::text::format::UnknownFormat;

/// Maximum number of values of a repeated parameter.
pub const VALUES: usize = 64;

pub const QUESTIONS: [&str; 15] = [
    "processes",
    "statistics",
    "summary",
    "flamegraph",
    "tree",
    "methods",
    "callers",
    "callees",
    "lines",
    "threads",
    "timeline",
    "diff",
    "view",
    "top",
    "export",
];

pub const VIEWS: [&str; 5] =
    ["hot-methods", "cpu-time-hot-methods", "cpu-time-statistics", "threads", "processes"];

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    #[error("unknown parameter {0:?}")]
    UnknownParameter(String),
    #[error("{parameter}: write {expected}")]
    BadValue {
        parameter: &'static str,
        /// The accepted form.
        expected: &'static str,
    },
    #[error("the selected time is empty: from must be before to")]
    EmptyTime,
    #[error("{0}: at most {VALUES} values")]
    TooMany(&'static str),
    #[error("the parameter {0} is missing; add {0}=VALUE")]
    Missing(&'static str),
    #[error("no such question; the questions are {}", QUESTIONS.join(", "))]
    UnknownQuestion,
    #[error("the answer cannot be written: {0}")]
    Encoding(String),
    #[error(
        "no sample is in a method {0:?}; `top` shows the names, and the end of one, such as HashMap.get, is enough"
    )]
    NoMethod(String),
    /// Several methods end with this text.
    #[error("{0:?} is the end of several names; write one of them: {names}", names = .1.join(", "))]
    SeveralMethods(String, Vec<String>),
    #[error("the sides have different modes ({0} and {1}), so their times cannot be compared")]
    DifferentModes(String, String),
    #[error("unknown view {0:?}; the views are {views}", views = VIEWS.join(", "))]
    UnknownView(String),
    /// No format has this name.
    #[error(transparent)]
    UnknownFormat(#[from] UnknownFormat),
    #[error("the selection has no samples; widen the time or remove a filter")]
    NoSamples,
    /// A form without a star, which the whole frame must have.
    #[error(
        "the selection has no samples; include compares whole frames: if the pattern is meant for a part of a \
         frame, write '*{0}*', or use frame in place of include"
    )]
    NoWholeFrame(String),
    /// A text with a star, which stands for itself.
    #[error(
        "the selection has no samples; in frame, * is an ordinary character: use include in place of \
         frame for the pattern '{0}'"
    )]
    NoPartOfFrame(String),
    #[error("{}", one_process(*.0))]
    OneProcess(usize),
    #[error("more than {0} processes are selected; choose some with process=SERVICE, or a shorter time")]
    ManyProcesses(usize),
    /// The source cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn one_process(found: usize) -> &'static str {
    match found {
        0 => {
            "no process is selected; widen the time or remove a filter; new samples are in a store after a \
             second, in a lake after the collector's --lake-every (1m)"
        }
        _ => "several processes are selected; choose one with process=ID or process=PID",
    }
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        QueryError::Encoding(error.to_string())
    }
}
