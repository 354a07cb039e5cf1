//! Accounts close while queues grow, the sampler is late, or timers are shared.

use java_tests::{MAX_TICK_DELAY_NS, Run, Workload, on_jdks};

/// Allowed error of a thread's account, relative to the thread's own clock.
const ACCOUNT_ERROR: f64 = 0.005;
/// Sampling interval of the tests that count queues.
const INTERVAL_NS: u64 = 4_000_000;
/// Most requests that one drain takes from a queue of 16: as many again may arrive if the sampler thread is preempted
/// while it drains the queue.
const MAX_DRAINED: u64 = 2 * 16;
/// Memory of a queue of the first size.
const QUEUE_BYTES: u64 = 6_208;
/// Threads of `BusyThreads`.
const THREADS: usize = 4;
/// CPU time of all threads together, in seconds: one for each, which [`assert_accounts_match_clocks`] demands.
const SECONDS: u32 = 4;
/// The same where the sampler is late once a second: some longer, so that threads which run at the same time meet a
/// late drain while they burn.
const SECONDS_WITH_HOOKS: u32 = 5;

/// Returns a workload of busy threads with these debug hooks.
fn busy_threads(seconds: u32, hooks: &[&str]) -> Workload {
    let workload = Workload::new("BusyThreads").argument(seconds).argument(THREADS);
    hooks.iter().fold(workload.record_option("--interval=4ms"), |workload, hook| {
        workload.record_option("--agent-option").record_option(&format!("debug={hook}"))
    })
}

/// Asserts that the account of each thread that used a second or more agrees with the thread's own clock.
#[track_caller]
fn assert_accounts_match_clocks(run: &Run) {
    let summary = run.summary();
    summary.assert_account_closes();
    let (mut checked, mut unfinished, mut total) = (0, 0.0, 0.0);
    for thread in summary.threads.iter().filter(|thread| thread.name.starts_with("busy-")) {
        let truth = run.truth.thread_cpu_ns(&thread.name) as f64;
        let account = thread.clock_ns() as f64;
        if truth >= 1e9 {
            checked += 1;
            // The account's reading of the clock is the later one.
            let most = truth * (1.0 + ACCOUNT_ERROR) + run.starvation.longest_delay_ns() as f64;
            assert!(
                (truth..=most).contains(&account),
                "{thread:?}: {account} by the account, {truth} by its own clock, {:?}",
                run.starvation
            );
            unfinished += (thread.unfinished_ns + thread.handed_on_ns) as f64;
            total += account;
        }
    }
    assert_eq!(checked, THREADS, "{:?}", summary.threads);
    // One interval of each thread is unfinished, and late ticks prolong it.
    let most = THREADS as f64 * (INTERVAL_NS + MAX_TICK_DELAY_NS + run.starvation.longest_delay_ns()) as f64;
    assert!(
        unfinished <= most,
        "neither sampled nor lost: {unfinished} ns of {total}, {:?}",
        summary.threads
    );
}

on_jdks! { 11, 25;
    /// With rare drains the small queues overflow, the losses are counted, the queues grow, and every thread's account
    /// closes.
    fn queues_grow_after_losses(jdk) {
        let run = busy_threads(SECONDS_WITH_HOOKS, &["drain:1s", "queue:16..2048"]).record(jdk);
        run.assert_exit_code(0);
        assert_accounts_match_clocks(&run);
        let summary = run.summary();
        assert!(summary.queue.grown > 0 && summary.queue.largest > 16, "{:?}", summary.queue);
        let fixed = busy_threads(SECONDS_WITH_HOOKS, &["drain:1s", "queue:16/fixed"]).record(jdk);
        assert_accounts_match_clocks(&fixed);
        let summary = fixed.summary();
        assert_eq!((summary.queue.grown, summary.queue.largest), (0, 16), "{:?}", summary.queue);
        let lost = summary.cpu_ns.lost.get("queue_full").copied().unwrap_or(0);
        assert!(lost > 0, "a queue of 16 lost nothing in 1 s: {:?}", summary.cpu_ns);
        assert!((16..=MAX_DRAINED).contains(&summary.queue.high_water), "{:?}", summary.queue);
    }
}

