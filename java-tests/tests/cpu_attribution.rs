//! CPU time goes to the method and the thread that burnt it.

use java_tests::{
    INTERVAL_NS, Run, Workload, binomial_tolerance, on_every_jdk, stretch_tolerance_ns, turns_tolerance_ns,
};

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
        assert!(truth > 0.5, "the workload itself burns {truth}");
        let turns = run.truth.number("method", "TwoMethods.heavy", "turns");
        let burnt = run.truth.method_cpu_ns("TwoMethods.heavy") + run.truth.method_cpu_ns("TwoMethods.light");
        let tolerance = (turns_tolerance_ns(turns, INTERVAL_NS) + run.starved_ns()) as f64 / burnt as f64;
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");

        let summary = run.summary();
        summary.assert_account_closes();
        assert!(summary.complete);
        summary.assert_losses();
        // What is not explained is the JVM's own start, and a period that each thread has not finished.
        let cpu = &summary.cpu_ns;
        let explained = cpu.sampled as f64 / (cpu.kernel + cpu.before_timer) as f64;
        assert!((summary.explained - explained).abs() < 1e-6, "explained {}, {explained}", summary.explained);

        let main = summary.thread("main");
        let begun = run.truth.number("thread", "main", "begun_ns") as i64;
        assert!(main.before_timer_ns <= begun, "its timer came late: {main:?}, main() began at {begun}");
        // The clock is read last once main() has returned, and the JVM's end burns some time on this thread.
        let (burnt, clock) = (run.truth.thread_cpu_ns("main") as i64, main.clock_ns());
        assert!((burnt..=burnt + burnt / 20).contains(&clock), "{main:?}: {clock}, the thread's own clock {burnt}");
        let open_ns = stretch_tolerance_ns(INTERVAL_NS) as i64;
        let open_ns = open_ns + summary.starved.longest_ns() as i64;
        assert!(main.unfinished_ns <= open_ns, "neither sampled nor lost: {main:?}");
        // The export holds exactly what the account says was sampled.
        assert_eq!(i64::try_from(run.stacks().total_ns()), Ok(summary.cpu_ns.sampled));
    }
}

on_every_jdk! { beside;
    /// Slices far below the interval: every sample is an independent draw of the true shares.
    fn short_slices(jdk) {
        let run = Workload::new("TwoMethods").argument(5).argument(200).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let (sampled, truth) = heavy_shares(&run);
        let tolerance = binomial_tolerance(truth, run.summary().thread("main").samples);
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");
    }
}

on_every_jdk! { beside;
    /// No safepoint poll in the loop, and still all of its time is its own.
    fn tight_loop(jdk) {
        let run = Workload::new("TightLoop").argument(3).record(jdk);
        run.assert_exit_code(0);
        run.assert_stretch("TightLoop.spin", INTERVAL_NS);
    }
}

on_every_jdk! { beside;
    /// Intrinsics, stubs and native methods count for the Java method that called them.
    fn native_code_below_java(jdk) {
        let run = Workload::new("NativeHeavy").argument(6).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        let names = ["copy", "crc", "deflate", "math", "strings", "clock"].map(|name| format!("NativeHeavy.{name}"));
        let names = names.each_ref().map(String::as_str);
        let truth: u64 = names.iter().map(|name| run.truth.method_cpu_ns(name)).sum();
        let sampled: u64 = names.iter().map(|name| stacks.ns_below(name)).sum();
        let starved = run.starved_ns();
        assert!((sampled + starved) as f64 >= 0.95 * truth as f64, "sampled {sampled} of {truth}, starved {starved}");
        run.assert_shares(&names, 0.01);
    }
}
