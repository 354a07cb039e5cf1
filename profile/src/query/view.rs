//! Named views like those of `jfr view`: text tables. Writing to a String cannot fail.

use std::fmt::Write;

use super::difference::MethodDifference;
use super::error::QueryError;
use super::flat::{Flat, Order};
use super::processes::{Account, Process, accounts};
use super::selection::Selection;
use super::timeline::{ThreadTime, threads};
use crate::session::account::NOT_CHOSEN;
use crate::source::Source;
use crate::text::quantity::{count, duration, percent, percent_of, total};

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
    match name {
        "hot-methods" => hot_methods(&mut text, source, selection, Order::Samples, limit, now_ns)?,
        "cpu-time-hot-methods" => hot_methods(&mut text, source, selection, Order::SelfTime, limit, now_ns)?,
        "cpu-time-statistics" => statistics(&mut text, source, selection, limit, now_ns)?,
        "threads" => {
            let (rows, span) = threads(source, selection, now_ns)?;
            text = span.warning_lines();
            let time = span.modes.time();
            let whole = total(rows.iter().map(|row| row.cpu_ns));
            let _ = writeln!(text, "{:>8} {time:>11}  {:<9} {:>8}  thread", "share", "kind", "tid");
            for ThreadTime { thread, kind, tid, cpu_ns, carriers, .. } in rows.iter().take(limit) {
                let (part, time) = (percent_of(*cpu_ns, whole), duration(*cpu_ns));
                let tid = if *tid == 0 { String::new() } else { tid.to_string() };
                let on = if carriers.is_empty() { "" } else { " on " };
                let carriers = carriers.join(", ");
                let _ = writeln!(text, "{part:>8} {time:>11}  {kind:<9} {tid:>8}  {thread}{on}{carriers}");
            }
        }
        "processes" => {
            text = selection.span(source, now_ns).warning_lines();
            let titles = ["process", "state", "pid", "mode", "time", "explained", "service"];
            process_row(&mut text, titles);
            for account in accounts(source, selection, limit, now_ns)?.0 {
                let Process { process, state, pid, mode, service, .. } = &account.process;
                let time = duration(account.process.sampled_ns);
                let explained = percent(account.process.explained);
                process_row(&mut text, [process, state, &pid.to_string(), mode, &time, &explained, service]);
            }
        }
        name => return Err(QueryError::UnknownView(name.to_owned())),
    }
    Ok(text)
}

fn process_row(text: &mut String, [process, state, pid, mode, time, explained, service]: [&str; 7]) {
    let _ =
        writeln!(text, "{process:<16}  {state:<6} {pid:>8} {mode:<7} {time:>11} {explained:>9}  {service}");
}

fn hot_methods(
    text: &mut String,
    source: &dyn Source,
    selection: &Selection,
    order: Order,
    limit: usize,
    now_ns: u64,
) -> Result<(), QueryError> {
    let (flat, span) = Flat::of(source, selection, now_ns)?;
    text.push_str(&span.warning_lines());
    text.extend(flat.warning().map(|warning| format!("warning: {warning}\n")));
    let time = span.modes.time();
    let _ = writeln!(text, "{} samples, {} {time}", count(flat.samples()), duration(flat.total_ns()));
    let _ = writeln!(text, "{:>8} {:>8} {:>11} {:>11}  method", "self", "total", "self time", "total time");
    for method in flat.top_methods(order, limit).0 {
        let own = percent_of(method.self_ns, flat.total_ns());
        let total = percent_of(method.total_ns, flat.total_ns());
        let (own_time, total_time) = (duration(method.self_ns), duration(method.total_ns));
        let _ = writeln!(text, "{own:>8} {total:>8} {own_time:>11} {total_time:>11}  {}", method.name);
    }
    Ok(())
}

