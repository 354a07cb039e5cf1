//! Classes that are unloaded and replaced at the same addresses all the time: a name is right or `[unloaded]`.

use java_tests::{Jdk, NumberedClasses, Run, Workload, on_every_jdk, on_jdks};

/// Each generation has a thread of its own, so a frame of another generation was not alive at the sample's time, or
/// ran elsewhere; but for its constructor, which the main thread runs.
fn examine(run: &Run) -> NumberedClasses {
    let constructs = |thread: &str, frame: &str| thread == "main" && frame.ends_with(".<init>");
    NumberedClasses::of(run.stacks_by_thread().all, ("Gen", "gen-"), constructs, |_| false)
}

fn churn(jdk: &Jdk, options: &[&str], record_options: &[&str]) -> (Run, NumberedClasses) {
    let mut workload = Workload::new("ClassChurn").argument(2).argument(12).argument(3);
    for option in options {
        workload = workload.jvm(option);
    }
    for option in record_options {
        workload = workload.record_option(option);
    }
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    let seen = examine(&run);
    assert!(seen.wrong.is_empty(), "{options:?}: {:#?}", seen.wrong);
    assert!(seen.all > 0, "no sample of any generation");
    (run, seen)
}

/// A budget that holds on a machine which others use as well.
const PATIENT: &str = "--agent-option=gcdrain=100ms";

/// Where pauses wait for the sampler, hardly a name is lost. What a machine that others use makes of the budget that is
/// set by default is no property of ours.
fn pauses_wait(jdk: &Jdk, option: &str) -> Run {
    let (run, seen) = churn(jdk, &[option], &[PATIENT]);
    let unloading = &run.summary().unloading;
    assert!(unloading.pause_added_ns.count > 0, "no collection was seen");
    assert!(unloading.pause_added_ns.cut_short <= unloading.pause_added_ns.count / 20, "{unloading:?}");
    assert!(seen.share(seen.unloaded) <= 0.02, "{} unloaded: {unloading:?}", seen.share(seen.unloaded));
    assert!(seen.share(seen.named) >= 0.95, "{seen:?}");
    run
}

on_every_jdk! { beside;
    fn g1(jdk) {
        let run = pauses_wait(jdk, "-XX:+UseG1GC");
        assert_eq!(run.summary().unloading.detector, "unload counters");
    }
}

on_every_jdk! { beside;
    fn serial(jdk) {
        pauses_wait(jdk, "-XX:+UseSerialGC");
    }
}

on_every_jdk! { beside;
    fn parallel(jdk) {
        pauses_wait(jdk, "-XX:+UseParallelGC");
    }
}

on_jdks! {
    17, 21, 25;
    /// Unloads concurrently: no pause protects anything.
    fn zgc(jdk) {
        let (_, seen) = churn(jdk, &["-XX:+UseZGC"], &[]);
        assert!(seen.share(seen.named) >= 0.70, "{seen:?}");
    }
}

on_every_jdk! { beside;
    /// Without performance counters pauses tell, and no name is guessed.
    fn without_counters(jdk) {
        let (run, _) = churn(jdk, &["-XX:+UseG1GC", "-XX:-UsePerfData"], &[]);
        assert_eq!(run.summary().unloading.detector, "pauses only");
    }
}

on_every_jdk! { beside;
    /// Nothing waits for the sampler: more is lost, nothing is wrong.
    fn without_drain(jdk) {
        let run = Workload::new("ClassChurn")
            .argument(2)
            .argument(12)
            .argument(1)
            .jvm("-XX:+UseSerialGC")
            .record_to_file(jdk, "gcdrain=off");
        run.assert_exit_code(0);
        let seen = examine(&run);
        assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
        assert!(seen.named > 0, "{seen:?}");
    }
}
