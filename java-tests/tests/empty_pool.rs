//! An exhausted snapshot pool: samples keep their CPU time, thread and newest frame.

use java_tests::{Stack, Workload, on_jdks};

/// Busy threads that share a few slabs.
const THREADS: usize = 4;

fn is_without_stack(stack: &Stack) -> bool {
    stack.has("[pool_exhausted]")
}

on_jdks! { 11, 25;
    fn samples_without_a_stack_keep_their_time(jdk) {
        let workload = Workload::new("BusyThreads").argument(4).argument(THREADS).record_option("--interval=4ms");
        // Five slabs in total, and 250 ms between two drains.
        let hooks = ["debug=slabs:1", "debug=drain:250ms", "debug=queue:2048/fixed"];
        let run = hooks
            .iter()
            .fold(workload, |workload, hook| workload.record_option("--agent-option").record_option(hook))
            .record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        summary.assert_requests_are_explained();
        assert_eq!(summary.cpu_ns.lost_before_end(), 0, "{:?}", summary.cpu_ns.lost);
        let without = summary.failed.get("pool_exhausted").copied().unwrap_or(0);
        assert!(without > summary.requests / 2, "{without} of {}", summary.requests);
        // The newest frame of a busy thread is that of its loop, except while it reads its clock.
        let stacks = run.stacks_by_thread();
        let is_busy = |stack: &Stack| stack.frames[0].starts_with("busy-");
        let without_stack = stacks.ns_where(|stack| is_busy(stack) && is_without_stack(stack));
        let burns = |stack: &Stack| stack.frames.last().is_some_and(|frame| frame == "BusyThreads.burn");
        let named = stacks.ns_where(|stack| is_busy(stack) && is_without_stack(stack) && burns(stack));
        assert!(without_stack > 0 && named >= without_stack / 10 * 8, "{named} of {without_stack} ns: {:#?}", stacks.all);
        // No frame below it is guessed.
        let is_deep = |stack: &Stack| is_without_stack(stack) && stack.has("BusyThreads.lambda$main$1");
        assert_eq!(stacks.ns_where(is_deep), 0, "{:#?}", stacks.all);
    }
}
