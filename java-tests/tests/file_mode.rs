//! The bare agent writing a recording file: no collector, no `tickwalk record` around it.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk};

on_every_jdk! { beside;
    fn recording_without_collector(jdk) {
        let run = Workload::new("TightLoop").argument(2).record_to_file(jdk, "interval=10ms");
        run.assert_exit_code(0);
        assert_eq!(run.stderr, "", "a healthy agent says nothing");
        run.assert_stretch("TightLoop.spin", INTERVAL_NS);
    }
}

on_every_jdk! { beside;
    fn killed(jdk) {
        let run = Workload::new("Killed").kill_after_cpu_ns(3_000_000_000).record_to_file(jdk, "");
        run.assert_exit_code(128 + 9);
        assert!(run.stacks().ns_below("Killed.burn") > 0, "nothing readable in the cut file");
    }
}
