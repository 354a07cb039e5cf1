//! `clock=perf`: samples at any time, in place of the kernel's ticks.
//!
//! Where perf events are not permitted, these tests say so and check nothing.

use std::fs;
use std::process::Command;

use java_tests::collector::summary_of;
use java_tests::{
    Run, Workload, binaries, binomial_tolerance, create_end_file, native_library, on_jdks, reported_tick_ns,
    run, tickwalk,
};

const INTERVAL_NS: u64 = 1_000_000;

/// Returns whether `doctor` says that perf events may be used; complains on standard error if not.
fn may_use_perf() -> bool {
    let finished = tickwalk(&["doctor", "--format", "json", "--java", "/nonexistent"]);
    let may = finished.stdout.contains("clock=perf may be used");
    if !may {
        assert!(finished.stdout.contains("clock=perf cannot be used"), "{}", finished.stdout);
        eprintln!("SKIPPED: perf events are not permitted here; set kernel.perf_event_paranoid=1");
    }
    may
}

/// Returns the number of perf events among the descriptors of a process.
fn perf_descriptors(pid: i32) -> usize {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    let links = listing.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("perf_event")).count()
}

/// Returns the CPU time of each of these methods in samples.
fn sampled_ns(run: &Run, methods: &[&str]) -> Vec<u64> {
    let stacks = run.stacks_by_thread();
    methods.iter().map(|method| stacks.ns_where(|stack| stack.has(method))).collect()
}

on_jdks! { 11, 25;
    /// Four methods of a quarter of a tick each, in phase with the tick, of which timers show what ticks meet: each has
    /// its share, and a sample stands for about a millisecond.
    fn phases_of_the_tick(jdk) {
        const METHODS: [&str; 4] = ["FourPhases.first", "FourPhases.second", "FourPhases.third", "FourPhases.fourth"];
        if !may_use_perf() {
            return;
        }
        let run = Workload::new("FourPhases")
            .argument(2)
            .argument(reported_tick_ns() / 4)
            .record_option("--interval=1ms")
            .record_option("--clock=perf")
            .record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        let sampled = sampled_ns(&run, &METHODS);
        let all: u64 = sampled.iter().sum();
        let samples = summary.thread("main").samples;
        // The period is within a twentieth of the interval; a thread that waits for a processor gets corrections as
        // well.
        let (least, most) = (all * 90 / 100 / INTERVAL_NS, all * 115 / 100 / INTERVAL_NS);
        assert!((least..=most).contains(&samples), "{samples} samples of {all} ns");
        for (method, sampled) in METHODS.iter().zip(&sampled) {
            let (shown, truth) = (*sampled as f64 / all as f64, 0.25);
            let tolerance = binomial_tolerance(truth, samples);
            assert!((shown - truth).abs() <= tolerance, "{method}: {shown}, tolerance {tolerance}: {sampled} of {all}");
        }
    }
}

on_jdks! { 25;
    /// Threads of 42 to 336 us: each length has the share of its CPU time.
    fn threads_shorter_than_the_interval(jdk) {
        const METHODS: [&str; 4] =
            ["TinyThreads.burn42", "TinyThreads.burn84", "TinyThreads.burn168", "TinyThreads.burn336"];
        if !may_use_perf() {
            return;
        }
        let workload = Workload::new("TinyThreads").argument(0).argument(2_000);
        let run = workload.record_option("--interval=1ms").record_option("--clock=perf").record(jdk);
        run.assert_exit_code(0);
        run.summary().assert_account_closes();
        let sampled = sampled_ns(&run, &METHODS);
        let burnt = METHODS.map(|method| run.truth.method_cpu_ns(method));
        let (all_sampled, all_burnt) = (sampled.iter().sum::<u64>(), burnt.iter().sum::<u64>());
        for ((method, sampled), burnt) in METHODS.iter().zip(&sampled).zip(&burnt) {
            let (shown, truth) = (*sampled as f64 / all_sampled as f64, *burnt as f64 / all_burnt as f64);
            let tolerance = binomial_tolerance(truth, all_sampled / INTERVAL_NS);
            assert!((shown - truth).abs() <= tolerance, "{method}: {shown}, truth {truth}, tolerance {tolerance}");
        }
    }
}

