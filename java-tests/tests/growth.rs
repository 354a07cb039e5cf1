//! Queues that size themselves, timers that are shared, accounts that close all the same.

use java_tests::{LATE_NS, Run, Workload, on_every_jdk, on_jdks};

/// Error the account of a thread may have, by the thread's own clock.
const ACCOUNT_ERROR: f64 = 0.005;
/// Sampling interval of the tests that count queues.
const INTERVAL_NS: u64 = 4_000_000;
/// Most requests of a thread that one drain finds in a queue of 16: as many again may come in while it empties the
/// queue, which takes microseconds, if it is kept from running in the middle of it.
const MOST_FOUND: u64 = 2 * 16;
/// Threads of `BusyThreads`.
const THREADS: usize = 4;

fn busy(seconds: u32, hooks: &[&str]) -> Workload {
    let workload = Workload::new("BusyThreads").argument(seconds).argument(THREADS);
    hooks.iter().fold(workload.record_option("--interval=4ms"), |workload, hook| {
        workload.record_option("--agent-option").record_option(&format!("debug={hook}"))
    })
}

/// Every thread that burnt a second or more: what the account holds is what the thread's own clock says.
#[track_caller]
fn assert_accounts_match_clocks(run: &Run) {
    let summary = run.summary();
    summary.assert_account_closes();
    let (mut checked, mut open, mut all) = (0, 0.0, 0.0);
    for thread in summary.threads.iter().filter(|thread| thread.name.starts_with("busy-")) {
        let truth = run.truth.thread_cpu_ns(&thread.name) as f64;
        let account = thread.clock_ns() as f64;
        if truth >= 1e9 {
            checked += 1;
            // A clock never goes back, and the account's is read last.
            let most = truth * (1.0 + ACCOUNT_ERROR) + run.starved.longest_ns() as f64;
            assert!(
                (truth..=most).contains(&account),
                "{thread:?}: {account} by the account, {truth} by its own clock, {:?}",
                run.starved
            );
            open += (thread.unfinished_ns + thread.handed_on_ns) as f64;
            all += account;
        }
    }
    assert_eq!(checked, THREADS, "{:?}", summary.threads);
    // One interval of each is open, and what late ticks add.
    let most = THREADS as f64 * (INTERVAL_NS + LATE_NS + run.starved.longest_ns()) as f64;
    assert!(open <= most, "neither sampled nor lost: {open} ns of {all}, {:?}", summary.threads);
}

on_every_jdk! {
    /// A drain that comes seldom: the small queues overflow, the losses are named, the queues grow, and the account
    /// closes on every thread.
    fn queues_grow_from_losses(jdk) {
        let run = busy(8, &["drain:1s"]).record(jdk);
        run.assert_exit_code(0);
        assert_accounts_match_clocks(&run);
        let summary = run.summary();
        assert!(summary.queue.grown > 0 && summary.queue.largest > 16, "{:?}", summary.queue);
        let fixed = busy(8, &["drain:1s", "queue:16/fixed"]).record(jdk);
        assert_accounts_match_clocks(&fixed);
        let held = fixed.summary();
        assert_eq!((held.queue.grown, held.queue.largest), (0, 16), "{:?}", held.queue);
        let lost = held.cpu_ns.lost.get("queue_full").copied().unwrap_or(0);
        assert!(lost > 0, "16 entries hold what 1 s leaves: {:?}", held.cpu_ns);
        assert!((16..=MOST_FOUND).contains(&held.queue.high_water), "{:?}", held.queue);
    }
}

on_every_jdk! {
    /// A sampler that is kept from its work: its helper empties the queues, and the smallest hold what comes between.
    fn a_late_sampler_loses_nothing(jdk) {
        let run = busy(8, &["stall:700ms", "queue:16/fixed"]).record(jdk);
        run.assert_exit_code(0);
        assert_accounts_match_clocks(&run);
        let summary = run.summary();
        summary.assert_losses();
        assert!(summary.queue.high_water <= MOST_FOUND, "{:?}", summary.queue);
        // Away for so long that 16 ticks come even to a thread that gets a twentieth of a processor.
        let fixed = busy(8, &["stall:1500ms", "queue:16/fixed", "drain:25ms"]).record(jdk);
        assert_accounts_match_clocks(&fixed);
        assert!(fixed.summary().cpu_ns.lost_total() > 0, "16 entries hold what 1.5 s leave: {:?}", fixed.summary().queue);
    }
}

on_every_jdk! {
    /// Without hooks nothing is lost, and the smallest queues are enough.
    fn accounts_match_clocks(jdk) {
        let run = busy(8, &[]).record(jdk);
        run.assert_exit_code(0);
        assert_accounts_match_clocks(&run);
        run.summary().assert_losses();
        assert_eq!(run.summary().timers.turns, 0);
    }
}

on_jdks! { 17, 25;
    /// Sixty timers for two hundred busy threads: each gets its turn, the rest of its time is named, the sum closes.
    fn timers_are_shared_in_turns(jdk) {
        let run = Workload::new("BusyThreads").argument(40).argument(200).pending_signals(60).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        let told = run.stderr.lines().filter(|line| line.contains("fewer timers than threads (")).count();
        assert_eq!(told, 1, "{}", run.stderr);
        // Those that are not among the first sixty need a turn each.
        assert!(summary.timers.turns >= 200 - 60, "{:?}", summary.timers);
        let cpu = &summary.cpu_ns;
        assert_eq!(cpu.kernel, cpu.sampled + cpu.lost_total() + cpu.unfinished, "{cpu:?}");
        assert!(cpu.lost["no_timer"] > 0, "{cpu:?}");
        // A thread on its way out can be met again as a native one of the same name, with next to no CPU time.
        let burnt = |thread: &&java_tests::ThreadAccount| thread.clock_ns() >= 100_000_000;
        let busy: Vec<_> =
            summary.threads.iter().filter(|thread| thread.name.starts_with("busy-")).filter(burnt).collect();
        assert_eq!(busy.len(), 200);
        for thread in busy {
            assert_eq!(thread.gap_ns(), 0, "{thread:?}");
            assert!(thread.lost_ns < thread.kernel_ns, "never had a timer: {thread:?}");
        }
    }
}
