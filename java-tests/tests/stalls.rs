//! The instruction that waits is charged, not the one behind it.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk};

on_every_jdk! { concurrent;
    /// A cheap method is inlined behind a load that misses the caches; the timer interrupts behind that load, or at it
    /// while its address is translated.
    fn a_cheap_method_behind_a_cache_miss_costs_nothing(jdk) {
        let run = Workload::new("PointerChase").argument(4).jvm_option("-Xbatch");
        let run = run.record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        run.assert_method_time("PointerChase.measured", INTERVAL_NS);
        let chase = run.stacks().below("PointerChase.measured").below("PointerChase.chase");
        let truth = run.truth.method_cpu_ns("PointerChase.measured");
        assert!(chase.total_ns() >= truth / 2, "the loop has {} of {truth}", chase.total_ns());
        let cheap = chase.share_where(|stack| stack.has("PointerChase.cheap"));
        assert!(cheap <= 0.03, "the cheap method has {cheap} of the loop");
    }
}
