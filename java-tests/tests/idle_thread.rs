//! A thread that burns no CPU time has no samples.

use java_tests::{INTERVAL_NS, Workload, on_every_jdk};

on_every_jdk! { concurrent;
    fn an_idle_thread_has_no_sample(jdk) {
        let run = Workload::new("IdleThread").argument(2).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        // The thread's start takes CPU time, and it may have taken over an almost finished period. It must have no
        // sample as long as both together are less than an interval.
        let truth = run.truth.thread_cpu_ns("idle") as i64;
        assert!(truth < 1_000_000_000, "idle burnt {truth} ns");
        let mut carried = 0;
        for idle in summary.threads_named("idle") {
            carried += idle.carried_ns;
            let most = (truth + idle.carried_ns) / INTERVAL_NS as i64 * INTERVAL_NS as i64;
            assert!(idle.sampled_ns <= most, "{idle:?} burnt {truth} ns");
        }
        let parked = run.stacks().ns_below("IdleThread.park") as i64;
        assert!(parked <= (truth + carried) / INTERVAL_NS as i64 * INTERVAL_NS as i64, "{parked} of {truth} ns");
        run.assert_method_time("IdleThread.burn", INTERVAL_NS);
    }
}
