//! The modes beside CPU time: wall time, in which waiting counts as well.

use std::collections::BTreeMap;

use java_tests::collector::summary_of;
use java_tests::{Run, Stack, Workload, on_every_jdk, on_jdks};

/// Threads of `WallTime` that live equally long, with the method that each is in.
const LIVES: [(&str, &str); 4] = [
    ("burner", "WallTime.burn"),
    ("waiter", "WallTime.await"),
    ("sleeper", "WallTime.sleep"),
    ("reader", "WallTime.read"),
];

/// Returns the time sampled in each thread of [`LIVES`] inside of its method.
fn lives(run: &Run) -> BTreeMap<&'static str, u64> {
    let stacks = run.stacks_by_thread();
    LIVES
        .map(|(thread, method)| {
            let is_of = |stack: &Stack| stack.frames.first().is_some_and(|name| name == thread);
            (thread, stacks.ns_where(|stack| is_of(stack) && stack.has(method)))
        })
        .into()
}

on_every_jdk! {
    /// Threads that burn, wait, sleep and read live equally long, and each is seen in its method; no call ends early.
    fn waiting_has_its_share_of_wall_time(jdk) {
        let run = Workload::new("WallTime").argument(2).record_option("--mode=wall").record(jdk);
        run.assert_exit_code(0);
        assert!(!run.stdout.contains("early end"), "{}", run.stdout);
        let summary = run.summary();
        assert_eq!(summary.mode, "wall");
        summary.assert_sums_close();
        assert_eq!((summary.cpu_ns.profiler, summary.cpu_ns.outside), (0, 0));
        let period_ns = summary.sampling.period_ns;
        for (thread, inside) in lives(&run) {
            let life = run.truth.method_cpu_ns(&format!("WallTime.{thread}"));
            // A part of a period lies at both ends, and a thread takes over up to two. On a busy machine a thread may lose its
            // processor between the method and the readings of the clock around it.
            let tolerance = 4 * period_ns + 2 * run.starvation.longest_delay_ns();
            assert!(
                inside.abs_diff(life) <= tolerance,
                "{thread}: {inside} of {life}, tolerance {tolerance}: {:?}",
                summary.thread(thread)
            );
        }
        // The output is about wall time.
        let report = run.tickwalk(&["top"]);
        assert!(report.contains("of wall time explained") && report.contains("by self wall time"), "{report}");
    }
}

on_jdks! { 25;
    /// Idle threads make the interval longer instead of being woken more often.
    fn many_idle_threads_share_a_rate(jdk) {
        const THREADS: u64 = 400;
        let run = Workload::new("ManyIdleThreads").argument(THREADS).record_to_file(jdk, "event=wall");
        run.assert_exit_code(0);
        let summary = summary_of(&run.recording, &run.starvation);
        assert_eq!(summary.mode, "wall");
        summary.assert_requests_are_explained();
        let idle: Vec<_> = summary.threads.iter().filter(|thread| thread.name.starts_with("idle-")).collect();
        assert_eq!(idle.len() as u64, THREADS);
        // A thousand samples a second in all, so a period of a millisecond for each thread.
        let period_ns = summary.sampling.period_ns;
        assert!((THREADS * 900_000..THREADS * 1_500_000).contains(&period_ns), "{period_ns}");
        let lives: i64 = idle.iter().map(|thread| thread.kernel_ns).sum();
        let samples: u64 = idle.iter().map(|thread| thread.samples).sum();
        // The first second may have the interval of the few threads at the start.
        let most = lives.cast_unsigned() / period_ns + THREADS * 100;
        assert!(samples > 0 && samples <= most, "{samples} samples, at most {most}");
    }
}
