//! Hot methods and busy threads as text tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::query::error::QueryError;
use crate::query::flat::{Flat, MethodCost, Order, Top};
use crate::query::modes::Modes;
use crate::query::process::ProcessProfile;
use crate::query::roots::{ROOTS, is_root};
use crate::query::selection::Selection;
use crate::query::summary::Summary;
use crate::query::tree::Naming;
use crate::query::waits::{Wait, Waits};
use crate::session::mode::Mode;
use crate::session::warnings::PART;
use crate::source::Source;
use crate::source::Sum;
use crate::text::class_name::with_short_package;
use crate::text::quantity::{count, duration, percent_of, total};

/// Fewest samples for shares: with fewer, the error of a share of 10 % exceeds 3 points.
const FEW_SAMPLES: u64 = 100;

/// Explains a column of the table of threads.
const RUNNABLE: &str =
    "runnable: time for which a thread was ready to run but had no processor; it is no CPU time\n";

/// Characters before the name in a row of a table.
const TIME_COLUMNS: usize = 31;

#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// A table for each of these.
    pub orders: &'a [Order],
    /// Unit of a row: a method, line, class or package.
    pub naming: Naming,
    /// Most rows of a table.
    pub limit: usize,
    /// True to report how the samples were collected.
    pub verbose: bool,
    /// Columns of the terminal, to which packages are shortened; 0 for any.
    pub width: usize,
    /// True if the session continues, although its source is a recording.
    pub goes_on: bool,
    /// True to leave callers that have the same samples as one of their callees out of the text by total time.
    pub folds: bool,
}

impl Report<'_> {
    /// Returns a report of up to `limit` methods in each order.
    pub fn of_methods(limit: usize) -> Self {
        let orders = &[Order::SelfTime, Order::TotalTime];
        Report {
            orders,
            naming: Naming::Method,
            limit,
            verbose: false,
            width: 0,
            goes_on: false,
            folds: true,
        }
    }
}

/// The parts of a report.
struct Hot {
    /// The only process; `None` if there are several, which have no common account.
    profile: Option<ProcessProfile>,
    flat: Flat,
    modes: Modes,
    warnings: Vec<String>,
    /// Sentences that explain the figures although nothing is wrong.
    notes: Vec<String>,
    tables: Vec<Table>,
}

/// The rows of one order.
struct Table {
    order: Order,
    rows: Vec<MethodCost>,
    /// Callers that are left out because they have the same samples as a row.
    folded: usize,
}

impl Hot {
    fn of(
        source: &dyn Source,
        selection: &Selection,
        report: Report<'_>,
        now_ns: u64,
    ) -> Result<Self, QueryError> {
        let (flat, mut span) = Flat::named(source, selection, report.naming, now_ns)?;
        let profile = match ProcessProfile::of(source, selection, now_ns) {
            Ok(mut profile) => {
                if report.goes_on {
                    profile.set_going_on();
                }
                Some(profile)
            }
            Err(QueryError::OneProcess(2..)) => None,
            Err(error) => return Err(error),
        };
        if flat.samples() == 0 && selection.narrows_sessions() {
            return Err(selection.no_samples());
        }
        // The profile's warnings already say that the recording is cut.
        span.cut = span.cut.filter(|_| profile.is_none());
        let mut warnings = profile.as_ref().map_or_else(Vec::new, warnings);
        warnings.extend(span.warnings());
        warnings.extend(flat.warning());
        let mut notes =
            profile.as_ref().map_or_else(Vec::new, |profile| Summary::new(profile).notes(profile));
        if is_few(flat.samples()) {
            notes.push(format!(
                "{} samples are too few for shares, so the tables count them; profile longer, or with a shorter interval",
                count(flat.samples())
            ));
        }
        let tables = report.orders.iter().map(|&order| table(&flat, order, report)).collect();
        Ok(Hot { profile, flat, modes: span.modes, warnings, notes, tables })
    }
}

/// Returns the rows of an order, without the roots of threads if it is that of total time.
fn table(flat: &Flat, order: Order, report: Report<'_>) -> Table {
    let is_total = order == Order::TotalTime;
    let is_shown = |method: &MethodCost| !is_total || method.self_ns > 0 || !is_root(&method.name);
    if is_total && report.folds {
        let Top { rows, folded } = flat.top_folded(report.limit, is_shown);
        return Table { order, rows, folded };
    }
    let mut rows = flat.top_methods(order, report.limit.saturating_add(ROOTS.len())).0;
    rows.retain(is_shown);
    rows.truncate(report.limit);
    Table { order, rows, folded: 0 }
}

