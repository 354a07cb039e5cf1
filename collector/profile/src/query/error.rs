//! Errors of questions.

use std::{fmt, io};

use crate::export::format::UnknownFormat;
use crate::source::ReadError;

/// Maximum number of values of a repeated parameter.
pub const VALUES: usize = 64;

/// Names of all questions.
pub const QUESTIONS: [&str; 13] = [
    "processes",
    "statistics",
    "summary",
    "flamegraph",
    "methods",
    "callers",
    "callees",
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// No parameter has this name.
    UnknownParameter(String),
    /// The value of this parameter is not valid.
    BadValue {
        /// Name of the parameter.
        parameter: &'static str,
        /// What to write instead.
        expected: &'static str,
    },
    /// This parameter has too many values.
    TooMany(&'static str),
    /// This required parameter is missing.
    Missing(&'static str),
    /// There is no such question.
    UnknownQuestion,
    /// The answer could not be written.
    Encoding(String),
    /// No view has this name.
    UnknownView(String),
    /// No format has this name.
    UnknownFormat(UnknownFormat),
    /// An export has no samples.
    NoSamples,
    /// The answer requires exactly one process; this many are selected, or more.
    OneProcess(usize),
    /// The source cannot be read.
    Read(ReadError),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::UnknownParameter(name) => write!(f, "unknown parameter {name:?}"),
            QueryError::BadValue { parameter, expected } => write!(f, "{parameter}: write {expected}"),
            QueryError::TooMany(parameter) => write!(f, "{parameter}: at most {VALUES} values"),
            QueryError::Missing(parameter) => {
                write!(f, "the parameter {parameter} is missing; add {parameter}=VALUE")
            }
            QueryError::UnknownQuestion => {
                write!(f, "no such question; the questions are {}", QUESTIONS.join(", "))
            }
            QueryError::Encoding(error) => write!(f, "the answer cannot be written: {error}"),
            QueryError::UnknownView(name) => {
                write!(f, "unknown view {name:?}; the views are {}", VIEWS.join(", "))
            }
            QueryError::UnknownFormat(error) => error.fmt(f),
            QueryError::NoSamples => {
                f.write_str("the selection has no samples; widen the time or remove a filter")
            }
            QueryError::OneProcess(0) => {
                f.write_str("no process is selected; widen the time or remove a filter")
            }
            QueryError::OneProcess(_) => {
                f.write_str("several processes are selected; choose one with process=ID or process=PID")
            }
            QueryError::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for QueryError {}

impl From<ReadError> for QueryError {
    fn from(error: ReadError) -> Self {
        QueryError::Read(error)
    }
}

impl From<UnknownFormat> for QueryError {
    fn from(error: UnknownFormat) -> Self {
        QueryError::UnknownFormat(error)
    }
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        QueryError::Encoding(error.to_string())
    }
}
