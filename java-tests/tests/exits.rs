//! However a program ends, `tickwalk record` returns its exit code and the recording holds all samples until then.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use java_tests::collector::CollectorProcess;
use java_tests::{INTERVAL_NS, Workload, create_end_file, on_every_jdk, on_jdks, span_tolerance_ns};

on_jdks! { concurrent 11, 25;
    /// `System.exit(7)` from another thread than main, while others burn.
    fn system_exit(jdk) {
        let run = Workload::new("SystemExit").argument(1).record(jdk);
        run.assert_exit_code(7);
        let summary = run.summary();
        assert!(summary.complete);
        // Two threads burn while the clocks are read, so the clock of the process does not agree with theirs.
        summary.assert_sums_close();
        // The truth excludes the CPU time of the exit itself, which is mostly class loading.
        let truth = run.truth.method_cpu_ns("Burner.burn");
        let sampled = run.stacks_by_thread().ns_where(|stack| stack.has("exiting") && stack.has("Burner.burn"));
        let (tolerance, lost) = (span_tolerance_ns(INTERVAL_NS), run.starvation_loss_ns());
        assert!(
            sampled <= truth + tolerance && truth <= sampled + lost + tolerance,
            "sampled {sampled}, true {truth}, lost {lost}"
        );
        assert!(run.flamegraph().is_file());
    }
}

on_jdks! { concurrent 11, 25;
    fn uncaught_exception(jdk) {
        let run = Workload::new("UncaughtException").argument(1).record(jdk);
        run.assert_exit_code(1);
        assert!(run.stderr.contains("IllegalStateException: on purpose"), "{}", run.stderr);
        assert!(run.summary().complete);
        run.assert_method_time("Burner.burn", INTERVAL_NS);
    }
}

on_jdks! { concurrent 25;
    /// After SIGKILL, everything that was sent is readable, and the recording is marked as incomplete.
    fn killed(jdk) {
        // Samples are sent once a second.
        let run = Workload::new("Burner").argument(60).kill_after_cpu_ns(2_000_000_000).record(jdk);
        run.assert_exit_code(128 + 9);
        let summary = run.summary();
        assert!(!summary.complete, "the recording of a killed program is complete");
        assert!(summary.samples > 0);
        let sampled = run.stacks().ns_below("Burner.burn");
        let truth = run.truth.method_cpu_ns("Burner.burn");
        assert!(sampled > 0, "nothing readable of {truth} ns");
        // The workload reports its CPU time every 100 ms and runs until the signal arrives.
        assert!(sampled <= truth + 200_000_000 + span_tolerance_ns(INTERVAL_NS), "sampled {sampled}, true {truth}");
    }
}

on_jdks! { 11, 25;
    /// A collector that accepts a connection and never answers is named, and the program ends without waiting for it.
    fn silent_collector(jdk) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let options = format!("collector={}", listener.local_addr().expect("an address"));
        let hello = Workload::new("Hello");
        // The shortest of some runs, because other processes delay them.
        let shortest = |run: &dyn Fn()| {
            let times = (0..3).map(|_| {
                let begin = Instant::now();
                run();
                begin.elapsed()
            });
            times.min().unwrap_or_default()
        };
        let unprofiled = shortest(&|| assert_eq!(hello.run_unprofiled(jdk).exit_code(), 0));
        let profiled = shortest(&|| {
            let finished = hello.run_with_agent(jdk, &options);
            assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
            let lines: Vec<&str> = finished.stderr.lines().collect();
            let [line] = lines[..] else { panic!("not exactly one line on stderr: {lines:?}") };
            assert!(line.contains(&options) && line.contains("never answered"), "{line}");
        });
        // 80 ms of waiting, and the start of the agent; a wait for an answer would take seconds.
        assert!(profiled < 2 * unprofiled + Duration::from_secs(1), "{profiled:?}, unprofiled {unprofiled:?}");
    }
}