on_jdks! { 25;
    /// Queues of idle threads take no memory: only the queues of threads with samples count.
    fn queues_of_idle_threads_take_no_memory(jdk) {
        const IDLE: usize = 300;
        let run = Workload::new("BusyThreads").argument(1).argument(1).argument(IDLE).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        assert_eq!(summary.threads.iter().filter(|thread| thread.name.starts_with("idle-")).count(), IDLE);
        let sampled = summary.threads.iter().filter(|thread| thread.samples > 0).count() as u64;
        // A queue that has grown has at most 2,048 entries.
        let most = sampled * QUEUE_BYTES + summary.queue.grown * 16 * QUEUE_BYTES;
        let bytes = summary.queue.capacity_bytes;
        assert!((QUEUE_BYTES..=most).contains(&bytes), "{bytes} bytes for {sampled} threads with samples");
    }
}

on_jdks! { 11, 25;
    /// While the sampler thread is stalled, the second thread drains the queues, and the smallest queues suffice.
    fn a_stalled_sampler_loses_nothing(jdk) {
        let run = busy_threads(SECONDS_WITH_HOOKS, &["stall:700ms", "queue:16/fixed"]).record(jdk);
        run.assert_exit_code(0);
        assert_accounts_match_clocks(&run);
        let summary = run.summary();
        summary.assert_losses();
        assert!(summary.queue.high_water <= MAX_DRAINED, "{:?}", summary.queue);
        // The stall is long enough for 16 ticks even of a thread that gets a twentieth of a processor.
        let fixed =
            busy_threads(SECONDS_WITH_HOOKS, &["stall:1500ms", "queue:16/fixed", "drain:25ms"]).record(jdk);
        assert_accounts_match_clocks(&fixed);
        assert!(fixed.summary().cpu_ns.lost_total() > 0, "a queue of 16 lost nothing in 1.5 s: {:?}", fixed.summary().queue);
    }
}

on_jdks! { 11, 25;
    /// With the default settings nothing is lost.
    fn accounts_match_clocks(jdk) {
        let run = busy_threads(SECONDS, &[]).record(jdk);
        run.assert_exit_code(0);
        assert_accounts_match_clocks(&run);
        run.summary().assert_losses();
        assert_eq!(run.summary().timers.turns, 0);
    }
}

on_jdks! { 17, 25;
    /// Two hundred busy threads share sixty timers: each thread has a timer for some time, the rest of its time is
    /// counted as lost, and the account closes.
    fn threads_share_timers(jdk) {
        // 120 ms of each thread. The agent has thirty timers, half of what the limit leaves, and passes them on every
        // 200 ms, so each thread gets one within 1.4 s; the run takes 24 s divided by the number of processors.
        let run = Workload::new("BusyThreads").argument(24).argument(200).limit_pending_signals(60).record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        let lines = run.stderr.lines().filter(|line| line.contains("fewer timers than threads (")).count();
        assert_eq!(lines, 1, "{}", run.stderr);
        // Each thread beyond the first sixty must get a timer once.
        assert!(summary.timers.turns >= 200 - 60, "{:?}", summary.timers);
        let cpu = &summary.cpu_ns;
        assert_eq!(cpu.kernel, cpu.sampled + cpu.lost_total() + cpu.unfinished, "{cpu:?}");
        assert!(cpu.lost["no_timer"] > 0, "{cpu:?}");
        // An ending thread can appear again as a native thread of the same name, with next to no CPU time.
        let is_busy = |thread: &&java_tests::ThreadAccount| thread.clock_ns() >= 100_000_000;
        let busy: Vec<_> =
            summary.threads.iter().filter(|thread| thread.name.starts_with("busy-")).filter(is_busy).collect();
        assert_eq!(busy.len(), 200);
        for thread in busy {
            assert_eq!(thread.gap_ns(), 0, "{thread:?}");
            assert!(thread.lost_ns < thread.kernel_ns, "never had a timer: {thread:?}");
        }
    }
}
