//! The modes beside CPU time by signals: wall time, in which waiting counts as well, and stacks of safepoints.

use std::collections::BTreeMap;

use java_tests::collector::summary_of;
use java_tests::{Run, Stack, Workload, on_every_jdk, on_jdks};

/// Threads of `WallTime` that live equally long, with the method that each is in.
const LIVES: [(&str, &str); 6] = [
    ("burner", "WallTime.burn"),
    ("copier", "WallTime.copy"),
    ("waiter", "WallTime.await"),
    ("sleeper", "WallTime.sleep"),
    ("reader", "WallTime.read"),
    ("piper", "WallTime.readPipe"),
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

on_jdks! { 11, 25;
    /// Threads that burn, copy, wait, sleep and read live equally long, each is seen in its method and state,
    /// and no call ends early.
    fn waiting_has_its_share_of_wall_time(jdk) {
        let workload = Workload::new("WallTime").argument(2);
        // The first thread is none of Java's.
        let run = workload.record_option("--mode=wall").record_option("--threads=*").record(jdk);
        run.assert_exit_code(0);
        assert!(!run.stdout.contains("early end"), "{}", run.stdout);
        let summary = run.summary();
        assert_eq!(summary.mode, "wall");
        summary.assert_sums_close();
        assert_eq!((summary.cpu_ns.profiler, summary.cpu_ns.outside), (0, 0));
        let period_ns = summary.sampling.period_ns;
        for (thread, inside) in lives(&run) {
            let life = run.truth.method_cpu_ns(&format!("WallTime.{thread}"));
            // A part of a period lies at both ends, and a thread takes over up to two. On a busy machine a thread may
            // lose its processor between the method and the readings of the clock around it.
            let tolerance = 4 * period_ns + 2 * run.starvation.longest_delay_ns();
            assert!(
                inside.abs_diff(life) <= tolerance,
                "{thread}: {inside} of {life}, tolerance {tolerance}: {:?}",
                summary.thread(thread)
            );
        }
        // The first thread waits for the end of main, behind code for which older launchers have no unwind tables.
        let stacks = run.stacks();
        let mut first = stacks.all.iter().filter(|stack| stack.has("JLI_Launch")).peekable();
        assert!(first.peek().is_some());
        let is_whole = |stack: &Stack| stack.stop.is_none() && stack.has_chain(&["_start", "__libc_start_main"]);
        assert!(first.clone().all(is_whole), "{:?}", first.collect::<Vec<_>>());
        // Almost every sample has the state of its thread, also where both states are found in one system call.
        let [running, waiting] = ["running", "waiting"].map(|state| {
            let json = run.tickwalk(&["top", "--by", "thread", "--json", "--limit", "100", "--state", state]);
            let report = serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
            let rows = report["tables"]["threads"].as_array().expect("rows").clone();
            let time = |row: &serde_json::Value| {
                Some((row["thread"].as_str()?.to_owned(), row["cpu_ns"].as_u64()?))
            };
            rows.iter().filter_map(time).collect::<BTreeMap<_, _>>()
        });
        for (thread, _) in LIVES {
            let [running, waiting] = [&running, &waiting].map(|times| times.get(thread).copied().unwrap_or(0));
            let (own, other) = match thread {
                "burner" | "copier" => (running, waiting),
                _ => (waiting, running),
            };
            assert!(own > 20 * other, "{thread}: running {running} ns, waiting {waiting} ns");
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

on_jdks! { 25;
    /// A thousand threads that start at once get a longer interval before the first look at their number, so that their
    /// signals leave the sampler thread a processor.
    fn a_thousand_threads_that_start_at_once(jdk) {
        const THREADS: u64 = 1_000;
        let run = Workload::new("ManyIdleThreads").argument(THREADS).record_to_file(jdk, "event=wall");
        run.assert_exit_code(0);
        let summary = summary_of(&run.recording, &run.starvation);
        summary.assert_sums_close();
        let idle = summary.threads.iter().filter(|thread| thread.name.starts_with("idle-"));
        let lives: i64 = idle.clone().map(|thread| thread.kernel_ns).sum();
        assert_eq!(idle.count() as u64, THREADS);
        // The n-th thread begins with a period of 2n ms, which makes some 4,000 signals in the first second; with the
        // period of the few threads before there are up to 100,000.
        let most = 2 * lives.cast_unsigned() / (THREADS * 1_000_000) + 10 * THREADS;
        assert!(summary.requests <= most, "{} signals, at most {most}", summary.requests);
    }
}

on_every_jdk! { concurrent;
    /// Stacks of safepoints do not show a method without a poll that uses nearly all CPU time; the account closes all
    /// the same, and the outputs say what they show.
    fn safepoint_bias(jdk) {
        const METHOD: &str = "SafepointBias.withoutPoll";
        let share = |mode: &str| {
            let workload = Workload::new("SafepointBias").argument(1.5).record_option(mode);
            let run = workload.record_option("--interval=4ms").record(jdk);
            run.assert_exit_code(0);
            let summary = run.summary();
            summary.assert_account_closes();
            summary.assert_requests_are_explained();
            // Some hundred samples where both methods are, so that the limits below are far outside of chance.
            let main = run.stacks().below("SafepointBias.caller");
            assert!(main.all.len() > 1 || main.total_ns() > 500_000_000, "{:?}", main.all);
            (main.share_where(|stack| stack.has(METHOD)), run)
        };
        let (cpu, _) = share("--mode=cputime");
        let (biased, run) = share("--mode=jvmti");
        assert!(cpu > 0.8 && biased < 0.2, "share of the method: {cpu} by signals, {biased} at safepoints");
        let summary = run.summary();
        assert_eq!(summary.mode, "jvmti");
        let main = summary.thread("main");
        assert!(main.samples > 0 && main.lost_ns == 0, "{main:?}");
        let without_stack = summary.threads.iter().filter(|thread| thread.kind != "java");
        for thread in without_stack {
            assert_eq!((thread.samples, thread.lost_ns), (0, thread.kernel_ns), "{thread:?}");
        }
        let report = run.tickwalk(&["top"]);
        for text in ["of CPU time at safepoints explained", "by self CPU time at safepoints", "mode=jvmti: "] {
            assert!(report.contains(text), "{text}: {report}");
        }
        let speedscope = run.tickwalk(&["export", "--format", "speedscope"]);
        assert!(speedscope.contains(", CPU time at safepoints"), "{:.300}", speedscope);
        let page = std::fs::read_to_string(run.flamegraph()).expect("the page");
        assert!(page.contains("\"mode\":\"jvmti\""));
    }
}

on_every_jdk! {
    /// Stacks of safepoints give methods with polls their shares.
    fn methods_with_polls_have_their_shares_at_safepoints(jdk) {
        let workload = Workload::new("TwoMethods").argument(2).argument(20_000).record_option("--mode=jvmti");
        let run = workload.record_option("--interval=2ms").record(jdk);
        run.assert_exit_code(0);
        run.summary().assert_account_closes();
        // The loops are interpreted at first, and the weights of samples differ.
        run.assert_shares(&["TwoMethods.heavy", "TwoMethods.light"], 0.05);
    }
}

on_jdks! { concurrent 11, 17;
    /// A wait for a connection without a time limit goes on after each signal, also where the JDK itself takes the
    /// signal for the end of a time limit: 11.
    fn no_wait_for_a_connection_ends_early(jdk) {
        for options in ["mode=wall,interval=1ms", "interval=1ms"] {
            let workload = Workload::new("Accepts").argument(1).jvm_option("-Djdk.net.usePlainSocketImpl=true");
            let run = workload.run_with_agent(jdk, &format!("{options},file=/dev/null"));
            assert_eq!(run.exit_code(), 0, "{}", run.stderr);
            let lines: Vec<&str> = run.stdout.lines().filter(|line| !line.starts_with("truth ")).collect();
            assert_eq!(lines, ["early 0", "accepted"], "{options}");
        }
    }
}
