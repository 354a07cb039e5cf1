//! Questions as they come in, from an address or a command line: a name, perhaps a second one, and parameters.

use serde::Serialize;
use serde_json::json;

use super::difference::{Difference, method_differences};
use super::processes::{accounts, processes};
use super::selection::{QueryError, Selection};
use super::timeline::{By, MOST_ROWS, threads, timeline};
use super::top::Order;
use super::tree::Tree;
use super::view::{differences, view};
use crate::quantity::total;
use crate::store::Store;

/// Nodes of a flame graph unless the question says otherwise, and at most.
const NODES: usize = 20_000;
const MOST_NODES: usize = 200_000;

/// Rows of a table unless the question says otherwise.
const ROWS: usize = 100;

/// A body and what it is.
pub struct Answer {
    /// The question, for statistics.
    pub question: &'static str,
    /// Media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub bytes: Vec<u8>,
}

/// Parameters of a question: a selection, a second one for differences, and the rest.
#[derive(Default)]
struct Parameters {
    selection: Selection,
    before: Selection,
    after: Selection,
    order: Order,
    by: By,
    limit: Option<usize>,
    max_nodes: Option<usize>,
    bucket_ns: u64,
    method: Option<String>,
}

impl Parameters {
    fn parse(pairs: &[(String, String)]) -> Result<Parameters, QueryError> {
        let mut parameters = Parameters::default();
        for (name, value) in pairs {
            parameters.take(name, value)?;
        }
        Ok(parameters)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        let is_known = if let Some(name) = name.strip_prefix("before.") {
            self.before.set(name, value)?
        } else if let Some(name) = name.strip_prefix("after.") {
            self.after.set(name, value)?
        } else {
            // A parameter without prefix holds for both sides of a difference.
            self.before.set(name, value)?;
            self.after.set(name, value)?;
            self.selection.set(name, value)? || self.take_other(name, value)?
        };
        if is_known { Ok(()) } else { Err(QueryError::UnknownParameter(name.chars().take(40).collect())) }
    }

