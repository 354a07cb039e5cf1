//! Metrics of this process, under the names that Prometheus' own client libraries use.
//!
//! Source: https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics and proc(5).

use std::fs;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;

use super::text::Metric;

/// Unit of times in `/proc/self/stat`, the same on all machines.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns what can be read.
pub(super) fn metrics() -> Vec<Metric<'static>> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    [
        ("process_cpu_seconds_total CPU time of this process", cpu_seconds()),
        ("process_open_fds Open file descriptors", open_descriptors()),
        ("process_max_fds Limit of open file descriptors", max_descriptors()),
        ("process_virtual_memory_bytes Size of the address space", kilobytes(&status, "VmSize:")),
        ("process_resident_memory_bytes Memory in use", kilobytes(&status, "VmRSS:")),
        ("process_start_time_seconds Start of this process since the epoch", start_seconds()),
        ("process_threads Threads", first_number(&status, "Threads:")),
    ]
    .into_iter()
    .filter_map(|(text, value)| Some(Metric::plain(text, value?)))
    .collect()
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
    Some(microseconds as f64 / 1e6)
}

fn open_descriptors() -> Option<f64> {
    // One of them lists the folder.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_descriptors() -> Option<f64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(limit as f64)
}

fn start_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the command, in parentheses, may contain spaces; field 22 is the 20th behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let boot_seconds = first_number(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
    Some(boot_seconds + ticks / TICKS_PER_SECOND)
}

fn kilobytes(status: &str, name: &str) -> Option<f64> {
    Some(first_number(status, name)? * 1024.0)
}

/// Returns the number that follows `name` at the beginning of a line.
fn first_number(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn every_metric_of_a_process_is_read() {
        assert_eq!(metrics().len(), 7);
    }

    #[test]
    fn the_process_began_at_most_minutes_ago() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let age = now - start_seconds().expect("Linux has it");
        assert!((-2.0..600.0).contains(&age), "{age} s");
    }
}
