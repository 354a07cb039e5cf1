//! However a program ends, `tickwalk record` returns its exit code and the recording holds all samples until then.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk, span_tolerance_ns};

on_every_jdk! { concurrent;
    /// `System.exit(7)` from another thread than main, while others burn.
    fn system_exit(jdk) {
        let run = Workload::new("SystemExit").argument(1).record(jdk);
        run.assert_exit_code(7);
        let summary = run.summary();
        assert!(summary.complete);
        // Two threads burn while the clocks are read, so the clock of the process does not agree with theirs.
        summary.assert_sums_close();
        // The truth excludes the CPU time of the exit itself, which is mostly class loading.
        let truth = run.truth.method_cpu_ns("SystemExit.burn");
        let sampled = run.stacks_by_thread().ns_where(|stack| stack.has("exiting") && stack.has("SystemExit.burn"));
        let (tolerance, lost) = (span_tolerance_ns(INTERVAL_NS), run.starvation_loss_ns());
        assert!(
            sampled <= truth + tolerance && truth <= sampled + lost + tolerance,
            "sampled {sampled}, true {truth}, lost {lost}"
        );
        assert!(run.flamegraph().is_file());
    }
}

on_every_jdk! { concurrent;
    fn uncaught_exception(jdk) {
        let run = Workload::new("UncaughtException").argument(1).record(jdk);
        run.assert_exit_code(1);
        assert!(run.stderr.contains("IllegalStateException: on purpose"), "{}", run.stderr);
        assert!(run.summary().complete);
        run.assert_method_time("UncaughtException.burn", INTERVAL_NS);
    }
}

on_every_jdk! { concurrent;
    /// After SIGKILL, everything that was sent is readable, and the recording is marked as incomplete.
    fn killed(jdk) {
        let run = Workload::new("Burner").kill_after_cpu_ns(3_000_000_000).record(jdk);
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
