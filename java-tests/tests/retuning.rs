//! The timers' period changes while threads run: no weight is wrong, no CPU time is missing or counted twice.

use java_tests::{LATE_NS, Run, Workload, binomial_tolerance, on_every_jdk};

/// Share that a thread burns after it has read its clock, where it only parks, and where the JVM ends on it.
const AFTER_PARKING: f64 = 0.005;
const AFTER_MAIN: f64 = 0.05;
/// The longest period: the five-fold.
const LONGEST_NS: i64 = 20_000_000;
/// Changes of the period in a run of several seconds, each period twice.
const LEAST_CHANGES: u64 = 10;
const SECOND: u64 = 1_000_000_000;

/// With a period that changes every 50 ms, to the 1-, 3-, 2-, 5- and 4-fold of 4 ms in turn.
fn retuned(workload: Workload) -> Workload {
    workload.record_option("--interval=4ms").record_option("--agent-option=debug=retune:50ms")
}

/// What the account of a thread holds is what the thread's own clock says and at most `most_after` of it, which the
/// thread burnt after it had read its clock; all but the last period is sampled.
#[track_caller]
fn assert_account_matches_clock(run: &Run, thread: &str, most_after: f64) {
    let summary = run.summary();
    // On its way out a thread can be met again as a native one of the same name.
    let named = summary.threads_named(thread);
    let account = named.into_iter().find(|account| account.kind == "java").expect("the thread");
    let truth = run.truth.thread_cpu_ns(thread) as f64;
    let most = truth * (1.0 + most_after) + run.starved.longest_ns() as f64;
    let clock = account.clock_ns() as f64;
    assert!((truth..=most).contains(&clock), "{account:?}: {truth} by its own clock, {:?}", run.starved);
    // A tick that comes late, or just after the timer was replaced, adds what it is late.
    let open_ns = account.unfinished_ns + account.handed_on_ns;
    assert!(
        open_ns <= LONGEST_NS + (LATE_NS + run.starved.longest_ns()) as i64,
        "neither sampled nor lost: {account:?}"
    );
}

#[track_caller]
fn assert_was_retuned(run: &Run) {
    let sampling = &run.summary().sampling;
    assert!(sampling.changes >= LEAST_CHANGES && sampling.replaced >= LEAST_CHANGES, "{sampling:?}");
}

on_every_jdk! {
    /// Each thread's account closes over dozens of replaced timers.
    fn accounts_match_clocks(jdk) {
        const THREADS: usize = 4;
        // Queues for a second: how late the sampler may be is another test's business.
        let workload = Workload::new("BusyThreads").argument(8).argument(THREADS);
        let run = retuned(workload).record_option("--agent-option=debug=queue:256..2048").record(jdk);
        run.assert_exit_code(0);
        assert_was_retuned(&run);
        run.summary().assert_account_closes();
        assert_eq!(run.summary().cpu_ns.lost_before_end(), 0, "{:?}", run.summary().cpu_ns);
        for thread in 0..THREADS {
            assert_account_matches_clock(&run, &format!("busy-{thread}"), AFTER_PARKING);
        }
    }
}

on_every_jdk! { beside;
    /// Samples of different weights, and still each method has its share.
    fn shares_stay_true(jdk) {
        let run = retuned(Workload::new("TwoMethods").argument(5).argument(200)).record(jdk);
        run.assert_exit_code(0);
        assert_was_retuned(&run);
        run.summary().assert_account_closes();
        assert_account_matches_clock(&run, "main", AFTER_MAIN);
        let (stacks, truth) = (run.stacks(), &run.truth);
        let share = |heavy: u64, light: u64| heavy as f64 / (heavy + light) as f64;
        let sampled = share(stacks.ns_below("TwoMethods.heavy"), stacks.ns_below("TwoMethods.light"));
        let truth = share(truth.method_cpu_ns("TwoMethods.heavy"), truth.method_cpu_ns("TwoMethods.light"));
        // Of n samples with weights 1 to 5, each weight for as much time as the others, 0.73 n count as equal ones.
        let tolerance = binomial_tolerance(truth, run.summary().thread("main").samples * 73 / 100);
        assert!((sampled - truth).abs() <= tolerance, "sampled {sampled}, true {truth}, tolerance {tolerance}");
    }
}

on_every_jdk! {
    /// Threads that end before their first expiration hand their time on, whatever the period is by then.
    fn short_threads(jdk) {
        let run = retuned(Workload::new("ManyShortThreads").argument(4)).record(jdk);
        run.assert_exit_code(0);
        assert_was_retuned(&run);
        let summary = run.summary();
        summary.assert_account_closes();
        // As without retuning (`short_threads.rs`), with the longest period in place of the interval.
        let uncovered = summary.cpu_ns.kernel - summary.cpu_ns.sampled;
        summary.assert_losses();
        let most = 40 * LONGEST_NS + summary.cpu_ns.lost_before_end();
        assert!(uncovered <= most, "{uncovered} ns are without a sample, more than {most}");
    }
}

on_every_jdk! {
    /// Dear samples become fewer until the profiler costs what it may.
    fn a_budget_is_kept(jdk) {
        let workload = Workload::new("BusyThreads").argument(16).argument(4).record_option("--interval=1ms");
        let run = workload.record_option("--budget=1%").record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        let sampling = &summary.sampling;
        assert_eq!((sampling.budget, sampling.shortest_ns), (0.01, 1_000_000), "{sampling:?}");
        // The cost is that of all rounds that were watched, the first of which a slow machine overdraws; then the period
        // has followed: it is at least half of what would have cost as much as is allowed.
        let needed_ns = sampling.tick_ns.max(sampling.shortest_ns) as f64 * sampling.cost / sampling.budget;
        let is_kept = sampling.cost < 2.0 * sampling.budget || sampling.period_ns as f64 >= needed_ns / 2.0;
        assert!(sampling.cost > 0.0 && is_kept, "{sampling:?}");
    }
}

on_every_jdk! {
    /// One of the processors is taken away from the running JVM: its share of the rate goes to the others.
    fn a_rate_follows_the_processors(jdk) {
        let before = std::thread::available_parallelism().expect("a number of processors").get() as u64;
        let run = Workload::new("Killed")
            .argument(5)
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
        run.assert_stretch("Killed.burn", before * SECOND / 500);
    }
}
