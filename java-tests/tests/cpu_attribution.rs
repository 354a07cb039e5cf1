//! CPU time goes to the method and the thread that burnt it.

use java_tests::{INTERVAL_NS, Run, Workload, binomial_tolerance, on_every_jdk};

/// The share of `heavy` among the sampled CPU time of `heavy` and `light`, and the same by their own clock.
#[track_caller]
fn heavy_shares(run: &Run) -> (f64, f64) {
    let stacks = run.stacks();
    let share = |heavy: u64, light: u64| heavy as f64 / ((heavy + light) as f64);
    let sampled = share(stacks.ns_below("TwoMethods.heavy"), stacks.ns_below("TwoMethods.light"));
    let truth =
        share(run.truth.method_cpu_ns("TwoMethods.heavy"), run.truth.method_cpu_ns("TwoMethods.light"));
    (sampled, truth)
}

on_every_jdk! {
    /// Slices longer than the interval: each boundary is off by less than one interval, so the error is small.
    fn two_methods_three_to_one(jdk) {
        let run = Workload::new("TwoMethods").argument(6).argument(50_000).record(jdk);
        run.assert_exit_code(0);
        let (sampled, truth) = heavy_shares(&run);
        assert!((truth - 0.75).abs() < 0.02, "the workload itself burns {truth}");
        assert!((sampled - truth).abs() < 0.02, "sampled {sampled}, true {truth}");

        let summary = run.summary();
        summary.assert_account_closes();
        assert!(summary.complete);
        assert_eq!(summary.cpu_ns.lost_total(), 0, "lost at 10 ms: {:?}", summary.cpu_ns.lost);
        // Most of the process is the burning thread; the short-lived rest of a JVM start stays unfinished.
        assert!(summary.explained >= 0.95, "explained {}", summary.explained);

        let main = summary.thread("main");
        let burnt = run.truth.thread_cpu_ns("main") as i64;
        let interval = INTERVAL_NS as i64;
        assert!(
            (main.kernel_ns + main.before_timer_ns - burnt).abs() <= burnt / 100 + interval,
            "kernel {} + {} before the timer, the thread's own clock {burnt}",
            main.kernel_ns,
            main.before_timer_ns
        );
        assert!(
            (main.sampled_ns - main.kernel_ns).abs() <= main.kernel_ns / 100 + interval,
            "sampled {}, kernel {}",
            main.sampled_ns,
            main.kernel_ns
        );
        // The export holds exactly what the account says was sampled.
        assert_eq!(i64::try_from(run.stacks().total_ns()), Ok(summary.cpu_ns.sampled));
    }
}

on_every_jdk! {
    /// Slices far below the interval: every sample is an independent draw of the true shares.
    fn short_slices(jdk) {
        let run = Workload::new("TwoMethods").argument(5).argument(200).record(jdk);
        run.assert_exit_code(0);
        let (sampled, truth) = heavy_shares(&run);
        let tolerance = binomial_tolerance(truth, run.summary().samples);
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");
    }
}

on_every_jdk! {
    /// No safepoint poll in the loop, and still all of its time is its own.
    fn tight_loop(jdk) {
        let run = Workload::new("TightLoop").argument(3).record(jdk);
        run.assert_exit_code(0);
        let truth = run.truth.method_cpu_ns("TightLoop.spin");
        let sampled = run.stacks().ns_below("TightLoop.spin");
        let difference = sampled.abs_diff(truth);
        assert!(difference <= truth / 50 + INTERVAL_NS, "sampled {sampled}, true {truth}");
    }
}

on_every_jdk! {
    /// Intrinsics, stubs and native methods count for the Java method that called them.
    fn native_code_below_java(jdk) {
        let run = Workload::new("NativeHeavy").argument(6).record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        let names = ["copy", "crc", "deflate", "math", "strings", "clock"].map(|name| format!("NativeHeavy.{name}"));
        let total_truth: u64 = names.iter().map(|name| run.truth.method_cpu_ns(name)).sum();
        let total: u64 = names.iter().map(|name| stacks.ns_below(name)).sum();
        assert!(total as f64 >= 0.95 * total_truth as f64, "sampled {total} of {total_truth}");
        for name in &names {
            let truth = run.truth.method_cpu_ns(name) as f64 / total_truth as f64;
            let sampled = stacks.ns_below(name) as f64 / total as f64;
            let tolerance = binomial_tolerance(truth, run.summary().samples) + 0.01;
            assert!((sampled - truth).abs() <= tolerance, "{name}: sampled {sampled}, true {truth}, tolerance {tolerance}");
        }
    }
}
