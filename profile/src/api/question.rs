//! Answers questions of HTTP requests and of the command line: a name, for some a second name, and parameters.

use serde::Serialize;
use serde_json::{Value, json};

use super::parameters::Parameters;
use crate::export::{self, call_tree, overview, table};
use crate::query::difference::{Difference, MethodDifference, Methods, method_differences};
use crate::query::embedded::Chart;
use crate::query::error::QueryError;
use crate::query::flat::Flat;
use crate::query::lines::Lines;
use crate::query::modes::Modes;
use crate::query::part::part_of;
use crate::query::process::ProcessProfile;
use crate::query::processes::{accounts, processes};
use crate::query::span::Span;
use crate::query::summary::Summary;
use crate::query::timeline::{threads, timeline};
use crate::query::tree::{LeftOut, Naming, Tree};
use crate::query::view::{differences, view};
use crate::source::{ReadError, SharedSource, Source};
use crate::text::quantity::total;

pub struct Answer {
    /// Name of the question, for metrics.
    pub question: &'static str,
    /// Media type of the body.
    pub content_type: &'static str,
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
    let part = read_part(source, path, &parameters, now_ns)?;
    let source = part.as_deref().map_or(source, |part| part);
    loop {
        let gaps = source.gaps().len();
        match ask(source, path, &parameters, now_ns) {
            // A damaged part was met, which the source leaves out from then on.
            Err(QueryError::Read(_)) if source.gaps().len() > gaps => {}
            result => return result,
        }
    }
}

/// Reads what the question is about, if the source is too large to be read as a whole.
fn read_part(
    source: &dyn Source,
    path: &str,
    parameters: &Parameters,
    now_ns: u64,
) -> Result<Option<SharedSource>, ReadError> {
    let is_difference = path.split('/').next() == Some("diff");
    let both = [&parameters.before, &parameters.after];
    let selections = if is_difference { &both[..] } else { &[&parameters.selection] };
    part_of(source, selections, !matches!(path, "processes" | "statistics"), now_ns)
}