/// Returns the account of CPU time in one line, the warnings, and the tables of `report`.
///
/// The roots of threads are left out of the order by total time.
///
/// Several processes have no common account; the line then has only the sums of the selection.
///
/// # Errors
/// If the source cannot be read, or the selection has no samples.
pub fn report(
    source: &dyn Source,
    selection: &Selection,
    report: Report<'_>,
    now_ns: u64,
) -> Result<String, QueryError> {
    let hot = Hot::of(source, selection, report, now_ns)?;
    let whole = Sum { samples: hot.flat.samples(), cpu_ns: hot.flat.total_ns() };
    let time = hot.modes.time();
    let mut text = match &hot.profile {
        Some(profile) => account(profile, whole, report.verbose),
        None => format!("{} samples, {} {time}\n", count(whole.samples), duration(whole.cpu_ns)),
    };
    text.extend(hot.warnings.iter().map(|warning| format!("warning: {warning}\n")));
    text.extend(hot.notes.iter().map(|note| format!("note: {note}\n")));
    if let Some(profile) = hot.profile.as_ref().filter(|profile| profile.session().mode() == Mode::Wall) {
        push_waits(&mut text, &Waits::of(profile), report.limit);
    }
    for table in &hot.tables {
        push_table(&mut text, report, table, time, whole);
    }
    Ok(text)
}

/// Returns the same as one JSON object: the account of a single process, with `by`, `total_ns`, `warnings` and
/// `tables`.
///
/// # Errors
/// As [`report`].
pub fn report_json(
    source: &dyn Source,
    selection: &Selection,
    report: Report<'_>,
    now_ns: u64,
) -> Result<Value, QueryError> {
    let hot = Hot::of(source, selection, Report { folds: false, ..report }, now_ns)?;
    let tables = hot.tables.iter().map(|Table { order, rows, .. }| {
        let rows = rows.iter().map(|method| {
            json!({
                "name": method.name,
                "self_ns": method.self_ns,
                "self_samples": method.self_samples,
                "total_ns": method.total_ns,
                "total_samples": method.total_samples,
            })
        });
        (order.name().to_owned(), Value::Array(rows.collect()))
    });
    let tables = Value::Object(tables.collect());
    let mut object = object_of(hot.profile.as_ref())?;
    object.insert("modes".into(), hot.modes.names().into());
    object.insert("by".into(), report.naming.name().into());
    object.insert("selected_samples".into(), hot.flat.samples().into());
    object.insert("total_ns".into(), hot.flat.total_ns().into());
    object.insert("warnings".into(), hot.warnings.into());
    object.insert("notes".into(), hot.notes.into());
    object.insert("tables".into(), tables);
    if let Some(profile) = hot.profile.as_ref().filter(|profile| profile.session().mode() == Mode::Wall) {
        let waits = serde_json::to_value(Waits::of(profile));
        object.insert("states".into(), waits.map_err(|error| QueryError::Encoding(error.to_string()))?);
    }
    Ok(Value::Object(object))
}

/// Returns the account of a process as the members of an object.
fn object_of(profile: Option<&ProcessProfile>) -> Result<Map<String, Value>, QueryError> {
    let Some(profile) = profile else { return Ok(Map::new()) };
    match serde_json::to_value(Summary::new(profile)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(QueryError::Encoding(error.to_string())),
    }
}

/// Returns the warnings of a profile, without the one that the first line of a report states.
fn warnings(profile: &ProcessProfile) -> Vec<String> {
    let mut warnings = Summary::new(profile).warnings(profile);
    warnings.retain(|warning| warning != PART);
    warnings
}

/// Returns whether there are too few samples for shares.
fn is_few(samples: u64) -> bool {
    (1..FEW_SAMPLES).contains(&samples)
}

/// Returns the account of CPU time in one line, and with `verbose` how the samples were collected.
fn account(profile: &ProcessProfile, selected: Sum, verbose: bool) -> String {
    let summary = Summary::new(profile);
    let mut text = summary.sentence() + "\n";
    if profile.is_part() {
        let (samples, time) = (count(selected.samples), duration(selected.cpu_ns));
        text = format!("{samples} samples, {time} {} selected of {text}", summary.time);
    }
    let shares = match profile.session().mode() {
        Mode::Wall => Waits::of(profile).sentence(),
        Mode::CpuTime | Mode::Jvmti => summary.kinds.sentence(),
    };
    text.extend((!shares.is_empty()).then(|| shares + "\n"));
    text.extend(profile.session().mode().remark().map(|remark| format!("{remark}\n")));
    if verbose {
        text.extend(unloading(&summary).map(|line| line + "\n"));
        text.extend(collecting(&summary).into_iter().map(|line| line + "\n"));
    }
    text
}

/// A row of the table of threads.
#[derive(Serialize)]
struct ThreadLine {
    thread: String,
    kind: &'static str,
    id: i64,
    cpu_ns: u64,
    samples: u64,
    /// Time for which it waited for a processor in the whole session; absent if that was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_delay_ns: Option<u64>,
}

