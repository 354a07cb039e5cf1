//! A thread that burns no CPU time has no samples.

use java_tests::{INTERVAL_NS, Workload, on_jdks, reported_tick_ns};

on_jdks! { concurrent 11, 25;
    fn an_idle_thread_has_no_sample(jdk) {
        let run = Workload::new("IdleThread").argument(2).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        // The thread's start takes CPU time, and it has taken over some that other threads left unfinished. Its samples
        // stand for whole periods of its timer of both together, an eighth of a tick each.
        let period_ns = (reported_tick_ns() / 8) as i64;
        let truth = run.truth.thread_cpu_ns("idle") as i64;
        assert!(truth < 1_000_000_000, "idle burnt {truth} ns");
        let mut carried = 0;
        for idle in summary.threads_named("idle") {
            carried += idle.carried_ns;
            let most = (truth + idle.carried_ns) / period_ns * period_ns;
            assert!(idle.sampled_ns <= most, "{idle:?} burnt {truth} ns");
        }
        let parked = run.stacks().ns_below("IdleThread.park") as i64;
        assert!(parked <= (truth + carried) / period_ns * period_ns, "{parked} of {truth} ns");
        run.assert_method_time("Burner.burn", INTERVAL_NS);
    }
}
