//! The CPU time of threads that end before their first interval is over is counted.

use java_tests::{INTERVAL_NS, Run, Stack, Workload, binomial_tolerance, on_every_jdk};

/// Asserts that the sampled time of all short threads is right. Which thread gets the sample of a handed-on period is
/// chance, so the sum may differ by the deviation of that many independent draws, and by `uncovered_ns`.
#[track_caller]
fn assert_short_threads_are_sampled(run: &Run, uncovered_ns: f64) {
    let summary = run.summary();
    let truth = run.truth.number("method", "ManyShortThreads.burn", "cpu_ns") as f64;
    let sampled = run.stacks().ns_below("ManyShortThreads.burn") as f64;
    let all = (summary.cpu_ns.kernel + summary.cpu_ns.before_timer) as f64;
    let tolerance = all * binomial_tolerance((truth / all).min(1.0), summary.samples) + uncovered_ns;
    assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");
}

on_every_jdk! {
    fn account_closes(jdk) {
        let run = Workload::new("ManyShortThreads").argument(6).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        assert!(summary.complete);
        // Hundreds of threads end with a sample in their queues, mostly while no other thread drains.
        assert!(summary.queue.drained_at_exit > 0, "{:?}", summary.queue);

        // A thread that ends hands on its unfinished period to the next new thread, so at most one interval of each
        // thread alive at once is without a sample: two short threads, main, about 25 of the JVM, and a margin for
        // threads that start before the period of their predecessor is handed on.
        let uncovered = summary.cpu_ns.kernel - summary.cpu_ns.sampled;
        summary.assert_losses();
        let bound = 40 * INTERVAL_NS as i64 + summary.cpu_ns.lost_before_end();
        assert!(uncovered <= bound, "{uncovered} ns of CPU time have no sample, more than {bound}");

        assert_short_threads_are_sampled(&run, bound as f64 / 2.0);
    }
}

on_every_jdk! {
    /// Threads live for 1 to 5 ms and their requests are drained every 100 ms: no request is lost when its thread ends.
    fn requests_outlive_their_threads(jdk) {
        // 512 entries, because main, which starts the threads, may run all the time and a drain may be two seconds
        // late.
        let hooks = ["--agent-option=debug=drain:100ms", "--agent-option=debug=queue:512..2048"];
        let workload = Workload::new("ManyShortThreads").argument(4).record_option("--interval=2ms");
        let run = hooks.into_iter().fold(workload, Workload::record_option).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        assert_eq!(summary.cpu_ns.lost_before_end(), 0, "{:?}", summary.cpu_ns);
        // Many threads of the length of a tick end before it, so the CPU time is no reference here. The sampled time
        // must be in the right threads and in the method that burns.
        let short = summary.threads.iter().filter(|thread| thread.name.starts_with("short-"));
        let of_short: i64 = short.map(|thread| thread.sampled_ns).sum();
        let truth = run.truth.number("method", "ManyShortThreads.burn", "cpu_ns") as i64;
        assert!(of_short >= truth / 10, "sampled {of_short}, true {truth}");
        let stacks = run.stacks_by_thread();
        let is_short = |stack: &Stack| stack.frames.first().is_some_and(|thread| thread.starts_with("short-"));
        assert_eq!(stacks.ns_where(is_short), of_short.cast_unsigned());
        let burning = stacks.ns_where(|stack| is_short(stack) && stack.has("ManyShortThreads.burn")) as f64;
        assert!(burning >= 0.5 * of_short as f64, "{burning} of {of_short} in the method that burns");
        let failed: u64 = summary.failed.values().sum();
        assert!(failed * 50 <= summary.requests, "of {} requests: {:?}", summary.requests, summary.failed);
    }
}
