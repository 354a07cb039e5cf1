//! Answers questions of HTTP requests and of the command line: a name, for some a second name, and parameters.

use serde::Serialize;
use serde_json::{Value, json};

use super::difference::{Difference, MethodDifference, Methods, method_differences};
use super::error::QueryError;
use super::flat::Flat;
use super::lines::Lines;
use super::modes::Modes;
use super::parameters::Parameters;
use super::processes::{accounts, processes};
use super::selection::Span;
use super::timeline::{threads, timeline};
use super::tree::{LeftOut, Naming, Tree};
use super::view::{differences, view};
use crate::export::{self, table};
use crate::query::process::ProcessProfile;
use crate::query::summary::Summary;
use crate::source::Source;
use crate::text::quantity::total;

/// The answer to a question.
pub struct Answer {
    /// Name of the question, for metrics.
    pub question: &'static str,
    /// Media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub bytes: Vec<u8>,
}

/// Answers the question of `path`, the part after `/api/v1/`, such as `methods` or `view/threads`.
///
/// # Errors
/// If the question or a parameter is not valid, or the source cannot be read.
pub fn answer(
    source: &dyn Source,
    path: &str,
    pairs: &[(String, String)],
    now_ns: u64,
) -> Result<Answer, QueryError> {
    let parameters = Parameters::parse(pairs)?;
    loop {
        let gaps = source.gaps().len();
        match ask(source, path, &parameters, now_ns) {
            // A damaged part was met, which the source leaves out from then on.
            Err(QueryError::Read(_)) if source.gaps().len() > gaps => {}
            result => return result,
        }
    }
}

fn ask(source: &dyn Source, path: &str, parameters: &Parameters, now_ns: u64) -> Result<Answer, QueryError> {
    let selection = &parameters.selection;
    match path.split_once('/').map_or((path, None), |(question, name)| (question, Some(name))) {
        ("processes", None) => {
            let (processes, left_out) = processes(source, selection, parameters.most_rows(), now_ns)?;
            json("processes", &json!({ "now_ns": now_ns, "processes": processes, "rows_left_out": left_out }))
        }
        ("statistics", None) => {
            let (accounts, left_out) = accounts(source, selection, parameters.most_rows(), now_ns)?;
            json("statistics", &json!({ "now_ns": now_ns, "processes": accounts, "rows_left_out": left_out }))
        }
        ("flamegraph", None) => {
            let (tree, span) = Tree::of(source, selection, now_ns)?;
            tree_answer("flamegraph", &tree, &span, parameters.max_nodes())
        }
        ("callers", None) => {
            let method = parameters.method()?;
            let (tree, span) = Tree::callers(source, selection, method, now_ns)?;
            tree_answer("callers", &tree, &span, parameters.max_nodes())
        }
        ("callees", None) => {
            let method = parameters.method()?;
            let (tree, span) = Tree::callees(source, selection, method, now_ns)?;
            tree_answer("callees", &tree, &span, parameters.max_nodes())
        }
        ("methods", None) => {
            let (flat, span) = Flat::named(source, selection, parameters.naming, now_ns)?;
            let (methods, left_out) =
                flat.top_methods(parameters.order.unwrap_or_default(), parameters.limit());
            let (total_ns, samples) = (flat.total_ns(), flat.samples());
            let modes = Modes::of(source, selection, now_ns)?;
            json(
                "methods",
                &json!({
                    "span": span, "total_ns": total_ns, "samples": samples, "modes": modes.names(),
                    "methods": methods, "rows_left_out": left_out,
                    "warnings": flat.warning().as_slice(),
                }),
            )
        }
        ("lines", None) => {
            let lines = Lines::of(source, selection, now_ns)?;
            let method = lines.method(source, parameters.method().ok())?;
            let (span, total_ns) = (lines.span(), lines.total_ns());
            json("lines", &json!({ "span": span, "total_ns": total_ns, "method": method }))
        }
        ("lines", Some("text")) => {
            let lines = Lines::of(source, selection, now_ns)?;
            let method = lines.method(source, parameters.method().ok())?;
            match method.lines.is_empty() {
                true => Err(QueryError::NoMethod(method.method)),
                false => text("lines", lines.text(&method)),
            }
        }
        ("threads", None) => {
            let (mut rows, span) = threads(source, selection, now_ns)?;
            let total_ns = total(rows.iter().map(|row| row.cpu_ns));
            let left_out = rows.len().saturating_sub(parameters.limit());
            rows.truncate(parameters.limit());
            json(
                "threads",
                &json!({ "span": span, "total_ns": total_ns, "threads": rows, "rows_left_out": left_out }),
            )
        }
        ("timeline", None) => {
            let (by, bucket_ns) = (&parameters.by, parameters.bucket_ns);
            json("timeline", &timeline(source, selection, by, bucket_ns, parameters.limit(), now_ns)?)
        }
        ("summary", None) => {
            let profile = ProcessProfile::of(source, selection, now_ns)?;
            json("summary", &Summary::new(&profile))
        }
        ("top", None) => {
            let one = parameters.order.map(|order| [order]);
            let mut report = table::Report::of_methods(parameters.limit());
            (report.naming, report.verbose) = (parameters.naming, parameters.verbose);
            report.orders = one.as_ref().map_or(report.orders, |one| one);
            report.width = parameters.width;
            match parameters.json {
                true => json("top", &table::report_json(source, selection, report, now_ns)?),
                false => text("top", table::report(source, selection, report, now_ns)?),
            }
        }
        ("top", Some("threads")) => {
            let profile = ProcessProfile::of(source, selection, now_ns)?;
            match parameters.json {
                true => json("top", &table::threads_json(&profile, parameters.limit())?),
                false => text("top", table::threads(&profile, parameters.limit())?),
            }
        }
        ("export", None) => {
            let format = parameters.format()?;
            let mut bytes = Vec::new();
            export::write(source, selection, format, parameters.export, now_ns, &mut bytes)?;
            Ok(Answer { question: "export", content_type: format.media_type(), bytes })
        }
        ("diff", kind) => diff(source, parameters, kind, now_ns),
        ("view", Some(name)) => text("view", view(name, source, selection, parameters.limit(), now_ns)?),
        _ => Err(QueryError::UnknownQuestion),
    }
}

