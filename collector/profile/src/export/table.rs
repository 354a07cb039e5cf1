//! Hot methods and busy threads as text tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::process::ProcessProfile;
use crate::quantity::{count, duration, percent, share, total};
use crate::query::error::QueryError;
use crate::query::selection::Selection;
use crate::query::threads::ThreadRow;
use crate::query::tree::{MethodCost, Naming, Order, Tree};
use crate::source::Source;
use crate::summary::Summary;

/// Functions below the first one of every thread, or of the program: no reader looks for them among the most expensive.
const ROOTS: [&str; 20] = [
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "start_thread",
    "_start",
    "__libc_start_main",
    "thread_native_entry",
    "java_start",
    "Thread::call_run",
    "JavaThread::run",
    "JavaThread::thread_main_inner",
    "thread_entry",
    "ThreadJavaMain",
    "JavaMain",
    "jni_CallStaticVoidMethod",
    "jni_invoke_static",
    "JavaCalls::call",
    "JavaCalls::call_virtual",
    "JavaCalls::call_helper",
];

/// Fewest samples whose shares mean something: with fewer, the error of a share of 10 % is above 3 points.
const FEW_SAMPLES: u64 = 100;

/// Returns whether the method is a root of threads, with or without parameters in its name.
fn is_root(method: &MethodCost) -> bool {
    let name = method.name.split('(').next().unwrap_or_default();
    method.self_ns == 0 && ROOTS.contains(&name)
}

/// Options of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// A table for each of these.
    pub orders: &'a [Order],
    /// Unit of a row: a method, line, class or package.
    pub naming: Naming,
    /// Most rows of a table.
    pub limit: usize,
    /// True if it says how the samples were collected.
    pub verbose: bool,
}

impl Report<'_> {
    /// Returns a report of up to `limit` methods in each order.
    pub fn of_methods(limit: usize) -> Self {
        Report { orders: &[Order::SelfTime, Order::TotalTime], naming: Naming::Method, limit, verbose: false }
    }
}

/// Returns the account of CPU time in one line, the warnings, and the tables of `report`.
///
/// The roots of threads are left out of the order by total time.
///
/// Several processes have no common account; the line then has only the sums of the selection.
///
/// # Errors
/// If the source cannot be read.
pub fn report(
    source: &dyn Source,
    selection: &Selection,
    report: Report<'_>,
    now_ns: u64,
) -> Result<String, QueryError> {
    let Report { orders, naming, limit, verbose } = report;
    let (tree, span) = Tree::named(source, selection, naming, now_ns)?;
    let mut text = match ProcessProfile::of(source, selection, now_ns) {
        Ok(profile) => account(&profile, verbose),
        Err(QueryError::OneProcess(_)) => {
            format!("{} samples, {} CPU time\n", count(tree.samples()), duration(tree.total_ns()))
        }
        Err(error) => return Err(error),
    };
    text.extend(span.warnings().map(|warning| format!("warning: {warning}\n")));
    if (1..FEW_SAMPLES).contains(&tree.samples()) {
        let samples = count(tree.samples());
        text.push_str(&format!(
            "warning: {samples} samples are few: shares are rough; profile longer, or with a shorter interval\n"
        ));
    }
    for &order in orders {
        let mut methods = tree.top_methods(order, limit.saturating_add(ROOTS.len())).0;
        if order == Order::TotalTime {
            methods.retain(|method| !is_root(method));
        }
        methods.truncate(limit);
        push_table(&mut text, naming, &methods, order, tree.total_ns());
    }
    Ok(text)
}

/// Returns the lines of the account of CPU time, with warnings.
fn account(profile: &ProcessProfile, verbose: bool) -> String {
    let summary = Summary::new(profile);
    let mut text = format!("{}\n", summary.sentence());
    if verbose {
        text.extend(unloading(&summary).map(|line| line + "\n"));
        text.extend(collecting(&summary).into_iter().map(|line| line + "\n"));
    }
    for warning in summary.warnings(profile) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

/// Returns the account of CPU time in one line, and up to `limit` threads with the CPU time of their own samples, those of
/// virtual threads not counted for their carriers, and the time that they waited for a processor in the whole session.
pub fn threads(profile: &ProcessProfile, limit: usize) -> String {
    let summary = Summary::new(profile);
    let own = profile.by_thread();
    let own_ns = |id: u32| own.get(&id).map_or(0, |cell| cell.cpu_ns);
    // A virtual thread with unknown carrier has its own account and is also among the virtual threads.
    // The delay of a thread that has lived for less than a second was not read.
    let unknown = if summary.waiting.run_delay_ns.is_some() { "" } else { "not reported" };
    let waited = |row: &ThreadRow| row.run_delay_ns.map_or_else(|| unknown.to_owned(), duration);
    let platform = summary
        .threads
        .iter()
        .filter(|row| row.kind != "virtual")
        .map(|row| (own_ns(row.id), row.kind, i64::from(row.tid), row.name.clone(), waited(row)));
    let virtual_threads = summary.virtual_threads.iter().map(|row| {
        let thread = format!("{} on {}", row.name, row.carriers.join(", "));
        // The kernel knows carriers only.
        (total(row.ids.iter().map(|&id| own_ns(id))), "virtual", row.java_id, thread, String::new())
    });
    let mut rows: Vec<_> = platform.chain(virtual_threads).filter(|&(cpu_ns, ..)| cpu_ns > 0).collect();
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.2, &a.3).cmp(&(b.2, &b.3))));
    let whole = profile.total().cpu_ns;
    let mut text = format!("{}\n\n", summary.sentence());
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:>8} {:>11} {:>12}  {:<9} {:>8}  thread",
        "share", "CPU time", "waited", "kind", "id"
    );
    for (cpu_ns, kind, id, thread, waited) in rows.into_iter().take(limit) {
        let part = percent(share(cpu_ns, whole));
        let _ =
            writeln!(text, "{part:>8} {:>11} {waited:>12}  {kind:<9} {id:>8}  {thread}", duration(cpu_ns));
    }
    text
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
    let lost = match summary.cpu_ns.lost_ns() {
        0 => "nothing lost".to_owned(),
        _ => format!("lost{}", by_cause("", &summary.cpu_ns.lost, |&ns| duration(ns))),
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
    // A JVM that has ended has no timers, so the line would be misleading.
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

fn push_table(text: &mut String, naming: Naming, methods: &[MethodCost], order: Order, whole: u64) {
    let time_of = |method: &MethodCost| match order {
        Order::SelfTime => method.self_ns,
        Order::TotalTime => method.total_ns,
    };
    let (columns, time_title) = match order {
        Order::SelfTime => (["self", "total"], "self time"),
        Order::TotalTime => (["total", "self"], "total time"),
    };
    if methods.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\nHot {} by {} CPU time", naming.plural(), columns[0]);
    let _ = writeln!(text, "{:>8} {:>8} {time_title:>11}  {}", columns[0], columns[1], naming.name());
    let shown = methods.iter().filter(|method| time_of(method) > 0);
    for method in shown {
        let own = percent(share(method.self_ns, whole));
        let total = percent(share(method.total_ns, whole));
        let (first, second) = if order == Order::SelfTime { (own, total) } else { (total, own) };
        let _ = writeln!(text, "{first:>8} {second:>8} {:>11}  {}", duration(time_of(method)), method.name);
    }
}
