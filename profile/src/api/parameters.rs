//! Parameters of questions.

use crate::export::Options;
use crate::export::call_tree::Shape;
use crate::export::collapsed::Unit;
use crate::export::parquet::Table;
use crate::query::error::QueryError;
use crate::query::flat::Order;
use crate::query::selection::Selection;
use crate::query::timeline::{By, MOST_ROWS};
use crate::query::tree::Naming;
use crate::text::format::Format;

/// Default and maximum number of nodes of a flame graph.
const NODES: usize = 20_000;
const MOST_NODES: usize = 200_000;

/// Maximum depth of a tree that is drawn as text.
const MOST_DEPTH: usize = 100_000;

/// Default number of rows of a table.
const ROWS: usize = 100;

/// Parameters of a question: a selection, a second one for differences, and the rest.
#[derive(Debug, Default)]
pub struct Parameters {
    pub selection: Selection,
    /// First side of a difference.
    pub before: Selection,
    /// Second side of a difference.
    pub after: Selection,
    pub order: Option<Order>,
    /// Meaning of the rows of a timeline.
    pub by: By,
    /// Width of a bucket in nanoseconds; 0 for an automatic one.
    pub bucket_ns: u64,
    pub export: Options,
    /// Unit of a row of `top` and `methods`: a method, line, class or package.
    pub naming: Naming,
    /// True if the text of `top` says how the samples were collected.
    pub verbose: bool,
    /// True if `top` and `view` answer with JSON.
    pub json: bool,
    /// Columns of the terminal for the text of `top`; 0 for any.
    pub width: usize,
    /// Bounds of a tree that is drawn as text.
    pub shape: Shape,
    limit: Option<usize>,
    max_nodes: Option<usize>,
    method: Option<String>,
    format: Option<Format>,
}

impl Parameters {
    /// Reads names and values.
    ///
    /// # Errors
    /// If a name is unknown or a value not valid.
    pub fn parse(pairs: &[(String, String)]) -> Result<Parameters, QueryError> {
        let mut parameters = Parameters::default();
        for (name, value) in pairs {
            parameters.set(name, value)?;
        }
        for selection in [&parameters.selection, &parameters.before, &parameters.after] {
            selection.check_time()?;
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        let is_known = if let Some(name) = name.strip_prefix("before.") {
            self.before.set(name, value)?
        } else if let Some(name) = name.strip_prefix("after.") {
            self.after.set(name, value)?
        } else {
            // A parameter without prefix applies to both sides of a difference.
            self.before.set(name, value)?;
            self.after.set(name, value)?;
            self.selection.set(name, value)? || self.set_other(name, value)?
        };
        if is_known { Ok(()) } else { Err(QueryError::UnknownParameter(name.chars().take(40).collect())) }
    }

    fn set_other(&mut self, name: &str, value: &str) -> Result<bool, QueryError> {
        let number = |parameter, expected, most: usize| {
            let number = value.parse().ok().filter(|number| (1..=most).contains(number));
            number.map(Some).ok_or(QueryError::BadValue { parameter, expected })
        };
        match name {
            "limit" => {
                self.limit = number("limit", "a number from 1 to 10000", MOST_ROWS)?;
                self.export.stacks = self.limit;
            }
            "depth" => {
                let depth = number("depth", "a number of frames from 1 to 100000", MOST_DEPTH)?;
                self.shape.depth = depth.unwrap_or_default();
            }
            "min_share" => {
                let percent: Option<f64> = value.strip_suffix('%').unwrap_or(value).trim_end().parse().ok();
                let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
                let expected = "a percentage from 0% to 100%, such as 0.5%";
                let bad = QueryError::BadValue { parameter: "min_share", expected };
                self.shape.least = percent.ok_or(bad)? / 100.0;
            }
            "max_nodes" => self.max_nodes = number("max_nodes", "a number from 1 to 200000", MOST_NODES)?,
            "method" => self.method = Some(value.to_owned()),
            "bucket" => {
                let milliseconds: Option<u64> = value.parse().ok().filter(|ms| (1..=86_400_000).contains(ms));
                let expected = "a width in milliseconds, 1 to 86400000";
                let bad = QueryError::BadValue { parameter: "bucket", expected };
                self.bucket_ns = milliseconds.ok_or(bad)? * 1_000_000;
            }
            "order" => {
                self.order = Some(choice(
                    "order",
                    value,
                    "self, samples or total",
                    &[("self", Order::SelfTime), ("samples", Order::Samples), ("total", Order::TotalTime)],
                )?);
            }
            "by" => {
                self.by = match value {
                    "all" => By::All,
                    "process" => By::Process,
                    "thread" => By::Thread,
                    _ => match value.strip_prefix("label:").filter(|key| !key.is_empty()) {
                        Some(key) => By::Label(key.to_owned()),
                        None => {
                            let expected = "all, process, thread, or label:KEY, such as label:service";
                            return Err(QueryError::BadValue { parameter: "by", expected });
                        }
                    },
                };
            }
            "format" => self.format = Some(Format::of_name(value)?),
            "unit" => {
                let units = [("samples", Unit::Samples), ("ns", Unit::Nanoseconds)];
                self.export.unit = choice("unit", value, "samples or ns", &units)?;
            }
            "rows" => {
                self.naming = choice("rows", value, "method, line, class, package or folded", &Naming::ALL)?;
            }
            "verbose" => self.verbose = choice("verbose", value, "true or false", &YES_NO)?,
            "json" => self.json = choice("json", value, "true or false", &YES_NO)?,
            "width" => {
                self.width = number("width", "a number from 1 to 1000", 1000)?.unwrap_or_default();
            }
            "threads" => self.export.threads = choice("threads", value, "true or false", &YES_NO)?,
            "lines" => self.export.lines = choice("lines", value, "true or false", &YES_NO)?,
            "cpu_time_samples" => {
                self.export.cpu_time_samples = choice("cpu_time_samples", value, "true or false", &YES_NO)?;
            }
            "table" => {
                let tables = [("samples", Table::Samples), ("stacks", Table::Stacks)];
                self.export.table = Some(choice("table", value, "samples or stacks", &tables)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the maximum number of rows of a table.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(ROWS)
    }

    /// Returns the maximum number of rows of a list that is complete by default.
    pub fn most_rows(&self) -> usize {
        self.limit.unwrap_or(MOST_ROWS)
    }

    /// Returns the maximum number of nodes of a tree.
    pub fn max_nodes(&self) -> usize {
        self.max_nodes.unwrap_or(NODES)
    }

    /// Returns the method.
    ///
    /// # Errors
    /// If it is missing.
    pub fn method(&self) -> Result<&str, QueryError> {
        self.method.as_deref().ok_or(QueryError::Missing("method"))
    }

    /// Returns the format of an export.
    ///
    /// # Errors
    /// If it is missing.
    pub fn format(&self) -> Result<Format, QueryError> {
        self.format.ok_or(QueryError::Missing("format"))
    }
}

const YES_NO: [(&str, bool); 2] = [("true", true), ("false", false)];

fn choice<T: Copy>(
    parameter: &'static str,
    value: &str,
    expected: &'static str,
    choices: &[(&str, T)],
) -> Result<T, QueryError> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|&(_, choice)| choice).ok_or(QueryError::BadValue { parameter, expected })
}
