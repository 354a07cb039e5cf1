//! The workloads without the profiler do what the other tests rely on.

use java_tests::{Truth, Workload, on_jdks};

on_jdks! { 11, 25;
    fn truth_is_consistent(jdk) {
        let finished = Workload::new("TwoMethods").argument(1).argument(20_000).run_unprofiled(jdk);
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        let truth = Truth::parse(&finished.stdout);
        let heavy = truth.method_cpu_ns("TwoMethods.heavy") as f64;
        let light = truth.method_cpu_ns("TwoMethods.light") as f64;
        assert!(heavy > light && heavy + light >= 1e9, "heavy {heavy}, light {light}");
        // Only the start and the workload's own bookkeeping are missing.
        let (main, start) = (truth.thread_cpu_ns("main") as f64, truth.number("thread", "main", "start_ns") as f64);
        let between = main - start;
        assert!(heavy + light <= between && heavy + light >= 0.7 * between, "{heavy} + {light} of {between}");
    }
}

on_jdks! { concurrent 25;
    fn exit_codes(jdk) {
        assert_eq!(Workload::new("SystemExit").argument(0.1).run_unprofiled(jdk).exit_code(), 7);
        assert_eq!(Workload::new("UncaughtException").argument(0.1).run_unprofiled(jdk).exit_code(), 1);
        assert_eq!(Workload::new("Burner").argument(60).kill_after_cpu_ns(100_000_000).run_unprofiled(jdk).exit_code(), 128 + 9);
    }
}
