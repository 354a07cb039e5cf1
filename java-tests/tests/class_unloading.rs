//! Classes are unloaded all the time and new ones appear at the same addresses: each frame has the right name or
//! `[unloaded]`. The same where compiled code is freed all the time.

use java_tests::{GeneratedClasses, Jdk, Run, Workload, on_every_jdk, on_jdks};

/// Checks the names in a profile. Each generation runs on a thread of its own, so a frame of another generation on that
/// thread is wrong. Only the constructors run on the main thread.
fn check_names(run: &Run) -> GeneratedClasses {
    let is_constructor = |thread: &str, frame: &str| thread == "main" && frame.ends_with(".<init>");
    GeneratedClasses::of(run.stacks_by_thread().all, ("Gen", "gen-"), is_constructor, |_| false)
}

fn churn(jdk: &Jdk, options: &[&str], record_options: &[&str]) -> (Run, GeneratedClasses) {
    churn_collected_every(3, jdk, options, record_options)
}

/// Collects garbage after so many generations, or never.
fn churn_collected_every(
    period: u32,
    jdk: &Jdk,
    options: &[&str],
    record_options: &[&str],
) -> (Run, GeneratedClasses) {
    let mut workload = Workload::new("ClassChurn").argument(2).argument(12).argument(period);
    for option in options {
        workload = workload.jvm_option(option);
    }
    for option in record_options {
        workload = workload.record_option(option);
    }
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    let classes = check_names(&run);
    assert!(classes.wrong.is_empty(), "{options:?}: {:#?}", classes.wrong);
    assert!(classes.total_ns > 0, "no sample of any generation");
    (run, classes)
}

/// A limit for pauses that is long enough on a loaded machine.
const LONG_GC_DRAIN: &str = "--agent-option=gcdrain=100ms";

/// Asserts that few names are lost if pauses wait for the sampler. The default limit is not tested, because the result
/// would depend on the load of the machine.
fn check_pauses_wait(jdk: &Jdk, option: &str) -> Run {
    let (run, classes) = churn(jdk, &[option], &[LONG_GC_DRAIN]);
    let unloading = &run.summary().unloading;
    assert!(unloading.pause_added_ns.count > 0, "no collection was detected");
    assert!(unloading.pause_added_ns.cut_short <= unloading.pause_added_ns.count / 20, "{unloading:?}");
    assert!(
        classes.share(classes.unloaded_ns) <= 0.02,
        "{} unloaded: {unloading:?}",
        classes.share(classes.unloaded_ns)
    );
    assert!(classes.share(classes.named_ns) >= 0.95, "{classes:?}");
    run
}

on_every_jdk! { concurrent;
    fn g1(jdk) {
        let run = check_pauses_wait(jdk, "-XX:+UseG1GC");
        assert_eq!(run.summary().unloading.detector, "unload counters");
    }
}

on_every_jdk! { concurrent;
    fn serial(jdk) {
        check_pauses_wait(jdk, "-XX:+UseSerialGC");
    }
}

on_every_jdk! { concurrent;
    fn parallel(jdk) {
        check_pauses_wait(jdk, "-XX:+UseParallelGC");
    }
}

on_jdks! {
    17, 21, 25;
    /// ZGC unloads classes concurrently, so pauses do not protect names.
    fn zgc(jdk) {
        let (_, classes) = churn(jdk, &["-XX:+UseZGC"], &[]);
        assert!(classes.share(classes.named_ns) >= 0.70, "{classes:?}");
    }
}

on_every_jdk! { concurrent;
    /// Without performance counters the agent detects unloading by pauses, and no name is wrong.
    fn without_counters(jdk) {
        let (run, _) = churn(jdk, &["-XX:+UseG1GC", "-XX:-UsePerfData"], &[]);
        assert_eq!(run.summary().unloading.detector, "pauses only");
    }
}

on_every_jdk! { concurrent;
    /// Pauses do not wait for the sampler: more names are lost, none is wrong.
    fn without_drain(jdk) {
        let run = Workload::new("ClassChurn")
            .argument(2)
            .argument(12)
            .argument(1)
            .jvm_option("-XX:+UseSerialGC")
            .record_to_file(jdk, "gcdrain=off");
        run.assert_exit_code(0);
        let classes = check_names(&run);
        assert!(classes.wrong.is_empty(), "{:#?}", classes.wrong);
        assert!(classes.named_ns > 0, "{classes:?}");
    }
}

/// The sweeper runs all the time and makes code not entrant that it did not find on a stack.
const RESTLESS_SWEEPER: [&str; 7] = [
    "-Xmx256m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ReservedCodeCacheSize=3m",
    "-XX:StartAggressiveSweepingAt=90",
    "-XX:MinPassesBeforeFlush=0",
    "-XX:NmethodSweepActivity=2000",
    "-XX:GuaranteedSafepointInterval=5",
];

on_jdks! {
    concurrent 11, 17;
    /// No class is unloaded, code is freed outside of pauses only, and samples are walked half a second late: none
    /// names code that was compiled into the block of the code that ran.
    fn code_is_freed_by_the_sweeper(jdk) {
        let late =
            ["--interval=1ms", "--agent-option=debug=drain:500ms", "--agent-option=debug=queue:2048/fixed"];
        let (run, classes) = churn_collected_every(0, jdk, &RESTLESS_SWEEPER, &late);
        assert!(classes.named_ns > 0, "{classes:?}");
        // Only walks restricted to known code end so, and only sweeps restrict walks here.
        let stops = &run.summary().stops;
        assert!(stops.get("code_replaced").is_some_and(|&walks| walks > 0), "{stops:?}");
    }
}
