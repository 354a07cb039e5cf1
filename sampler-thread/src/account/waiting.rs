//! Time in which threads were ready to run and had no processor.
//!
//! Problem: a program that waits for processors is slow, and a profile of CPU time does not show why.
//! Approach: the kernel counts the run-queue delay of each thread, and the time in which the limit of the cgroup
//! stopped all of them. Both are read once a second; a thread's only if its CPU clock has moved.
//! Invariant: this time is never part of an account of CPU time. Figures that the kernel does not report are absent,
//! not 0.
//! Limits: the delay after a thread's last reading is missing; so is, in a program that ran before with more than
//! [`READ_AT_START`] threads, the delay of each further thread until its first reading.
//!
//! Sources: Linux `Documentation/scheduler/sched-stats.rst` (schedstat), `Documentation/admin-guide/cgroup-v2.rst`
//! (cpu.stat, cpu.max), `Documentation/scheduler/sched-bwc.rst` (version 1: throttled_time, cpu.cfs_quota_us); proc(5),
//! mountinfo.

use std::fs::File;
use std::path::{Path, PathBuf};

use proto::v1;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{self, Mode, OFlags};
use rustix::io;

use crate::clock;
use crate::descriptor::OwnedDescriptor;

/// Most steps of the course of time; beyond, steps become twice as long. Each takes some three bytes of whole
/// statistics.
const MAX_STEPS: usize = 128;
/// Length of the first steps: the time between two readings.
const FIRST_STEP_NS: u64 = 1_000_000_000;

/// Threads whose delay from before the profile is read when it begins. One reading takes some 10 us, so those of ten
/// thousand threads would keep a processor from the program for a tenth of a second.
const READ_AT_START: usize = 256;

/// Longest text of a schedstat: three numbers of 64 bits.
const SCHEDSTAT: usize = 64;

const TASKS: &str = "/proc/self/task";

/// Folder with the kernel's files on each thread of this process.
#[derive(Debug)]
struct Tasks(Option<OwnedDescriptor<File>>);

impl Tasks {
    fn open() -> Self {
        Self(OwnedDescriptor::open(TASKS).ok())
    }

    /// Returns the run-queue delay of a thread since it began, in nanoseconds; `None` if it is not reported or the
    /// thread has ended.
    fn run_delay_ns(&mut self, tid: i32) -> Option<u64> {
        if self.0.as_ref().is_none_or(|folder| folder.get().is_err()) {
            *self = Self::open();
        }
        let folder = self.0.as_ref()?.get().ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = fs::openat(folder, format!("{tid}/schedstat"), flags, Mode::empty()).ok()?;
        let mut text = [0; SCHEDSTAT];
        let length = io::read(&file, &mut text).ok()?;
        parse_schedstat(std::str::from_utf8(text.get(..length)?).ok()?)
    }
}

fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Effects of the bandwidth limit of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Throttled {
    periods: u64,
    ns: u64,
}

impl Throttled {
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        };
        let ns =
            value("throttled_usec").map(|us| us.saturating_mul(1000)).or_else(|| value("throttled_time"))?;
        Some(Self { periods: value("nr_throttled")?, ns })
    }
}

/// The cgroup whose limit applies to this process.
#[derive(Debug)]
struct Cgroup {
    stat: OwnedDescriptor<File>,
    before: Throttled,
}

/// Longest statistics of a cgroup: a dozen lines of a name and a number of 64 bits.
const CPU_STAT: usize = 1024;

impl Cgroup {
    fn of_this_process() -> Option<Self> {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let own = read(Path::new("/proc/self/cgroup"))?;
        let mounts = read(Path::new("/proc/self/mountinfo"))?;
        let stat = OwnedDescriptor::open(stat_file(&own, &mounts, read)?).ok()?;
        Some(Self { before: Self::present(&stat)?, stat })
    }

    fn present(stat: &OwnedDescriptor<File>) -> Option<Throttled> {
        let mut text = [0; CPU_STAT];
        let length = io::pread(stat.get().ok()?, &mut text, 0).ok()?;
        Throttled::parse(std::str::from_utf8(text.get(..length)?).ok()?)
    }