fn diff(
    source: &dyn Source,
    parameters: &Parameters,
    kind: Option<&str>,
    now_ns: u64,
) -> Result<Answer, QueryError> {
    match kind {
        None => {
            let (tree, spans) = Tree::of_both(source, &parameters.before, &parameters.after, now_ns)?;
            let difference = Difference::of(&tree);
            let spans = spans_json(spans, difference.totals_ns());
            let (columns, left_out) = difference.columns(parameters.max_nodes());
            let LeftOut { nodes, cpu_ns } = left_out;
            json(
                "diff",
                &json!({ "spans": spans, "tree": columns, "nodes_left_out": nodes, "left_out_ns": cpu_ns }),
            )
        }
        Some("methods") => {
            let (mut methods, spans) = methods_of_both(source, parameters, now_ns)?;
            let left_out = methods.len().saturating_sub(parameters.limit());
            methods.truncate(parameters.limit());
            json("diff", &json!({ "spans": spans, "methods": methods, "rows_left_out": left_out }))
        }
        Some("text") => {
            let (methods, _) = methods_of_both(source, parameters, now_ns)?;
            text("diff", differences(&methods, parameters.limit()))
        }
        Some(_) => Err(QueryError::UnknownQuestion),
    }
}

/// Returns the methods of both sides, and their spans as JSON.
fn methods_of_both(
    source: &dyn Source,
    parameters: &Parameters,
    now_ns: u64,
) -> Result<(Vec<MethodDifference>, Value), QueryError> {
    let (before, before_span) = Flat::named(source, &parameters.before, Naming::Folded, now_ns)?;
    let (after, after_span) = Flat::named(source, &parameters.after, Naming::Folded, now_ns)?;
    let spans = spans_json([before_span, after_span], [before.total_ns(), after.total_ns()]);
    Ok((method_differences(&Methods::of(&before), &Methods::of(&after)), spans))
}

fn spans_json([before, after]: [Span; 2], [before_ns, after_ns]: [u64; 2]) -> Value {
    json!({ "before": before, "after": after, "before_total_ns": before_ns, "after_total_ns": after_ns })
}

fn tree_answer(
    question: &'static str,
    tree: &Tree,
    span: &impl Serialize,
    max_nodes: usize,
) -> Result<Answer, QueryError> {
    let (columns, LeftOut { nodes, cpu_ns }) = tree.pruned(max_nodes);
    let answer = json!({
        "span": span, "total_ns": tree.total_ns(), "samples": tree.samples(),
        "nodes_left_out": nodes, "left_out_ns": cpu_ns,
    });
    // The columns are long, so they are serialized directly, without a tree of JSON values.
    let mut bytes = answer.to_string().into_bytes();
    bytes.pop();
    bytes.extend_from_slice(b",\"tree\":");
    serde_json::to_writer(&mut bytes, &columns).map_err(|error| QueryError::Encoding(error.to_string()))?;
    bytes.extend_from_slice(b"}\n");
    Ok(Answer { question, content_type: "application/json", bytes })
}

fn text(question: &'static str, text: String) -> Result<Answer, QueryError> {
    Ok(Answer { question, content_type: "text/plain; charset=utf-8", bytes: text.into_bytes() })
}

fn json(question: &'static str, value: &impl Serialize) -> Result<Answer, QueryError> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| QueryError::Encoding(error.to_string()))?;
    bytes.push(b'\n');
    Ok(Answer { question, content_type: "application/json", bytes })
}
