//! CPU time is attributed to the method and the thread that used it.

use java_tests::{
    INTERVAL_NS, Run, Workload, binomial_tolerance, on_every_jdk, span_tolerance_ns, spans_tolerance_ns,
};

/// Returns the share of `heavy` in the CPU time of `heavy` and `light`: the sampled one and the true one.
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
    /// The methods run for longer than the interval: each end of a span is off by less than one interval, so the error
    /// is small.
    fn long_spans(jdk) {
        let run = Workload::new("TwoMethods").argument(6).argument(50_000).record(jdk);
        run.assert_exit_code(0);
        let (sampled, truth) = heavy_shares(&run);
        assert!(truth > 0.5, "the workload itself burns {truth}");
        let spans = run.truth.number("method", "TwoMethods.heavy", "spans");
        let burnt = run.truth.method_cpu_ns("TwoMethods.heavy") + run.truth.method_cpu_ns("TwoMethods.light");
        let tolerance = (spans_tolerance_ns(spans, INTERVAL_NS) + run.starvation_loss_ns()) as f64 / burnt as f64;
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");

        let summary = run.summary();
        summary.assert_account_closes();
        assert!(summary.complete);
        summary.assert_losses();
        // The start of the JVM, the unfinished period of each thread, the profiler and the ends of threads are not
        // explained.
        let cpu = &summary.cpu_ns;
        let explained = cpu.sampled as f64 / summary.process_cpu_ns as f64;
        assert!((summary.explained - explained).abs() < 1e-6, "explained {}, {explained}", summary.explained);

        let main = summary.thread("main");
        let start = run.truth.number("thread", "main", "start_ns") as i64;
        assert!(main.before_timer_ns <= start, "its timer was armed late: {main:?}, main() began at {start}");
        // The last reading follows the return of main(), and the shutdown of the JVM burns some time on this thread.
        let (burnt, clock) = (run.truth.thread_cpu_ns("main") as i64, main.clock_ns());
        assert!((burnt..=burnt + burnt / 20).contains(&clock), "{main:?}: {clock} by the account, {burnt} by the thread's clock");
        let unfinished_ns = span_tolerance_ns(INTERVAL_NS) as i64;
        let unfinished_ns = unfinished_ns + summary.starvation.longest_delay_ns() as i64;
        assert!(main.unfinished_ns <= unfinished_ns, "neither sampled nor lost: {main:?}");
        // The export holds exactly the sampled time of the account.
        assert_eq!(i64::try_from(run.stacks().total_ns()), Ok(summary.cpu_ns.sampled));
    }
}

on_every_jdk! { concurrent;
    /// The methods run for far less than the interval: each sample is an independent draw of the true shares.
    fn short_spans(jdk) {
        let run = Workload::new("TwoMethods").argument(5).argument(200).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let (sampled, truth) = heavy_shares(&run);
        let tolerance = binomial_tolerance(truth, run.summary().thread("main").samples);
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");
    }
}

on_every_jdk! { concurrent;
    /// A loop without a safepoint poll gets all of its CPU time.
    fn tight_loop(jdk) {
        let run = Workload::new("TightLoop").argument(3).record(jdk);
        run.assert_exit_code(0);
        run.assert_method_time("TightLoop.spin", INTERVAL_NS);
    }
}

on_every_jdk! { concurrent;
    /// Intrinsics, stubs and native methods are below the Java method that called them.
    fn native_code_below_java(jdk) {
        let run = Workload::new("NativeHeavy").argument(6).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        let names = ["copy", "crc", "deflate", "math", "strings", "clock"].map(|name| format!("NativeHeavy.{name}"));
        let names = names.each_ref().map(String::as_str);
        let truth: u64 = names.iter().map(|name| run.truth.method_cpu_ns(name)).sum();
        let sampled: u64 = names.iter().map(|name| stacks.ns_below(name)).sum();
        let starved = run.starvation_loss_ns();
        assert!((sampled + starved) as f64 >= 0.95 * truth as f64, "sampled {sampled} of {truth}, starved {starved}");
        run.assert_shares(&names, 0.01);
    }
}