/// Returns the threads with the CPU time of their own samples, the busiest first. Carriers do not include their virtual
/// threads.
fn thread_lines(profile: &ProcessProfile, summary: &Summary) -> Vec<ThreadLine> {
    let own = profile.by_thread();
    let own_cell = |id: u32| own.get(&id).copied().unwrap_or_default();
    // A virtual thread with unknown carrier has its own account and is also among the virtual threads.
    let platform = summary.threads.iter().filter(|row| row.kind != "virtual").map(|row| {
        let cell = own_cell(row.id);
        let (thread, id) = (row.name.clone(), i64::from(row.tid));
        let (cpu_ns, samples) = (cell.cpu_ns, cell.samples);
        ThreadLine { thread, kind: row.kind, id, cpu_ns, samples, run_delay_ns: row.run_delay_ns }
    });
    let virtual_threads = summary.virtual_threads.iter().map(|row| {
        let mut sum = Sum::default();
        row.ids.iter().for_each(|&id| sum.add(own_cell(id)));
        let thread = format!("{} on {}", row.name, row.carriers.join(", "));
        let (cpu_ns, samples) = (sum.cpu_ns, sum.samples);
        // The kernel reports delays of carriers only.
        ThreadLine { thread, kind: "virtual", id: row.java_id, cpu_ns, samples, run_delay_ns: None }
    });
    let mut rows: Vec<ThreadLine> = platform.chain(virtual_threads).filter(|row| row.cpu_ns > 0).collect();
    rows.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then_with(|| (a.id, &a.thread).cmp(&(b.id, &b.thread))));
    rows
}

/// Returns the account of CPU time in one line, and up to `limit` threads, with the time for which they waited for a
/// processor in the whole session. `selection` is that of the profile.
///
/// # Errors
/// If the profile is a part of a session that has no samples.
pub fn threads(profile: &ProcessProfile, selection: &Selection, limit: usize) -> Result<String, QueryError> {
    let summary = Summary::new(profile);
    let rows = thread_lines(profile, &summary);
    let whole = profile.total();
    if rows.is_empty() && profile.is_part() {
        return Err(selection.no_samples());
    }
    let mut text = account(profile, whole, false);
    let few = is_few(whole.samples);
    text.push_str(RUNNABLE);
    let column = if profile.session().mode() == Mode::Wall { "wall time" } else { "CPU time" };
    let title = if few { "samples" } else { "share" };
    // The delay of threads that lived for less than a second was not read.
    let unknown = if summary.waiting.run_delay_ns.is_some() { "" } else { "not reported" };
    // Writing to a String cannot fail.
    let _ =
        writeln!(text, "\n{title:>8} {:>11} {:>12}  {:<9} {:>8}  thread", column, "runnable", "kind", "id");
    for ThreadLine { thread, kind, id, cpu_ns, samples, run_delay_ns } in rows.into_iter().take(limit) {
        let part = if few { count(samples) } else { percent_of(cpu_ns, whole.cpu_ns) };
        let waited = match run_delay_ns {
            Some(ns) => duration(ns),
            None if kind == "virtual" => String::new(),
            None => unknown.to_owned(),
        };
        let time = duration(cpu_ns);
        let _ = writeln!(text, "{part:>8} {time:>11} {waited:>12}  {kind:<9} {id:>8}  {thread}");
    }
    Ok(text)
}

/// Returns the same as one JSON object like that of [`report_json`].
///
/// # Errors
/// As [`threads`].
pub fn threads_json(
    profile: &ProcessProfile,
    selection: &Selection,
    limit: usize,
) -> Result<Value, QueryError> {
    let mut rows = thread_lines(profile, &Summary::new(profile));
    if rows.is_empty() && profile.is_part() {
        return Err(selection.no_samples());
    }
    rows.truncate(limit);
    let mut object = object_of(Some(profile))?;
    object.insert("by".into(), "thread".into());
    object.insert("selected_samples".into(), profile.total().samples.into());
    object.insert("total_ns".into(), profile.total().cpu_ns.into());
    object.insert("warnings".into(), warnings(profile).into());
    object.insert("tables".into(), json!({ "threads": rows }));
    Ok(Value::Object(object))
}

/// Returns the effects of class unloading on names and pauses, if there are any.
fn unloading(summary: &Summary) -> Option<String> {
    let unloading = &summary.unloading;
    let pauses = &unloading.pause_added_ns;
    (unloading.samples > 0 || pauses.count > 0).then(|| {
        format!(
            "{} samples with [unloaded] frames; {} garbage collection pauses prolonged by {} at most, {} in the median",
            count(unloading.samples),
            count(pauses.count),
            micros(pauses.max),
            micros(pauses.p50)
        )
    })
}

