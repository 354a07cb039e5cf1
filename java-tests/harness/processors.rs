//! Processor affinity and signal limits of this machine, by `/proc` and `taskset`.

use std::process::Command;

use nix::unistd::Pid;

/// Restricts all threads of a process to the first processor that the caller may use.
pub(crate) fn pin_process(pid: Pid) {
    let first = allowed_processors().into_iter().next().expect("at least one processor");
    taskset(&["--all-tasks", "--cpu-list", "--pid", &first.to_string(), &pid.to_string()]);
}

/// Restricts one thread to one processor.
pub(crate) fn pin_thread(thread: Pid, processor: u32) {
    taskset(&["--cpu-list", "--pid", &processor.to_string(), &thread.to_string()]);
}

fn taskset(arguments: &[&str]) {
    let outcome =
        Command::new("taskset").args(arguments).output().expect("taskset of util-linux is installed");
    assert!(outcome.status.success(), "{outcome:?}");
}

/// Returns the processors that the caller may use.
pub(crate) fn allowed_processors() -> Vec<u32> {
    let allowed = own_status("Cpus_allowed_list:");
    let ranges = allowed.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().expect("a processor number");
        number(first)..=number(last)
    });
    ranges.flatten().collect()
}

/// Returns how many signals and timers the processes of this user hold, as `RLIMIT_SIGPENDING` counts them.
pub fn pending_signals() -> u64 {
    let queue = own_status("SigQ:");
    queue.trim().split('/').next().and_then(|used| used.parse().ok()).expect("SigQ has the form used/limit")
}

/// Returns what follows `key` in `/proc/self/status`.
fn own_status(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    value.unwrap_or_else(|| panic!("/proc/self/status has no {key}")).to_owned()
}
