//! Named views like those of `jfr view`: text tables. Writing to a String cannot fail.

use std::fmt::Write;

use super::difference::MethodDifference;
use super::error::QueryError;
use super::flat::{Flat, Order};
use super::modes::Modes;
use super::processes::accounts;
use super::selection::Selection;
use super::timeline::threads;
use crate::source::Source;
use crate::text::quantity::{count, duration, percent, share, total};

/// Returns the view `name` of a selection with up to `limit` rows.
///
/// # Errors
/// If there is no such view or the source cannot be read.
pub fn view(
    name: &str,
    source: &dyn Source,
    selection: &Selection,
    limit: usize,
    now_ns: u64,
) -> Result<String, QueryError> {
    let mut text = String::new();
    for warning in selection.span(source, now_ns).warnings() {
        let _ = writeln!(text, "warning: {warning}");
    }
    match name {
        "hot-methods" => hot_methods(&mut text, source, selection, Order::Samples, limit, now_ns)?,
        "cpu-time-hot-methods" => hot_methods(&mut text, source, selection, Order::SelfTime, limit, now_ns)?,
        "cpu-time-statistics" => push_statistics(&mut text, source, selection, limit, now_ns)?,
        "threads" => {
            let (rows, _) = threads(source, selection, now_ns)?;
            let whole = total(rows.iter().map(|row| row.cpu_ns));
            let time = Modes::of(source, selection, now_ns)?.time();
            let _ = writeln!(text, "{:>8} {time:>11}  {:<9} {:>8}  thread", "share", "kind", "tid");
            for row in rows.iter().take(limit) {
                let (part, time) = (percent(share(row.cpu_ns, whole)), duration(row.cpu_ns));
                let tid = if row.tid == 0 { String::new() } else { row.tid.to_string() };
                let on = if row.carriers.is_empty() { "" } else { " on " };
                let carriers = row.carriers.join(", ");
                let thread = &row.thread;
                let _ =
                    writeln!(text, "{part:>8} {time:>11}  {:<9} {tid:>8}  {thread}{on}{carriers}", row.kind);
            }
        }
        "processes" => {
            let _ = writeln!(
                text,
                "{:<16}  {:<6} {:>8} {:<7} {:>11} {:>9}  service",
                "process", "state", "pid", "mode", "time", "explained"
            );
            for account in accounts(source, selection, limit, now_ns)?.0 {
                let row = account.process;
                let (time, explained) = (duration(row.sampled_ns), percent(row.explained));
                let _ = writeln!(
                    text,
                    "{}  {:<6} {:>8} {:<7} {time:>11} {explained:>9}  {}",
                    row.process, row.state, row.pid, row.mode, row.service
                );
            }
        }
        name => return Err(QueryError::UnknownView(name.to_owned())),
    }
    Ok(text)
}

fn hot_methods(
    text: &mut String,
    source: &dyn Source,
    selection: &Selection,
    order: Order,
    limit: usize,
    now_ns: u64,
) -> Result<(), QueryError> {
    let (flat, _) = Flat::of(source, selection, now_ns)?;
    text.extend(flat.warning().map(|warning| format!("warning: {warning}\n")));
    let time = Modes::of(source, selection, now_ns)?.time();
    let _ = writeln!(text, "{} samples, {} {time}", count(flat.samples()), duration(flat.total_ns()));
    let _ = writeln!(text, "{:>8} {:>8} {:>11} {:>11}  method", "self", "total", "self time", "total time");
    for method in flat.top_methods(order, limit).0 {
        let own = percent(share(method.self_ns, flat.total_ns()));
        let total = percent(share(method.total_ns, flat.total_ns()));
        let (own_time, total_time) = (duration(method.self_ns), duration(method.total_ns));
        let _ = writeln!(text, "{own:>8} {total:>8} {own_time:>11} {total_time:>11}  {}", method.name);
    }
    Ok(())
}

fn push_statistics(
    text: &mut String,
    source: &dyn Source,
    selection: &Selection,
    limit: usize,
    now_ns: u64,
) -> Result<(), QueryError> {
    for account in accounts(source, selection, limit, now_ns)?.0 {
        let process = &account.process;
        let _ = writeln!(
            text,
            "{} {} (pid {}, {})",
            process.process, process.service, process.pid, process.state
        );
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<24} {value}");
        };
        row("mode", process.mode.to_owned());
        row("time explained", percent(process.explained));
        row("sampled", format!("{} in {} samples", duration(process.sampled_ns), count(process.samples)));
        row("kernel", duration(account.kernel_ns));
        row("before timers ran", duration(account.before_timer_ns));
        row("unfinished periods", duration(account.unfinished_ns));
        row("profiler", duration(account.sampler_cpu_ns));
        row("outside the accounts", duration(account.outside_ns));
        for (cause, &ns) in &account.lost_ns {
            row(&format!("lost: {cause}"), duration(ns));
        }
        if account.sampling.period_ns > 0 {
            row("sampling", account.sampling.sentence());
        }
        // Agents of early versions count requests, but not their outcomes.
        let is_counted = account.resolved > 0 || account.failed.values().any(|&requests| requests > 0);
        let resolved =
            if is_counted { format!(", {} resolved", count(account.resolved)) } else { String::new() };
        row("requests", count(account.requests) + &resolved);
        for (cause, &requests) in &account.failed {
            row(&format!("failed: {cause}"), count(requests));
        }
        for (stop, &walks) in &account.stops {
            row(&format!("walks: {stop}"), count(walks));
        }
        row(
            "handler cycles",
            format!("{} median, {} p99", account.handler_cycles.p50, account.handler_cycles.p99),
        );
        row(
            "walk",
            format!("{} median, {} p99", duration(account.walk_ns.p50), duration(account.walk_ns.p99)),
        );
        row(
            "drain",
            format!("{} median, {} max", duration(account.drain_ns.p50), duration(account.drain_ns.max)),
        );
        row("sampler thread", duration(account.sampler_cpu_ns));
        row(
            "queues",
            format!(
                "{} bytes, grown {} times, at most {} waiting",
                count(account.queue_bytes),
                account.queue_grown,
                account.queue_high_water
            ),
        );
        row(
            "snapshot pool",
            format!("up to {} bytes, exhausted {} times", count(account.pool_bytes), account.pool_exhausted),
        );
        if let Some(biased) = account.biased {
            let share = percent(share(biased, account.requests));
            row("biased samples", format!("{}, {share}", count(biased)));
        }
        if account.unknown_samples > 0 {
            row("samples without stack", count(account.unknown_samples));
        }
        if account.missing_messages > 0 {
            row("messages missing", count(account.missing_messages));
        }
    }
    Ok(())
}

/// Returns a table of the methods whose share of self time changed most.
pub fn differences(rows: &[MethodDifference], limit: usize) -> String {
    let mut text = String::new();
    let _ =
        writeln!(text, "{:>9} {:>8} {:>8}  method (self time, share of all)", "change", "before", "after");
    for row in rows.iter().filter(|row| row.change != 0.0).take(limit) {
        let change = format!("{:+.2} %", row.change * 100.0);
        let (before, after) = (percent(row.before_share), percent(row.after_share));
        let _ = writeln!(text, "{change:>9} {before:>8} {after:>8}  {}", row.name);
    }
    text
}