/// Returns the figures of sampling: rate, requests, queues, timers.
fn collecting(summary: &Summary) -> Vec<String> {
    if !summary.accounted {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if summary.sampling.period_ns > 0 {
        lines.push(format!("sampling  {}", summary.sampling.sentence()));
    }
    let failed = total(summary.failed.values().copied());
    if summary.resolved > 0 || failed > 0 {
        let whole = format!("{} requests, {} resolved", count(summary.requests), count(summary.resolved));
        lines.push(format!("requests  {whole}{}", by_cause(", failed", &summary.failed, |&n| count(n))));
    }
    let queue = &summary.queue;
    let sizes = format!("{} KiB, largest {} entries", queue.capacity_bytes.div_ceil(1024), queue.largest);
    let changes = format!("grown {} times, shrunk {}", count(queue.grown), count(queue.shrunk));
    let lost = match summary.cpu_ns.missed_ns() {
        0 => "nothing lost".to_owned(),
        _ => format!("lost{}", by_cause("", &summary.cpu_ns.missed(), |&ns| duration(ns))),
    };
    let drains = format!("drained in {} p50, {} p99", micros(queue.drain_ns.p50), micros(queue.drain_ns.p99));
    lines.push(format!("queues    {sizes}, {changes}; {drains}; {lost}"));
    let timers = &summary.timers;
    let mut coverage = format!("{} of {} threads", count(timers.with_timer), count(timers.threads));
    if timers.turns > 0 {
        let _ = write!(coverage, ", passed on {} times", count(timers.turns));
    }
    if timers.without_slot > 0 {
        let _ = write!(coverage, "; {} more threads not profiled", count(timers.without_slot));
    }
    // An ended JVM has no timers, so the line would mislead.
    if timers.with_timer > 0 || timers.turns > 0 || timers.without_slot > 0 {
        lines.push(format!("timers    {coverage}"));
    }
    lines.push(format!("waiting   {}", summary.waiting.sentence()));
    lines
}

/// Returns `title: 5 of one cause, 3 of another` without zero amounts, or an empty text if all are zero.
fn by_cause(title: &str, causes: &BTreeMap<String, u64>, show: impl Fn(&u64) -> String) -> String {
    let parts = causes.iter().filter(|(_, amount)| **amount > 0);
    let parts: Vec<String> = parts.map(|(cause, amount)| format!("{} {cause}", show(amount))).collect();
    if parts.is_empty() { String::new() } else { format!("{title}: {}", parts.join(", ")) }
}

fn micros(ns: u64) -> String {
    format!("{} us", ns.div_ceil(1_000))
}

/// Appends the methods of the program in which threads waited.
fn push_waits(text: &mut String, waits: &Waits, limit: usize) {
    if waits.waits.is_empty() {
        return;
    }
    text.push_str("\nWaits by method of the program\n");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:>8} {:>11}  {:<8} method", "share", "wall time", "state");
    for Wait { state, method, ns } in waits.waits.iter().take(limit) {
        let share = percent_of(*ns, waits.total_ns());
        let _ = writeln!(text, "{share:>8} {:>11}  {:<8} {method}", duration(*ns), state.name());
    }
}

fn push_table(text: &mut String, report: Report<'_>, table: &Table, time: &str, whole: Sum) {
    if table.rows.is_empty() {
        return;
    }
    let is_total = table.order == Order::TotalTime;
    let (first, second) = if is_total { ("total", "self") } else { ("self", "total") };
    let few = is_few(whole.samples);
    let unit = if few { ", in samples" } else { "" };
    let naming = report.naming;
    // Classes and packages have no method at their end.
    let kept = if matches!(naming, Naming::Class | Naming::Package) { 1 } else { 2 };
    let width = if report.width == 0 { usize::MAX } else { report.width.saturating_sub(TIME_COLUMNS) };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\nHot {} by {first} {time}{unit}", naming.plural());
    let _ = writeln!(text, "{first:>8} {second:>8} {:>11}  {}", format!("{first} time"), naming.name());
    for method in &table.rows {
        let part = |samples, ns| if few { count(samples) } else { percent_of(ns, whole.cpu_ns) };
        let own = part(method.self_samples, method.self_ns);
        let total = part(method.total_samples, method.total_ns);
        let (first, second, time_ns) =
            if is_total { (total, own, method.total_ns) } else { (own, total, method.self_ns) };
        if time_ns > 0 {
            let name = with_short_package(&method.name, kept, width);
            let _ = writeln!(text, "{first:>8} {second:>8} {:>11}  {name}", duration(time_ns));
        }
    }
    if table.folded > 0 {
        let _ = writeln!(
            text,
            "{:>29}  ({} more with the same samples as one of these)",
            "",
            count(table.folded as u64)
        );
    }
}
