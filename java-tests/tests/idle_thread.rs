//! A thread that burns nothing has no samples.

use java_tests::{Workload, on_every_jdk};

on_every_jdk! {
    fn no_sample(jdk) {
        let run = Workload::new("IdleThread").argument(2).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        for idle in summary.threads_named("idle") {
            assert_eq!(idle.samples, 0, "{idle:?}");
            assert_eq!(idle.sampled_ns, 0, "{idle:?}");
        }
        assert_eq!(run.stacks().ns_below("IdleThread.park"), 0);
        assert!(run.stacks().ns_below("IdleThread.burn") > 0);
    }
}
