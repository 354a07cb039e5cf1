//! Whether a JVM can start more threads.
//!
//! Problem: a JVM that cannot start its attach thread exits, and a profile needs threads as well.
//! Approach: check both limits before any request. The kernel does not publish how many threads a user has, so this
//! process lowers its own limit for a moment and starts one thread as that user, which succeeds if the JVM could
//! start all that are needed.
//! Limit: other programs may start threads in between.
//! Sources: getrlimit(2) (`RLIMIT_NPROC`), kernel/fork.c (`copy_process`), cgroups(7) (`pids.max`).

use std::fmt;
use std::fs;
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::identity::Owner;
use super::process::{Process, Status, user_name};

/// Capabilities that exempt from the limit of a user: `CAP_SYS_ADMIN` and `CAP_SYS_RESOURCE`.
const EXEMPT: u64 = 1 << 21 | 1 << 24;
/// Stack size of the thread that is started as a test.
const PROBE_STACK: usize = 64 << 10;

/// The result of the check that the JVM may start more threads.
#[derive(Debug, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// This limit prevents it.
    Missing(Limit),
}

/// A limit of the number of threads.
#[derive(Debug, PartialEq, Eq)]
pub enum Limit {
    /// Limit of all threads of a user.
    User { user: u32, most: u64 },
    /// Limit of a control group.
    Group { path: String, most: u64 },
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { user, most } => write!(
                f,
                "user {} may have {most} in all of its processes (ulimit -u); end some, or start the JVM with a higher limit",
                user_name(*user)
            ),
            Self::Group { path, most } => {
                write!(f, "its control group {path} may have {most} (pids.max); end some, or raise the limit")
            }
        }
    }
}

/// Returns whether a process can start this many threads.
pub fn of(process: Process, status: &Status, threads: u64) -> Room {
    let of_group = || group_limit(Path::new("/sys/fs/cgroup"), &process.control_groups(), threads);
    let limit = user_limit(process, status, threads).or_else(of_group);
    limit.map_or(Room::Enough, Room::Missing)
}

fn user_limit(process: Process, status: &Status, threads: u64) -> Option<Limit> {
    let user = status.real_user;
    let is_exempt = user == 0 || status.capabilities & EXEMPT != 0;
    // Each user namespace counts for itself; a hidden process is one of this user.
    let shares_count = process.is_hidden() || {
        let namespace = |of: &Path| fs::read_link(of).ok();
        namespace(&process.file("ns/user")) == namespace(Path::new("/proc/self/ns/user"))
    };
    if is_exempt || !shares_count || user != status.owner.user {
        return None;
    }
    let most = most_processes(&process.limits())?;
    (!can_start(status.owner, most, threads)).then_some(Limit::User { user, most })
}

/// Reads the soft limit of processes from the lines of `/proc/PID/limits`; `None` if there is none.
fn most_processes(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns whether `owner`, who may have `most` threads, can start this many more.
fn can_start(owner: Owner, most: u64, threads: u64) -> bool {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NPROC) else { return true };
    // The thread that acts for another user counts as one of that user.
    let acting = u64::from(owner != Owner::own());
    let lowered = (most + 1 + acting).saturating_sub(threads);
    if setrlimit(Resource::RLIMIT_NPROC, lowered, hard).is_err() {
        return true;
    }
    let started = owner.act(|| {
        let probe = thread::Builder::new().stack_size(PROBE_STACK).spawn(|| ())?;
        // It cannot panic.
        let _ = probe.join();
        Ok(())
    });
    // The limit was the own one before.
    let _ = setrlimit(Resource::RLIMIT_NPROC, soft, hard);
    !started.is_err_and(|error| error.raw_os_error() == Some(Errno::EAGAIN as i32))
}

/// Returns the first limit of a control group or one above it that prevents the threads. `mount` is where control
/// groups are mounted, `groups` has the lines of `/proc/PID/cgroup`.
fn group_limit(mount: &Path, groups: &str, threads: u64) -> Option<Limit> {
    let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    // One tree for all controllers, or one of that controller.
    let (folder, path) = lines.find_map(|(controllers, path)| match controllers {
        "" => Some((mount.to_owned(), path)),
        "pids" => Some((mount.join("pids"), path)),
        _ => None,
    })?;
    let number = |group: &str, name: &str| -> Option<u64> {
        let file = folder.join(group.trim_start_matches('/')).join(name);
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    let mut group = path;
    loop {
        if let (Some(most), Some(current)) = (number(group, "pids.max"), number(group, "pids.current"))
            && current + threads > most
        {
            return Some(Limit::Group { path: group.to_owned(), most });
        }
        group = group.rsplit_once('/')?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_process() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
            Max processes             1024                 2048                 processes\n";
        assert_eq!(most_processes(limits), Some(1024));
        assert_eq!(most_processes(&limits.replace("1024", "unlimited")), None);
        assert_eq!(most_processes(""), None);
    }

    #[test]
    fn a_control_group_without_enough_threads_is_found_at_any_level() {
        let mount = tempfile::tempdir().expect("a folder");
        let group = mount.path().join("shop.slice/app");
        fs::create_dir_all(&group).expect("made");
        let set = |folder: &Path, name: &str, value: &str| {
            fs::write(folder.join(name), value).expect("written");
        };
        set(&group, "pids.max", "max\n");
        set(&group, "pids.current", "40\n");
        let above = mount.path().join("shop.slice");
        set(&above, "pids.max", "100\n");
        set(&above, "pids.current", "97\n");
        let missing = |lines: &str, threads| group_limit(mount.path(), lines, threads);
        assert_eq!(missing("0::/shop.slice/app\n", 3), None);
        let found = missing("0::/shop.slice/app\n", 4);
        assert_eq!(found, Some(Limit::Group { path: "/shop.slice".to_owned(), most: 100 }));
        assert_eq!(missing("5:cpu,cpuacct:/shop.slice\n", 4), None);
        assert_eq!(missing("0::/../elsewhere\n", 4), None);
        let old = mount.path().join("pids/app");
        fs::create_dir_all(&old).expect("made");
        set(&old, "pids.max", "5\n");
        set(&old, "pids.current", "5\n");
        assert!(missing("7:pids:/app\n0::/\n", 1).is_some());
    }
}
