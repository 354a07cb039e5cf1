//! Errors of questions.

use std::io;

use crate::source::ReadError;
use crate::text::format::UnknownFormat;

/// Maximum number of values of a repeated parameter.
pub const VALUES: usize = 64;

/// Names of all questions.
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

/// Names of all views.
pub const VIEWS: [&str; 5] =
    ["hot-methods", "cpu-time-hot-methods", "cpu-time-statistics", "threads", "processes"];

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No parameter has this name.
    #[error("unknown parameter {0:?}")]
    UnknownParameter(String),
    /// The value of this parameter is not valid.
    #[error("{parameter}: write {expected}")]
    BadValue {
        /// Name of the parameter.
        parameter: &'static str,
        /// The accepted form.
        expected: &'static str,
    },
    /// The selected time ends before it begins.
    #[error("the selected time is empty: from must be before to")]
    EmptyTime,
    /// This parameter has too many values.
    #[error("{0}: at most {VALUES} values")]
    TooMany(&'static str),
    /// This required parameter is missing.
    #[error("the parameter {0} is missing; add {0}=VALUE")]
    Missing(&'static str),
    /// There is no such question.
    #[error("no such question; the questions are {}", QUESTIONS.join(", "))]
    UnknownQuestion,
    /// The answer could not be written.
    #[error("the answer cannot be written: {0}")]
    Encoding(String),
    /// No sample of the selection is in a method with this name, or with a name that ends with it.
    #[error(
        "no sample is in a method {0:?}; `top` shows the names, and the end of one, such as HashMap.get, is enough"
    )]
    NoMethod(String),
    /// No view has this name.
    #[error("unknown view {0:?}; the views are {views}", views = VIEWS.join(", "))]
    UnknownView(String),
    /// No format has this name.
    #[error(transparent)]
    UnknownFormat(#[from] UnknownFormat),
    /// An export has no samples.
    #[error("the selection has no samples; widen the time or remove a filter")]
    NoSamples,
    /// The answer requires exactly one process; this many are selected, or more.
    #[error("{}", one_process(*.0))]
    OneProcess(usize),
    /// An export has more processes than this.
    #[error("more than {0} processes are selected; choose some with process=SERVICE, or a shorter time")]
    ManyProcesses(usize),
    /// The source cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn one_process(found: usize) -> &'static str {
    match found {
        0 => {
            "no process is selected; widen the time or remove a filter; a new store has its first samples after a second"
        }
        _ => "several processes are selected; choose one with process=ID or process=PID",
    }
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        QueryError::Encoding(error.to_string())
    }
}
