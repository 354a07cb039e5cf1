//! Limits of this process and its control group, and whether it has a `/tmp` of its own.

use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use profile::text::quantity;

use super::Finding;

/// Open files for a collector with 256 agents, the default, its store and its clients.
const ENOUGH_FILES: u64 = 1024;

pub(super) fn examine() -> Vec<Finding> {
    vec![files(), processors(), own_tmp(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())]
}

fn files() -> Finding {
    const SUBJECT: &str = "limits";
    const FIX: &str = "raise it with 'ulimit -n', or LimitNOFILE= of the systemd unit";
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((limit, _)) if limit < ENOUGH_FILES => {
            let found = format!("{} open files are few for a collector of many JVMs", quantity::count(limit));
            Finding::warn(SUBJECT, found, FIX)
        }
        Ok((limit, _)) => Finding::ok(SUBJECT, format!("{} open files", quantity::count(limit))),
        Err(error) => Finding::warn(SUBJECT, format!("RLIMIT_NOFILE cannot be read: {error}"), FIX),
    }
}

/// Reports the processors that the control group grants, and how often it was throttled.
fn processors() -> Finding {
    const SUBJECT: &str = "processors";
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup{}/{name}", own.trim_end_matches('/')));
    let granted = read("cpu.max").ok().and_then(|text| granted(&text));
    let throttled = read("cpu.stat").ok().and_then(|text| {
        let value = text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
        value.trim().parse::<u64>().ok()
    });
    let mut found = format!("{available} available");
    match granted {
        Some(granted) => found.push_str(&format!(", the control group grants {granted:.2}")),
        None => found.push_str(", no limit of the control group"),
    }
    match throttled {
        Some(times @ 1..) => Finding::warn(
            SUBJECT,
            format!("{found}, throttled {} times", quantity::count(times)),
            "threads that wait for a processor use no CPU time; raise the limit (cpu.max) if that is not wanted",
        ),
        _ => Finding::ok(SUBJECT, found),
    }
}

/// Reads `cpu.max`: microseconds of CPU time in a period of microseconds; `None` without a limit.
fn granted(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// Reports whether systemd gives this process a `/tmp` of its own (`PrivateTmp=yes`), which other processes do not see.
fn own_tmp(mounts: &str) -> Finding {
    const SUBJECT: &str = "own /tmp";
    match has_private_tmp(mounts) {
        true => Finding::warn(
            SUBJECT,
            "this process has a /tmp of its own (PrivateTmp=yes): files there are seen by no other process",
            "name recordings in another directory with -o",
        ),
        false => Finding::ok(SUBJECT, "no (PrivateTmp=no)"),
    }
}

/// Returns whether the list of mounts has the directory of a private `/tmp`; root and mount point are fields 4 and 5.
pub(super) fn has_private_tmp(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(3);
        let root = fields.next().unwrap_or_default();
        fields.next() == Some("/tmp") && root.contains("systemd-private-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_control_groups() {
        assert_eq!(granted("150000 100000\n"), Some(1.5));
        assert_eq!(granted("max 100000\n"), None);
        assert_eq!(granted(""), None);
    }

    #[test]
    fn private_directories() {
        let shared = "36 35 98:0 / /tmp rw,noatime shared:1 - tmpfs tmpfs rw\n";
        assert!(!has_private_tmp(shared));
        let own =
            "412 398 8:1 /tmp/systemd-private-0a1b-app.service-x/tmp /tmp rw shared:5 - ext4 /dev/sda1 rw\n";
        assert!(has_private_tmp(&format!("{shared}{own}")));
        assert!(!has_private_tmp(&own.replace(" /tmp rw", " /var/tmp rw")));
    }
}
