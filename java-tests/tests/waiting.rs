//! Time without a processor stands beside the CPU time: run-queue delay by thread, and throttling by the cgroup's
//! limit.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use java_tests::{Workload, on_jdks};
use serde_json::Value;

/// Share of a processor that the cgroup may use.
const QUOTA: (u32, u32) = (30_000, 100_000);
/// CPU time and number of the threads.
const CPU_NS: u64 = 900_000_000;
const THREADS: u64 = 3;

/// A cgroup with a CPU limit, removed with this value.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes the cgroup; `None` where this process may not.
    fn limited() -> Option<Self> {
        let first = ["cpu", "cpu,cpuacct"].map(|name| Path::new("/sys/fs/cgroup").join(name));
        let first = first.into_iter().find(|folder| folder.join("cpu.stat").is_file());
        let parent = first.clone().unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
        let folder = parent.join(format!("tickwalk-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self(folder);
        let (quota, period) = QUOTA;
        let limit = match first {
            Some(_) => fs::write(made.0.join("cpu.cfs_quota_us"), quota.to_string()),
            None => fs::write(made.0.join("cpu.max"), format!("{quota} {period}")),
        };
        limit.is_ok().then_some(made)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes have ended; a failure leaves an empty folder.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the first processor that this process may use.
fn first_processor() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let allowed =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("processors");
    allowed.trim().split([',', '-']).next().expect("a number").to_owned()
}

fn sum(column: &Value) -> u64 {
    column.as_array().expect("a column").iter().map(|value| value.as_u64().expect("a number")).sum()
}

on_jdks! { 25;
    /// Three busy threads share a third of a processor.
    fn threads_without_a_processor(jdk) {
        let cgroup = Cgroup::limited();
        let join = match &cgroup {
            Some(Cgroup(folder)) => format!("echo $$ > {}/cgroup.procs && exec \"$@\"", folder.display()),
            None => {
                // Written to the file descriptor, because the test runner captures `eprintln!` of passing tests.
                let _ = writeln!(std::io::stderr(), "SKIPPED throttling: no cgroup with a CPU limit can be made here");
                "exec \"$@\"".to_owned()
            }
        };
        let run = Workload::new("BusyThreads")
            .argument(CPU_NS as f64 / 1e9)
            .argument(THREADS)
            .launcher(&["sh", "-c", &join, "sh", "taskset", "-c", &first_processor()])
            .record_to_file(jdk, "interval=4ms");
        run.assert_exit_code(0);

        let summary: Value = serde_json::from_str(&run.tickwalk(&["top", "--json"])).expect("JSON");
        let waiting = &summary["waiting"];
        let delay_ns = waiting["run_delay_ns"].as_u64().expect("this kernel reports schedstat");
        // While one of them runs, the others wait: twice the CPU time, which the last reading may miss a second of.
        assert!(delay_ns >= CPU_NS, "{waiting}");
        let threads = summary["threads"].as_array().expect("threads");
        let of_threads: u64 = threads.iter().filter_map(|thread| thread["run_delay_ns"].as_u64()).sum();
        assert!(of_threads <= delay_ns, "threads {of_threads}, process {delay_ns}");
        let busiest: Vec<u64> =
            threads.iter().take(THREADS as usize).filter_map(|thread| thread["run_delay_ns"].as_u64()).collect();
        assert!(busiest.len() as u64 == THREADS && busiest.iter().all(|&ns| ns > CPU_NS / THREADS / 2), "{busiest:?}");
        // It is no part of the CPU time.
        let kernel_ns = summary["cpu_ns"]["kernel"].as_u64().expect("a number");
        assert!(kernel_ns < 2 * CPU_NS, "{}", summary["cpu_ns"]);

        // A step of the timeline is rounded up to a microsecond.
        let timeline: Value = serde_json::from_str(&run.tickwalk(&["query", "timeline"])).expect("JSON");
        let in_time = sum(&timeline["waiting"]["run_delay_ns"]);
        assert!(in_time >= delay_ns && in_time - delay_ns < 1_000_000, "{in_time} in the timeline, {delay_ns} in all");

        let table = run.tickwalk(&["top", "--by", "thread"]);
        assert!(table.contains(" runnable ") && !table.contains("not reported"), "{table}");
        let report = run.tickwalk(&["top", "--verbose"]);
        assert!(report.contains("of threads ready to run without a processor"), "{report}");
        if let Some(Cgroup(folder)) = &cgroup {
            // The program was the only one in the cgroup; a machine with too few processors for the quota throttles
            // less.
            let stat = fs::read_to_string(folder.join("cpu.stat")).expect("cpu.stat");
            let value = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            let kernel_ns = value("throttled_usec ").map(|us| us * 1000).or_else(|| value("throttled_time "));
            let kernel_ns = kernel_ns.expect("a limit reports");
            let throttled_ns = waiting["throttled_ns"].as_u64().expect("a limit reports");
            // The JVM starts before the profile does, in some tenths of a second.
            assert!(
                throttled_ns <= kernel_ns && kernel_ns - throttled_ns < 1_000_000_000,
                "{kernel_ns} since the start of the JVM: {waiting}"
            );
            assert!(throttled_ns == 0 || waiting["throttled_periods"].as_u64() > Some(0), "{waiting}");
            let in_time = sum(&timeline["waiting"]["throttled_ns"]);
            assert!(in_time >= throttled_ns && in_time - throttled_ns < 1_000_000, "{in_time}: {waiting}");
            let warning = "warning: the cgroup's CPU limit stopped the program for ";
            assert_eq!(report.contains(warning), throttled_ns > 0, "{report}");
        }
    }
}
