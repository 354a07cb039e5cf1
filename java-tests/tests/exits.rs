//! However the program ends, its own exit code comes out and the recording holds what was sampled until then.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk, stretch_tolerance_ns};

on_every_jdk! { beside;
    /// `System.exit(7)` from another thread than main, while others burn.
    fn system_exit(jdk) {
        let run = Workload::new("SystemExit").argument(1).record(jdk);
        run.assert_exit_code(7);
        let summary = run.summary();
        assert!(summary.complete);
        // Two threads burn while the clocks are read, so that the process's tells of another moment than theirs.
        summary.assert_sums_close();
        // What the exit itself burns is not in the truth: class loading, for the most part.
        let truth = run.truth.method_cpu_ns("SystemExit.burn");
        let sampled = run.stacks_by_thread().ns_where(|stack| stack.has("exiting") && stack.has("SystemExit.burn"));
        let (tolerance, starved) = (stretch_tolerance_ns(INTERVAL_NS), run.starved_ns());
        assert!(
            sampled <= truth + tolerance && truth <= sampled + starved + tolerance,
            "sampled {sampled}, true {truth}, starved {starved}"
        );
        assert!(run.flamegraph().is_file());
    }
}

on_every_jdk! { beside;
    fn uncaught_exception(jdk) {
        let run = Workload::new("UncaughtException").argument(1).record(jdk);
        run.assert_exit_code(1);
        assert!(run.stderr.contains("IllegalStateException: on purpose"), "{}", run.stderr);
        assert!(run.summary().complete);
        run.assert_stretch("UncaughtException.burn", INTERVAL_NS);
    }
}

on_every_jdk! { beside;
    /// `kill -9`: everything sent before the cut can be read, and the recording says that it was cut.
    fn killed(jdk) {
        let run = Workload::new("Killed").kill_after_cpu_ns(3_000_000_000).record(jdk);
        run.assert_exit_code(128 + 9);
        let summary = run.summary();
        assert!(!summary.complete, "a killed program cannot have ended in order");
        assert!(summary.samples > 0);
        let sampled = run.stacks().ns_below("Killed.burn");
        let truth = run.truth.method_cpu_ns("Killed.burn");
        assert!(sampled > 0, "nothing readable of {truth} ns");
        // The workload tells its time every 100 ms, and nothing stops it before the signal: what it told last is read
        // to the end of its output.
        assert!(sampled <= truth + 200_000_000 + stretch_tolerance_ns(INTERVAL_NS), "sampled {sampled}, true {truth}");
    }
}