fn ask(source: &dyn Source, path: &str, parameters: &Parameters, now_ns: u64) -> Result<Answer, QueryError> {
    let selection = &parameters.selection;
    match path.split_once('/').map_or((path, None), |(question, name)| (question, Some(name))) {
        ("processes", None) => {
            let (processes, left_out) = processes(source, selection, parameters.most_rows(), now_ns)?;
            let mut span = selection.span_with_modes(source, now_ns)?;
            let of_sums = std::mem::take(&mut span.modes).warning();
            let warnings: Vec<String> = span.warnings().collect();
            json(
                "processes",
                &json!({
                    "now_ns": now_ns, "processes": processes, "rows_left_out": left_out, "warnings": warnings,
                    "warning_of_sums": of_sums,
                }),
            )
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
            let (tree, span) = Tree::callers(source, selection, parameters.method()?, now_ns)?;
            tree_answer("callers", &tree, &span, parameters.max_nodes())
        }
        ("callers", Some("text")) => callers_text(source, parameters, now_ns),
        ("tree", None) => {
            let (tree, span) = Tree::plain(source, selection, now_ns)?;
            if tree.samples() == 0 {
                return Err(selection.no_samples());
            }
            let tree = call_tree::tree(&tree, span.modes.time(), parameters.shape);
            text("tree", span.warning_lines() + &tree)
        }
        ("callees", None) => {
            let (tree, span) = Tree::callees(source, selection, parameters.method()?, now_ns)?;
            tree_answer("callees", &tree, &span, parameters.max_nodes())
        }
        ("methods", None) => methods(source, parameters, now_ns),
        ("lines", kind @ (None | Some("text"))) => lines(source, parameters, kind.is_some(), now_ns),
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
        ("chart", None) => json("chart", &Chart::of(source, selection, now_ns)?),
        ("summary", None) => json("summary", &Summary::new(&ProcessProfile::of(source, selection, now_ns)?)),
        ("summary", Some("text")) => text("summary", overview::text(source, selection, now_ns)?),
        ("top", None) => top(source, parameters, now_ns),
        ("top", Some("threads")) => {
            let profile = ProcessProfile::of(source, selection, now_ns)?;
            match parameters.json {
                true => json("top", &table::threads_json(&profile, selection, parameters.limit())?),
                false => text("top", table::threads(&profile, selection, parameters.limit())?),
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

fn callers_text(source: &dyn Source, parameters: &Parameters, now_ns: u64) -> Result<Answer, QueryError> {
    let (method, selection) = (parameters.method()?, &parameters.selection);
    let (flat, _) = Flat::of(source, selection, now_ns)?;
    let method = flat.find(method)?;
    let (tree, span) = Tree::plain_callers(source, selection, &method.name, now_ns)?;
    let time = span.modes.time();
    let callers = call_tree::callers(&method, flat.total_ns(), &tree, time, parameters.shape);
    text("callers", span.warning_lines() + &callers)
}

fn methods(source: &dyn Source, parameters: &Parameters, now_ns: u64) -> Result<Answer, QueryError> {
    let selection = &parameters.selection;
    let (flat, span) = Flat::named(source, selection, parameters.naming, now_ns)?;
    let (methods, left_out) = flat.top_methods(parameters.order.unwrap_or_default(), parameters.limit());
    let warnings: Vec<String> = span.warnings().chain(flat.warning()).collect();
    json(
        "methods",
        &json!({
            "span": span, "total_ns": flat.total_ns(), "samples": flat.samples(), "modes": span.modes,
            "methods": methods, "rows_left_out": left_out, "warnings": warnings,
        }),
    )
}

fn lines(
    source: &dyn Source,
    parameters: &Parameters,
    is_text: bool,
    now_ns: u64,
) -> Result<Answer, QueryError> {
    let lines = Lines::of(source, &parameters.selection, now_ns)?;
    let method = lines.method(source, parameters.method().ok())?;
    if is_text && method.lines.is_empty() {
        let unknown = QueryError::NoMethod(method.method);
        return Err(if lines.total_ns() == 0 { parameters.selection.no_samples() } else { unknown });
    }
    let (span, total_ns) = (lines.span(), lines.total_ns());
    match is_text {
        true => text("lines", span.warning_lines() + &lines.text(&method)),
        false => json("lines", &json!({ "span": span, "total_ns": total_ns, "method": method })),
    }
}

fn top(source: &dyn Source, parameters: &Parameters, now_ns: u64) -> Result<Answer, QueryError> {
    let one = parameters.order.map(|order| [order]);
    let usual = table::Report::of_methods(parameters.limit());
    let report = table::Report {
        naming: parameters.naming,
        verbose: parameters.verbose,
        orders: one.as_ref().map_or(usual.orders, |one| one),
        width: parameters.width,
        ..usual
    };
    match parameters.json {
        true => json("top", &table::report_json(source, &parameters.selection, report, now_ns)?),
        false => text("top", table::report(source, &parameters.selection, report, now_ns)?),
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
            check_modes(&spans)?;
            let difference = Difference::of(&tree);
            let spans = spans_json(&spans, difference.totals_ns());
            let (columns, left_out) = difference.columns(parameters.max_nodes());
            let LeftOut { nodes, cpu_ns } = left_out;
            json(
                "diff",
                &json!({ "spans": spans, "tree": columns, "nodes_left_out": nodes, "left_out_ns": cpu_ns }),
            )
        }
        Some("methods") => {
            let Compared { mut methods, spans, totals_ns } = methods_of_both(source, parameters, now_ns)?;
            let spans = spans_json(&spans, totals_ns);
            let left_out = methods.len().saturating_sub(parameters.limit());
            methods.truncate(parameters.limit());
            json("diff", &json!({ "spans": spans, "methods": methods, "rows_left_out": left_out }))
        }
        Some("text") => {
            let Compared { methods, spans: [before, after], .. } =
                methods_of_both(source, parameters, now_ns)?;
            let mut warnings: Vec<String> = before.warnings().collect();
            warnings
                .extend(after.warnings().filter(|warning| !before.warnings().any(|same| same == *warning)));
            let lines: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
            text("diff", lines + &differences(&methods, parameters.limit()))
        }
        Some(_) => Err(QueryError::UnknownQuestion),
    }
}

/// The methods of both sides of a comparison.
struct Compared {
    methods: Vec<MethodDifference>,
    spans: [Span; 2],
    totals_ns: [u64; 2],
}

/// Returns the methods of both sides.
fn methods_of_both(
    source: &dyn Source,
    parameters: &Parameters,
    now_ns: u64,
) -> Result<Compared, QueryError> {
    let (before, before_span) = Flat::named(source, &parameters.before, Naming::Folded, now_ns)?;
    let (after, after_span) = Flat::named(source, &parameters.after, Naming::Folded, now_ns)?;
    let spans = [before_span, after_span];
    check_modes(&spans)?;
    let methods = method_differences(&Methods::of(&before), &Methods::of(&after));
    Ok(Compared { methods, spans, totals_ns: [before.total_ns(), after.total_ns()] })
}

fn check_modes([before, after]: &[Span; 2]) -> Result<(), QueryError> {
    Modes::check(&before.modes.names(), &after.modes.names())
}

fn spans_json([before, after]: &[Span; 2], [before_ns, after_ns]: [u64; 2]) -> Value {
    json!({ "before": before, "after": after, "before_total_ns": before_ns, "after_total_ns": after_ns })
}

fn tree_answer(
    question: &'static str,
    tree: &Tree,
    span: &Span,
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