on_jdks! { concurrent 17, 25;
    /// Signals of perf events need no place among the user's pending signals.
    fn no_pending_signals(jdk) {
        if !may_use_perf() {
            return;
        }
        let workload = Workload::new("TightLoop").argument(2).launcher(&["prlimit", "--sigpending=0"]);
        let run = workload.record_to_file(jdk, "interval=1ms,clock=perf");
        run.assert_exit_code(0);
        let summary = summary_of(&run.recording, &run.starvation);
        summary.assert_account_closes();
        assert!(summary.samples > 1_000, "{summary:?}");
    }
}

on_jdks! { concurrent 17, 25;
    /// Native code replaces the process by another program: no signal of the profiler ends it.
    fn another_program_in_place_of_the_jvm(jdk) {
        const RUNS: usize = 12;
        if !may_use_perf() {
            return;
        }
        let library = native_library("replaces");
        for options in ["clock=perf,interval=100us", "clock=perf,interval=1ms", "interval=1ms", "mode=wall,interval=1ms"] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let options = format!("{options},file={}", folder.path().join("recording.tickwalk").display());
            let workload = Workload::new("ReplacesProcess").argument(0.05).argument(library.display());
            let ends: Vec<i32> = (0..RUNS).map(|_| workload.run_with_agent(jdk, &options).exit_code()).collect();
            assert_eq!(ends, [0; RUNS], "{options}: a signal ends a program with 128 and its number");
        }
    }
}

on_jdks! { concurrent 25;
    /// A process that may not sample the kernel gets one line, and the JVM runs on without a profile.
    fn refused(jdk) {
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("a setting");
        if paranoid.trim().parse::<i32>().expect("a number") < 2 {
            eprintln!("SKIPPED: kernel.perf_event_paranoid={} refuses nobody", paranoid.trim());
            return;
        }
        // Only the superuser has these rights to give up.
        let without: &[&str] = match nix::unistd::geteuid().is_root() {
            true => &["setpriv", "--bounding-set=-sys_admin,-perfmon"],
            false => &[],
        };
        let run = Workload::new("TightLoop").argument(1).launcher(without).record_to_file(jdk, "clock=perf");
        run.assert_exit_code(0);
        let lines: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("tickwalk:")).collect();
        assert_eq!(lines.len(), 1, "{}", run.stderr);
        assert!(lines[0].contains("clock=perf: the kernel refuses perf events"), "{}", run.stderr);
        assert!(lines[0].contains("leave clock=perf out"), "{}", run.stderr);
        assert!(!run.recording.exists(), "no recording is begun");
    }
}

on_jdks! { concurrent 11, 25;
    /// Profiles one after the other leave no descriptor in the JVM.
    fn no_descriptor_is_left(jdk) {
        if !may_use_perf() {
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let mut before = None;
        let mut during = Vec::new();
        let mut after = Vec::new();
        let program = Workload::burner(1, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            if after.len() == 3 {
                create_end_file(&end_file);
                return;
            }
            before.get_or_insert_with(|| perf_descriptors(pid));
            let command = |verb: &str, options: &[&str]| {
                let mut command = Command::new(binaries::tickwalk());
                command.arg(verb).args(options).arg(pid.to_string()).current_dir(folder.path());
                let finished = run(command, |_| ());
                assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
            };
            command("start", &["--interval", "1ms", "--clock", "perf"]);
            during.push(perf_descriptors(pid));
            command("stop", &[]);
            after.push(perf_descriptors(pid));
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert_eq!(before, Some(0));
        assert!(during.iter().all(|events| *events > 5), "{during:?}");
        assert_eq!(after, [0, 0, 0]);
    }
}