    fn read(&self) -> Option<Throttled> {
        let present = Self::present(&self.stat)?;
        Some(Throttled {
            periods: present.periods.saturating_sub(self.before.periods),
            ns: present.ns.saturating_sub(self.before.ns),
        })
    }
}

/// Returns the file with the figures of the nearest cgroup that has a limit, else of the process's own one; `None` if
/// neither reports any.
fn stat_file(own: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<PathBuf> {
    let (folder, mount, is_second_version) = cpu_cgroup(own, mounts)?;
    let stat_of = |folder: &Path| {
        let stat = folder.join("cpu.stat");
        Throttled::parse(&read(&stat)?).map(|_| stat)
    };
    let has_limit = |folder: &&Path| {
        let limit = if is_second_version { "cpu.max" } else { "cpu.cfs_quota_us" };
        read(&folder.join(limit)).is_some_and(|limit| !limit.starts_with("max") && !limit.starts_with('-'))
    };
    let mut upward = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
    upward.find(has_limit).and_then(stat_of).or_else(|| stat_of(&folder))
}

/// Returns the folder of the process's cgroup for processors, the mount that it lies in, and whether it is of
/// version 2.
fn cpu_cgroup(own: &str, mounts: &str) -> Option<(PathBuf, PathBuf, bool)> {
    // NUMBER:CONTROLLERS:PATH; version 2 has no controllers. A controller of version 1 is not available in version 2.
    let path_of = |is_wanted: fn(&str) -> bool| {
        let mut lines = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find_map(|(controllers, path)| is_wanted(controllers).then_some(path))
    };
    let first = path_of(|controllers| controllers.split(',').any(|name| name == "cpu"));
    let is_second_version = first.is_none();
    let path = first.or_else(|| path_of(str::is_empty))?;
    // ID PARENT DEVICE ROOT MOUNT OPTIONS [FIELDS...] - TYPE SOURCE OPTIONS
    let (root, mount) = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_wanted = match kind.next()? {
            "cgroup2" => is_second_version,
            "cgroup" => !is_second_version && kind.nth(1)?.split(',').any(|option| option == "cpu"),
            _ => false,
        };
        let mut place = place.split(' ').skip(3);
        is_wanted.then_some((place.next()?, place.next()?))
    })?;
    // A container may see only its own part of the tree.
    let inner = Path::new(path).strip_prefix(root).unwrap_or_else(|_| Path::new(""));
    Some((Path::new(mount).join(inner), PathBuf::from(mount), is_second_version))
}

/// Amounts by step of time, in nanoseconds.
#[derive(Debug)]
struct Course {
    first_ns: u64,
    step_ns: u64,
    delay_ns: Vec<u64>,
    throttled_ns: Vec<u64>,
}

impl Course {
    fn new(first_ns: u64) -> Self {
        Self { first_ns, step_ns: FIRST_STEP_NS, delay_ns: Vec::new(), throttled_ns: Vec::new() }
    }

