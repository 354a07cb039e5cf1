//! Classes that are redefined while they run, as Java agents and debugging tools do: a name is right or `[unloaded]`.

use java_tests::{Jdk, NumberedClasses, Run, Workload, on_every_jdk};

/// CPU time that is burnt after the last redefinition, in nanoseconds; the first samples of it may be doubted.
const CALM_NS: u64 = 400_000_000;

/// With a redefinition every few milliseconds hardly a sample is walked before the next; afterwards all are named.
fn names_return(seen: &NumberedClasses) {
    assert!(seen.named >= CALM_NS / 4 * 3, "{seen:?}");
    assert!(seen.unloaded > 0, "{seen:?}");
}

/// Each class runs on threads of its own, so a frame of another class did not run at the sample's time.
fn examine(run: &Run) -> NumberedClasses {
    let is_foreign = |frame: &str| frame.starts_with("Redefined.main");
    // What the main thread runs of them is left out.
    let is_elsewhere = |thread: &str, _: &str| !thread.starts_with("red-");
    NumberedClasses::of(run.stacks_by_thread().all, ("Red", "red-"), is_elsewhere, is_foreign)
}

fn redefine(jdk: &Jdk, options: &[&str], between_collections: u32) -> (Run, NumberedClasses) {
    let mut workload = Workload::new("Redefined")
        .argument(3)
        .argument(12)
        .argument(between_collections)
        .jvm("-Djdk.attach.allowAttachSelf=true");
    for option in options {
        workload = workload.jvm(option);
    }
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    let seen = examine(&run);
    assert!(seen.wrong.is_empty(), "{options:?}: {:#?}", seen.wrong);
    assert!(seen.all > 0, "no sample of any class");
    (run, seen)
}

on_every_jdk! { beside;
    fn with_collections(jdk) {
        let (_, seen) = redefine(jdk, &["-XX:+UseSerialGC"], 3);
        names_return(&seen);
    }
}

on_every_jdk! { beside;
    /// Redefinition frees old versions by itself.
    fn without_collections(jdk) {
        let (_, seen) = redefine(jdk, &["-XX:+UseG1GC"], 0);
        names_return(&seen);
    }
}

on_every_jdk! { beside;
    /// The VM tells that nothing was redefined, so nothing is doubted where classes are loaded and garbage is collected.
    fn nothing_is_doubted_without_redefinition(jdk) {
        let run = Workload::new("AllocHeavy").argument(2).jvm("-XX:+UseSerialGC").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks_by_thread().all;
        let unloaded: u64 = stacks.iter().filter(|stack| stack.has("[unloaded]")).map(|stack| stack.ns).sum();
        let all: u64 = stacks.iter().map(|stack| stack.ns).sum();
        assert!(all > 0 && unloaded * 50 <= all, "{unloaded} of {all} ns unloaded");
    }
}
