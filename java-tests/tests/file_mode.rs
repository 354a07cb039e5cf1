//! The agent alone writes a recording file, without a collector or `tickwalk record`.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk};

on_every_jdk! { concurrent;
    fn recording_without_collector(jdk) {
        let run = Workload::new("TightLoop").argument(2).record_to_file(jdk, "interval=10ms");
        run.assert_exit_code(0);
        assert_eq!(run.stderr, "", "the agent printed something");
        run.assert_method_time("TightLoop.spin", INTERVAL_NS);
    }
}

on_every_jdk! { concurrent;
    fn recording_of_a_killed_program_is_readable(jdk) {
        let run = Workload::new("Burner").kill_after_cpu_ns(3_000_000_000).record_to_file(jdk, "");
        run.assert_exit_code(128 + 9);
        assert!(run.stacks().ns_below("Burner.burn") > 0, "nothing readable in the cut file");
    }
}