    fn take_other(&mut self, name: &str, value: &str) -> Result<bool, QueryError> {
        let number = |parameter, wanted, most: usize| {
            let number = value.parse().ok().filter(|number| (1..=most).contains(number));
            number.map(Some).ok_or(QueryError::BadValue { parameter, wanted })
        };
        match name {
            "limit" => self.limit = number("limit", "a number from 1 to 10000", MOST_ROWS)?,
            "max_nodes" => self.max_nodes = number("max_nodes", "a number from 1 to 200000", MOST_NODES)?,
            "method" => self.method = Some(value.to_owned()),
            "bucket" => {
                let milliseconds: Option<u64> = value.parse().ok().filter(|ms| (1..=86_400_000).contains(ms));
                let wanted = "a width in milliseconds, 1 to 86400000";
                let bad = QueryError::BadValue { parameter: "bucket", wanted };
                self.bucket_ns = milliseconds.ok_or(bad)? * 1_000_000;
            }
            "order" => {
                self.order = match value {
                    "self" => Order::SelfTime,
                    "total" => Order::TotalTime,
                    _ => return Err(QueryError::BadValue { parameter: "order", wanted: "self or total" }),
                }
            }
            "by" => {
                self.by = match value {
                    "all" => By::All,
                    "process" => By::Process,
                    "thread" => By::Thread,
                    _ => {
                        return Err(QueryError::BadValue {
                            parameter: "by",
                            wanted: "all, process or thread",
                        });
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(ROWS)
    }

    /// Of lists that are whole unless they are very long.
    fn most_rows(&self) -> usize {
        self.limit.unwrap_or(MOST_ROWS)
    }

    fn max_nodes(&self) -> usize {
        self.max_nodes.unwrap_or(NODES)
    }

    fn method(&self) -> Result<&str, QueryError> {
        self.method.as_deref().ok_or(QueryError::Missing("method"))
    }
}

/// Answers `question`, the part of the address behind `/api/v1/`, with `name` if the address has one more part.
///
/// # Errors
/// If the question cannot be understood, or the store cannot be read.
pub fn answer(
    store: &Store,
    question: &str,
    name: Option<&str>,
    pairs: &[(String, String)],
    now_ns: u64,
) -> Result<Answer, QueryError> {
    let parameters = Parameters::parse(pairs)?;
    let selection = &parameters.selection;
    match (question, name) {
        ("processes", None) => {
            let (processes, left_out) = processes(store, selection, parameters.most_rows(), now_ns)?;
            json("processes", &json!({ "now_ns": now_ns, "processes": processes, "rows_left_out": left_out }))
        }
        ("statistics", None) => {
            let (accounts, left_out) = accounts(store, selection, parameters.most_rows(), now_ns)?;
            json("statistics", &json!({ "now_ns": now_ns, "processes": accounts, "rows_left_out": left_out }))
        }
        ("flamegraph", None) => {
            let (tree, span) = Tree::of(store, selection, now_ns)?;
            tree_answer("flamegraph", &tree, &span, parameters.max_nodes())
        }
        ("callers", None) => {
            let method = parameters.method()?;
            let (tree, span) = Tree::of(store, selection, now_ns)?;
            tree_answer("callers", &tree.callers(method), &span, parameters.max_nodes())
        }
        ("callees", None) => {
            let method = parameters.method()?;
            let (tree, span) = Tree::of(store, selection, now_ns)?;
            tree_answer("callees", &tree.callees(method), &span, parameters.max_nodes())
        }
        ("methods", None) => {
            let (tree, span) = Tree::of(store, selection, now_ns)?;
            let (methods, left_out) = tree.dearest_methods(parameters.order, parameters.limit());
            let (total_ns, samples) = (tree.total_ns(), tree.samples());
            json(
                "methods",
                &json!({
                    "span": span, "total_ns": total_ns, "samples": samples,
                    "methods": methods, "rows_left_out": left_out,
                }),
            )
        }
        ("threads", None) => {
            let (mut rows, span) = threads(store, selection, now_ns)?;
            let total_ns = total(rows.iter().map(|row| row.cpu_ns));
            let left_out = rows.len().saturating_sub(parameters.limit());
            rows.truncate(parameters.limit());
            json(
                "threads",
                &json!({ "span": span, "total_ns": total_ns, "threads": rows, "rows_left_out": left_out }),
            )
        }
        ("timeline", None) => {
            let (by, bucket_ns) = (parameters.by, parameters.bucket_ns);
            json("timeline", &timeline(store, selection, by, bucket_ns, parameters.limit(), now_ns)?)
        }
        ("diff", kind) => diff(store, &parameters, kind, now_ns),
        ("view", Some(name)) => {
            let text = view(name, store, selection, parameters.limit(), now_ns)?;
            Ok(Answer {
                question: "view",
                content_type: "text/plain; charset=utf-8",
                bytes: text.into_bytes(),
            })
        }
        _ => Err(QueryError::UnknownQuestion),
    }
}

fn diff(
    store: &Store,
    parameters: &Parameters,
    kind: Option<&str>,
    now_ns: u64,
) -> Result<Answer, QueryError> {
    let (before, before_span) = Tree::of(store, &parameters.before, now_ns)?;
    let (after, after_span) = Tree::of(store, &parameters.after, now_ns)?;
    let spans = json!({
        "before": before_span, "after": after_span,
        "before_total_ns": before.total_ns(), "after_total_ns": after.total_ns(),
    });
    match kind {
        None => {
            let difference = Difference::of(&before, &after);
            let (columns, left_out) = difference.columns(parameters.max_nodes());
            json("diff", &json!({ "spans": spans, "tree": columns, "nodes_left_out": left_out }))
        }
        Some("methods") => {
            let mut methods = method_differences(&before, &after);
            let left_out = methods.len().saturating_sub(parameters.limit());
            methods.truncate(parameters.limit());
            json("diff", &json!({ "spans": spans, "methods": methods, "rows_left_out": left_out }))
        }
        Some("text") => {
            let text = differences(&method_differences(&before, &after), parameters.limit());
            Ok(Answer {
                question: "diff",
                content_type: "text/plain; charset=utf-8",
                bytes: text.into_bytes(),
            })
        }
        Some(_) => Err(QueryError::UnknownQuestion),
    }
}

fn tree_answer(
    question: &'static str,
    tree: &Tree,
    span: &impl Serialize,
    max_nodes: usize,
) -> Result<Answer, QueryError> {
    let (columns, left_out) = tree.pruned(max_nodes);
    let (total_ns, samples) = (tree.total_ns(), tree.samples());
    let answer =
        json!({ "span": span, "total_ns": total_ns, "samples": samples, "nodes_left_out": left_out });
    // The columns are long, so they are written as they are rather than as a tree of values.
    let mut bytes = answer.to_string().into_bytes();
    bytes.pop();
    bytes.extend_from_slice(b",\"tree\":");
    serde_json::to_writer(&mut bytes, &columns).map_err(|_| QueryError::Encoding)?;
    bytes.extend_from_slice(b"}\n");
    Ok(Answer { question, content_type: "application/json", bytes })
}

fn json(question: &'static str, value: &impl Serialize) -> Result<Answer, QueryError> {
    let mut bytes = serde_json::to_vec(value).map_err(|_| QueryError::Encoding)?;
    bytes.push(b'\n');
    Ok(Answer { question, content_type: "application/json", bytes })
}
