//! The timers' period changes while threads run: weights are right, and no CPU time is missing or counted twice.

use java_tests::{MAX_TICK_DELAY_NS, Run, Workload, binomial_tolerance, on_jdks};

/// Largest share of its CPU time that a thread burns after its last clock reading if it parks then.
const AFTER_PARKING: f64 = 0.005;
/// The same for the main thread, on which the JVM shuts down.
const AFTER_MAIN: f64 = 0.05;
/// The longest period: five times 4 ms.
const LONGEST_NS: i64 = 20_000_000;
/// Fewest changes of the period in a run of several seconds: each period occurs twice.
const MIN_CHANGES: u64 = 10;
const SECOND: u64 = 1_000_000_000;

/// Makes the period change every 50 ms, to 1, 3, 2, 5 and 4 times 4 ms.
fn with_retuning(workload: Workload) -> Workload {
    workload.record_option("--interval=4ms").record_option("--agent-option=debug=retune:50ms")
}

/// Asserts that the account of a thread agrees with the thread's own clock, and that all but the last period is
/// sampled.
///
/// The account may exceed the clock by the share `most_after`, which the thread used after its last reading.
#[track_caller]
fn assert_account_matches_clock(run: &Run, thread: &str, most_after: f64) {
    let summary = run.summary();
    // An ending thread can appear again as a native thread of the same name.
    let named = summary.threads_named(thread);
    let account = named.into_iter().find(|account| account.kind == "java").expect("the thread");
    let truth = run.truth.thread_cpu_ns(thread) as f64;
    let most = truth * (1.0 + most_after) + run.starvation.longest_delay_ns() as f64;
    let clock = account.clock_ns() as f64;
    assert!(
        (truth..=most).contains(&clock),
        "{account:?}: {truth} by the thread's clock, {:?}",
        run.starvation
    );
    // A tick that is late, or follows right after the timer was replaced, prolongs the period.
    let unfinished_ns = account.unfinished_ns + account.handed_on_ns;
    assert!(
        unfinished_ns <= LONGEST_NS + (MAX_TICK_DELAY_NS + run.starvation.longest_delay_ns()) as i64,
        "neither sampled nor lost: {account:?}"
    );
}

#[track_caller]
fn assert_was_retuned(run: &Run) {
    let sampling = &run.summary().sampling;
    assert!(sampling.changes >= MIN_CHANGES && sampling.replaced >= MIN_CHANGES, "{sampling:?}");
}

on_jdks! { 11, 25;
    /// Each thread's account closes although its timer is replaced dozens of times.
    fn accounts_match_clocks(jdk) {
        const THREADS: usize = 4;
        // Queues that last for a second exclude other losses.
        // A second of each thread, in which the period changes twenty times and more.
        let workload = Workload::new("BusyThreads").argument(4).argument(THREADS);
        let run = with_retuning(workload).record_option("--agent-option=debug=queue:256..2048").record(jdk);
        run.assert_exit_code(0);
        assert_was_retuned(&run);
        run.summary().assert_account_closes();
        assert_eq!(run.summary().cpu_ns.lost_before_end(), 0, "{:?}", run.summary().cpu_ns);
        for thread in 0..THREADS {
            assert_account_matches_clock(&run, &format!("busy-{thread}"), AFTER_PARKING);
        }
    }
}

on_jdks! { concurrent 11, 25;
    /// Samples have different weights, and each method has its share.
    fn shares_are_right(jdk) {
        let run = with_retuning(Workload::new("TwoMethods").argument(5).argument(200)).record(jdk);
        run.assert_exit_code(0);
        assert_was_retuned(&run);
        run.summary().assert_account_closes();
        assert_account_matches_clock(&run, "main", AFTER_MAIN);
        let (stacks, truth) = (run.stacks(), &run.truth);
        let share = |heavy: u64, light: u64| heavy as f64 / (heavy + light) as f64;
        let sampled = share(stacks.ns_below("TwoMethods.heavy"), stacks.ns_below("TwoMethods.light"));
        let truth = share(truth.method_cpu_ns("TwoMethods.heavy"), truth.method_cpu_ns("TwoMethods.light"));
        // n samples with weights 1 to 5, each weight for the same time, have the variance of 0.73 n samples of equal
        // weight.
        let tolerance = binomial_tolerance(truth, run.summary().thread("main").samples * 73 / 100);
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");
    }
}

on_jdks! { 11, 25;
    /// Threads that end before their first expiration hand on their unfinished period, whatever the period is.
    fn short_threads(jdk) {
        let run = with_retuning(Workload::new("ManyShortThreads").argument(4)).record(jdk);
        run.assert_exit_code(0);
        assert_was_retuned(&run);
        let summary = run.summary();
        summary.assert_account_closes();
        // The bound of `short_threads.rs` with the longest period in place of the interval.
        let uncovered = summary.cpu_ns.kernel - summary.cpu_ns.sampled;
        summary.assert_losses();
        let most = 40 * LONGEST_NS + summary.cpu_ns.lost_before_end();
        assert!(uncovered <= most, "{uncovered} ns have no sample, more than {most}");
    }
}

on_jdks! { concurrent 25;
    /// The period grows until the profiler costs no more than its budget.
    fn the_budget_is_kept(jdk) {
        // The agent adapts the period once a second, and ignores the first two seconds.
        let workload = Workload::new("BusyThreads").argument(5).argument(1).record_option("--interval=1ms");
        // A fifth of what a sample each tick costs, so that the first period cannot stay.
        let run = workload.record_option("--budget=0.2%").record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        let sampling = &summary.sampling;
        assert_eq!((sampling.budget, sampling.shortest_ns), (0.002, 1_000_000), "{sampling:?}");
        // The cost covers all checked rounds, and a slow machine exceeds the budget in the first ones. Then the period
        // must have grown to at least half of the one at which the cost equals the budget.
        let needed_ns = sampling.tick_ns.max(sampling.shortest_ns) as f64 * sampling.cost / sampling.budget;
        let is_kept = sampling.cost < 2.0 * sampling.budget || sampling.period_ns as f64 >= needed_ns / 2.0;
        assert!(sampling.cost > 0.0 && is_kept, "{sampling:?}");
    }
}

on_jdks! { concurrent 25;
    /// The running JVM is restricted to one processor, and the period follows so that the rate stays.
    fn the_rate_follows_the_processors(jdk) {
        let before = std::thread::available_parallelism().expect("a number of processors").get() as u64;
        let run = Workload::new("Burner")
            // The agent looks at the processors once a second.
            .argument(3)
            .pin_after_cpu_ns(SECOND)
            .record_option("--rate=500/s")
            .record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        let sampling = &summary.sampling;
        assert_eq!(u64::try_from(summary.interval_ns), Ok(before * SECOND / 500));
        assert_eq!((sampling.processors, sampling.period_ns), (1, SECOND / 500), "{sampling:?}");
        assert_eq!(sampling.changes, u64::from(before > 1), "{sampling:?}");
        run.assert_method_time("Burner.burn", before * SECOND / 500);
    }
}