on_jdks! { 25;
    /// A collector that answered and then hangs is named, and the program ends without waiting for it.
    fn hanging_collector(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        // Returns how long the end of the program takes, and what it wrote to standard error.
        let end = |options: Option<&str>, collector: Option<&CollectorProcess>| {
            let end_file = directory.path().join("end");
            let workload = Workload::burner(0, &end_file);
            let mut ends = None;
            let mut end_it = || {
                if collector.is_none_or(|collector| collector.sessions() > 0) && ends.is_none() {
                    collector.inspect(|collector| collector.hang());
                    ends = Some(Instant::now());
                    create_end_file(&end_file);
                }
            };
            let finished = match options {
                None => workload.run_unprofiled_watched(jdk, |_, _| end_it()),
                Some(options) => workload.run_with_agent_watched(jdk, options, |_| end_it()),
            };
            let took = ends.expect("the workload reported a CPU time").elapsed();
            std::fs::remove_file(&end_file).expect("the end file");
            assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
            (took, finished.stderr)
        };
        // The shortest of some runs, because other processes delay them.
        let shortest = |run: &dyn Fn() -> Duration| (0..3).map(|_| run()).min().unwrap_or_default();
        let unprofiled = shortest(&|| end(None, None).0);
        let profiled = shortest(&|| {
            let address = format!("unix:{}", directory.path().join("socket").display());
            let collector = CollectorProcess::start(&address, directory.path(), &[]);
            let (took, stderr) = end(Some(&format!("collector={address},interval=1ms")), Some(&collector));
            let lines: Vec<&str> = stderr.lines().collect();
            let [line] = lines[..] else { panic!("not exactly one line on stderr: {lines:?}") };
            // The text distinguishes 80 ms from some seconds even on a busy machine.
            assert!(line.contains("acknowledged nothing for 80ms, "), "{line}");
            took
        });
        // 80 ms of silence, and the end of the profile.
        assert!(profiled < 2 * unprofiled + Duration::from_millis(700), "{profiled:?}, unprofiled {unprofiled:?}");
    }
}

on_every_jdk! { concurrent;
    /// Checked JNI has nothing to say about the agent.
    fn checked_jni(jdk) {
        let workload = Workload::new("FourThreads").argument(1).jvm_option("-Xcheck:jni");
        let warnings = |output: &str| output.lines().filter(|line| line.contains("WARNING")).count();
        let unprofiled = workload.run_unprofiled(jdk);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let profiled =
            workload.run_with_agent(jdk, &format!("file={}", folder.path().join("recording.tickwalk").display()));
        assert_eq!(warnings(&profiled.stdout), warnings(&unprofiled.stdout), "{}", profiled.stdout);
        assert_eq!(profiled.stderr, unprofiled.stderr);
    }
}

on_every_jdk! { concurrent;
    /// A thread has the name that it had last, whoever gave it, and whether it ended or not.
    fn renamed_threads(jdk) {
        let run = Workload::new("RenamedThreads").argument(1).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        for name in ["renamed by itself", "renamed by main"] {
            assert!(summary.thread(name).sampled_ns > 500_000_000, "{:?}", summary.threads);
        }
        assert!(summary.threads_named("first name").is_empty() && summary.threads_named("second name").is_empty());
    }
}

on_jdks! { concurrent 25;
    /// Native threads have the names that they had last, and control characters in them are shown as escapes.
    fn renamed_native_threads(jdk) {
        let library = java_tests::native_library("renames");
        let run = Workload::new("RenamedNatives").argument(library.display()).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        for name in ["second-pthread", "second-\u{e9}\\u001b"] {
            assert!(summary.thread(name).sampled_ns > 1_000_000_000, "{:?}", summary.threads);
        }
        assert!(summary.threads_named("first-pthread").is_empty(), "{:?}", summary.threads);
        assert!(summary.threads_named("first-prctl").is_empty(), "{:?}", summary.threads);
    }
}

on_jdks! { concurrent 25;
    /// At the limit of file sizes the recording ends with one line; the program goes on, and its end is not delayed.
    fn file_size_limit(jdk) {
        // Names that are met in the first second take some 30 kB, each further second some 2 kB.
        let burner = Workload::new("TwoMethods").argument(12).limit_file_size(45_000);
        let run = burner.record_option("--interval=1ms").record(jdk);
        let recording = run.recording.display();
        let told = format!("cannot write {recording}: File too large (os error 27); the profile ends here, and the program goes on");
        assert_eq!(run.stderr.matches(&told).count(), 1, "{}", run.stderr);
        // The page is larger than the limit as well.
        assert_eq!(run.exit_code, 1, "{}", run.stderr);
        assert!(run.stderr.contains("flamegraph.html: File too large"), "{}", run.stderr);
        assert!(!run.stderr.contains("collector") && run.truth.method_cpu_ns("TwoMethods.heavy") > 0, "{}", run.stderr);
        // What was written before is a recording, and nothing is left beside it.
        assert!(run.tickwalk(&["top"]).contains("TwoMethods"), "samples before the limit");
        let folder = run.recording.parent().expect("a folder");
        let names: Vec<_> = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["recording.tickwalk"]);
    }
}