fn statistics(
    text: &mut String,
    source: &dyn Source,
    selection: &Selection,
    limit: usize,
    now_ns: u64,
) -> Result<(), QueryError> {
    text.push_str(&selection.span(source, now_ns).warning_lines());
    for account in accounts(source, selection, limit, now_ns)?.0 {
        let Process { process, service, pid, state, .. } = &account.process;
        let _ = writeln!(text, "{process} {service} (pid {pid}, {state})");
        for (name, value) in times(&account).into_iter().chain(costs(&account)) {
            let _ = writeln!(text, "  {name:<24} {value}");
        }
    }
    Ok(())
}

/// Returns the parts of the CPU time of a process.
fn times(account: &Account) -> Vec<(String, String)> {
    let process = &account.process;
    let sampled = format!("{} in {} samples", duration(process.sampled_ns), count(process.samples));
    let parts = [
        ("mode", process.mode.to_owned()),
        ("time explained", percent(process.explained)),
        ("sampled", sampled),
        ("kernel", duration(account.kernel_ns)),
        ("before timers ran", duration(account.before_timer_ns)),
        ("unfinished periods", duration(account.unfinished_ns)),
        ("profiler", duration(account.sampler_cpu_ns)),
        ("outside the accounts", duration(account.outside_ns)),
    ];
    let lost = account.lost_ns.iter().map(|(cause, &ns)| {
        // Threads that the user left out are no loss.
        let title = if cause == NOT_CHOSEN { "not chosen".to_owned() } else { format!("lost: {cause}") };
        (title, duration(ns))
    });
    parts.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(lost).collect()
}

/// Returns how the samples of a process were collected, and what that cost.
fn costs(account: &Account) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    if account.sampling.period_ns > 0 {
        row("sampling", account.sampling.sentence());
    }
    // Agents of early versions count requests, but not their outcomes.
    let is_counted = account.resolved > 0 || account.failed.values().any(|&requests| requests > 0);
    let resolved = if is_counted { format!(", {} resolved", count(account.resolved)) } else { String::new() };
    row("requests", count(account.requests) + &resolved);
    for (cause, &requests) in &account.failed {
        row(&format!("failed: {cause}"), count(requests));
    }
    for (stop, &walks) in &account.stops {
        row(&format!("walks: {stop}"), count(walks));
    }
    let Account { handler_cycles: cycles, walk_ns: walk, drain_ns: drain, .. } = account;
    row("handler cycles", format!("{} median, {} p99", cycles.p50, cycles.p99));
    row("walk", format!("{} median, {} p99", duration(walk.p50), duration(walk.p99)));
    row("drain", format!("{} median, {} max", duration(drain.p50), duration(drain.max)));
    row("sampler thread", duration(account.sampler_cpu_ns));
    let (bytes, grown, most) = (count(account.queue_bytes), account.queue_grown, account.queue_high_water);
    row("queues", format!("{bytes} bytes, grown {grown} times, at most {most} waiting"));
    let (bytes, exhausted) = (count(account.pool_bytes), account.pool_exhausted);
    row("snapshot pool", format!("up to {bytes} bytes, exhausted {exhausted} times"));
    if let Some(biased) = account.biased {
        row("biased samples", format!("{}, {}", count(biased), percent_of(biased, account.requests)));
    }
    if account.unknown_samples > 0 {
        row("samples without stack", count(account.unknown_samples));
    }
    if account.missing_messages > 0 {
        row("messages missing", count(account.missing_messages));
    }
    rows
}

/// Returns a table of the methods whose share of self time changed most.
pub fn differences(rows: &[MethodDifference], limit: usize) -> String {
    if rows.iter().all(|row| row.change == 0.0) {
        return "the shares of self time are the same\n".to_owned();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_without_changes_says_so() {
        let row = |change: f64| MethodDifference {
            name: "A.run".to_owned(),
            before_ns: 5,
            after_ns: 5,
            before_share: 0.5,
            after_share: 0.5 + change,
            change,
        };
        assert_eq!(differences(&[row(0.0)], 30), "the shares of self time are the same\n");
        assert!(differences(&[row(0.0), row(0.1)], 30).contains("+10.00 %"));
    }
}