    fn add(&mut self, now_ns: u64, delay_ns: u64, throttled_ns: u64) {
        while now_ns.saturating_sub(self.first_ns) / self.step_ns >= MAX_STEPS as u64 {
            self.step_ns *= 2;
            for column in [&mut self.delay_ns, &mut self.throttled_ns] {
                *column = column.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let step = (now_ns.saturating_sub(self.first_ns) / self.step_ns) as usize;
        for (column, amount) in [(&mut self.delay_ns, delay_ns), (&mut self.throttled_ns, throttled_ns)] {
            if column.len() <= step {
                column.resize(step + 1, 0);
            }
            column[step] += amount;
        }
    }
}

/// Waiting for processors since the profile began.
#[derive(Debug)]
pub(crate) struct Waiting {
    tasks: Tasks,
    /// Delays of threads from before the profile.
    before: FxHashMap<i32, u64>,
    /// Threads from before the profile whose delay has not been read yet.
    unread: FxHashSet<i32>,
    /// Delay of ended threads.
    ended_ns: u64,
    /// Delay of all threads at the last reading; `None` if the kernel reports none.
    delay_ns: Option<u64>,
    cgroup: Option<Cgroup>,
    throttled: Option<Throttled>,
    course: Course,
}

impl Waiting {
    /// Begins on a thread of the process; in a program that `ran_before`, what its threads have waited until now is
    /// left out.
    pub(crate) fn start(ran_before: bool) -> Self {
        let (mut tasks, cgroup) = (Tasks::open(), Cgroup::of_this_process());
        let threads = std::fs::read_dir("/proc/self/task").ok().filter(|_| ran_before);
        let mut tids =
            threads.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Self {
            before: tids
                .by_ref()
                .take(READ_AT_START)
                .filter_map(|tid| Some((tid, tasks.run_delay_ns(tid)?)))
                .collect(),
            unread: tids.collect(),
            ended_ns: 0,
            delay_ns: tasks.run_delay_ns(nix::unistd::gettid().as_raw()).map(|_| 0),
            throttled: cgroup.is_some().then(Throttled::default),
            cgroup,
            course: Course::new(clock::monotonic_nanos()),
            tasks,
        }
    }

    /// Returns the delay of a thread; `None` if it is not reported. One from before the profile that has not run since
    /// (`has_run`) has none, and is not read.
    pub(crate) fn of_thread(&mut self, tid: i32, has_run: bool) -> Option<u64> {
        self.delay_ns?;
        if !has_run && (self.unread.contains(&tid) || self.before.contains_key(&tid)) {
            return Some(0);
        }
        let present = self.tasks.run_delay_ns(tid)?;
        if self.unread.remove(&tid) {
            self.before.insert(tid, present);
        }
        Some(present.saturating_sub(self.before.get(&tid).copied().unwrap_or(0)))
    }

    /// Keeps the last reading of a thread that has ended.
    pub(crate) fn ended(&mut self, tid: i32, delay_ns: Option<u64>) {
        self.before.remove(&tid);
        self.unread.remove(&tid);
        self.ended_ns += delay_ns.unwrap_or(0);
    }

    /// Ends a round of readings; `of_threads_ns` is the sum over the threads that live.
    pub(crate) fn read(&mut self, of_threads_ns: u64) {
        let delay_ns = self.delay_ns.map(|before| before.max(self.ended_ns + of_threads_ns));
        let throttled = self.cgroup.as_ref().and_then(Cgroup::read).or(self.throttled);
        let more = |present: Option<u64>, before: Option<u64>| {
            present.unwrap_or(0).saturating_sub(before.unwrap_or(0))
        };
        let stopped = |throttled: Option<Throttled>| throttled.map(|throttled| throttled.ns);
        self.course.add(
            clock::monotonic_nanos(),
            more(delay_ns, self.delay_ns),
            more(stopped(throttled), stopped(self.throttled)),
        );
        (self.delay_ns, self.throttled) = (delay_ns, throttled);
    }

    /// Returns the figures of the last reading.
    pub(crate) fn message(&self) -> v1::Waiting {
        let Course { first_ns, step_ns, delay_ns, throttled_ns } = &self.course;
        let column = |is_reported: bool, column: &[u64]| {
            let reported = if is_reported { column } else { &[] };
            reported.iter().map(|ns| ns.div_ceil(1000)).collect()
        };
        v1::Waiting {
            run_delay_ns: self.delay_ns,
            throttled_periods: self.throttled.map(|throttled| throttled.periods),
            throttled_ns: self.throttled.map(|throttled| throttled.ns),
            first_time_ns: *first_ns,
            step_ns: *step_ns,
            run_delay_us: column(self.delay_ns.is_some(), delay_ns),
            throttled_us: column(self.throttled.is_some(), throttled_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_kernel() {
        assert_eq!(parse_schedstat("851922 110776210 2\n"), Some(110_776_210));
        assert_eq!(parse_schedstat("0\n"), None);
        let second = "usage_usec 9\nnr_periods 7\nnr_throttled 5\nthrottled_usec 1234\nnr_bursts 0\n";
        assert_eq!(Throttled::parse(second), Some(Throttled { periods: 5, ns: 1_234_000 }));
        let first = "nr_periods 7\nnr_throttled 5\nthrottled_time 1234\n";
        assert_eq!(Throttled::parse(first), Some(Throttled { periods: 5, ns: 1234 }));
        assert_eq!(Throttled::parse("usage_usec 9\n"), None, "the root has no limit");
    }

    #[track_caller]
    fn check(own: &str, mounts: &str, files: &[(&str, &str)], expected: Option<&str>) {
        let read = |path: &Path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(stat_file(own, mounts, read), expected.map(PathBuf::from));
    }

    #[test]
    fn the_nearest_limit_counts() {
        const STAT: &str = "nr_throttled 1\nthrottled_usec 2\n";
        const SECOND: &str =
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "0::/pod/app/inner\n";
        let files = [
            ("/sys/fs/cgroup/cpu.stat", "usage_usec 1\n"),
            ("/sys/fs/cgroup/pod/app/cpu.max", "50000 100000\n"),
            ("/sys/fs/cgroup/pod/app/cpu.stat", STAT),
            ("/sys/fs/cgroup/pod/app/inner/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/pod/app/inner/cpu.stat", STAT),
        ];
        check(own, SECOND, &files, Some("/sys/fs/cgroup/pod/app/cpu.stat"));
        check(own, SECOND, &files[3..], Some("/sys/fs/cgroup/pod/app/inner/cpu.stat"));
        check("0::/\n", SECOND, &files, None);
        check(own, "", &files, None);
        // A container sees its own part as the root of the mount.
        let inside = "30 24 0:26 /pod/app /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let files = [("/sys/fs/cgroup/cpu.max", "50000 100000\n"), ("/sys/fs/cgroup/cpu.stat", STAT)];
        check("0::/pod/app\n", inside, &files, Some("/sys/fs/cgroup/cpu.stat"));
        // Version 1, with the controller beside another one.
        let own = "4:memory:/x\n3:cpu,cpuacct:/app\n0::/\n";
        let mounts = "33 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let files = [
            ("/sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/app/cpu.stat", "nr_throttled 0\nthrottled_time 0\n"),
        ];
        check(own, &[mounts, SECOND].concat(), &files, Some("/sys/fs/cgroup/cpu,cpuacct/app/cpu.stat"));
    }

    #[test]
    fn steps_grow_and_keep_their_sum() {
        let mut course = Course::new(1_000);
        for second in 0..1_000 {
            course.add(1_000 + second * FIRST_STEP_NS, 3, second % 2);
        }
        assert_eq!(course.step_ns, 8 * FIRST_STEP_NS);
        assert_eq!(course.delay_ns, vec![24; 125]);
        assert_eq!(course.throttled_ns.iter().sum::<u64>(), 500);
    }

    #[test]
    fn absent_figures_stay_absent() {
        let mut waiting = Waiting::start(false);
        (waiting.delay_ns, waiting.cgroup, waiting.throttled) = (None, None, None);
        waiting.read(7);
        assert_eq!(waiting.of_thread(nix::unistd::gettid().as_raw(), true), None);
        let message = waiting.message();
        assert_eq!(
            (message.run_delay_ns, message.throttled_ns, message.throttled_periods),
            (None, None, None)
        );
        assert!(message.run_delay_us.is_empty() && message.throttled_us.is_empty());
    }

    #[test]
    fn threads_from_before_the_profile_begin_at_zero() {
        let own = nix::unistd::gettid().as_raw();
        let mut waiting = Waiting::start(false);
        if waiting.tasks.run_delay_ns(own).is_none() {
            return;
        }
        (waiting.before, waiting.unread) = (FxHashMap::default(), FxHashSet::from_iter([own]));
        assert_eq!(waiting.of_thread(own, false), Some(0));
        assert!(waiting.unread.contains(&own), "an idle thread is not read");
        assert_eq!(waiting.of_thread(own, true), Some(0), "its first reading");
        let before = waiting.before.insert(own, 0).expect("the first reading is kept");
        assert!(waiting.of_thread(own, true) >= Some(before));
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_delay() {
        assert_eq!(Tasks::open().run_delay_ns(i32::MAX), None);
    }

    #[test]
    fn delays_of_ended_threads_are_kept() {
        let mut waiting = Waiting::start(true);
        waiting.delay_ns = Some(0);
        waiting.ended(1, Some(5_000));
        waiting.read(2_000);
        assert_eq!(waiting.message().run_delay_ns, Some(7_000));
        assert_eq!(waiting.message().run_delay_us.iter().sum::<u64>(), 7);
    }
}
