//! Classes are redefined while they run, as Java agents and debuggers do: each frame has the right name or
//! `[unloaded]`.

use java_tests::{GeneratedClasses, Jdk, Run, Workload, on_every_jdk};

/// CPU time that the workload burns after the last redefinition; the first samples of it may be `[unloaded]`.
const FINAL_NS: u64 = 400_000_000;

/// Asserts that names are certain after the last redefinition. Before it, redefinitions follow every few milliseconds
/// and few samples are walked before the next, so names are lost where redefinitions free methods.
fn check_names_return(classes: &GeneratedClasses, jdk: &Jdk) {
    assert!(classes.named_ns >= FINAL_NS / 4 * 3, "{classes:?}");
    // On JDK 11 collections alone free methods, and these wait for the sampler.
    assert!(classes.unloaded_ns > 0 || jdk.feature == 11, "{classes:?}");
}

/// Checks the names in a profile. Each class runs on threads of its own, so a frame of another class on them is wrong.
fn check_names(run: &Run) -> GeneratedClasses {
    let is_foreign = |frame: &str| frame.starts_with("Redefinition.main");
    // The main thread runs constructors of all classes.
    let is_shared = |thread: &str, _: &str| !thread.starts_with("red-");
    GeneratedClasses::of(run.stacks_by_thread().all, ("Red", "red-"), is_shared, is_foreign)
}

fn redefine(jdk: &Jdk, options: &[&str], between_collections: u32) -> (Run, GeneratedClasses) {
    let mut workload = Workload::new("Redefinition")
        .argument(3)
        .argument(12)
        .argument(between_collections)
        .jvm_option("-Djdk.attach.allowAttachSelf=true");
    for option in options {
        workload = workload.jvm_option(option);
    }
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    let classes = check_names(&run);
    assert!(classes.wrong.is_empty(), "{options:?}: {:#?}", classes.wrong);
    assert!(classes.total_ns > 0, "no sample of any class");
    (run, classes)
}

on_every_jdk! { concurrent;
    fn with_collections(jdk) {
        let (_, classes) = redefine(jdk, &["-XX:+UseSerialGC"], 3);
        check_names_return(&classes, jdk);
    }
}

on_every_jdk! { concurrent;
    fn with_parallel_collections(jdk) {
        redefine(jdk, &["-XX:+UseParallelGC"], 3);
    }
}

on_every_jdk! { concurrent;
    /// From JDK 17 on, redefinition frees old versions of methods without a collection.
    fn without_collections(jdk) {
        let (_, classes) = redefine(jdk, &["-XX:+UseG1GC"], 0);
        check_names_return(&classes, jdk);
    }
}

on_every_jdk! { concurrent;
    /// Safepoints that free no method cost no names: young collections and loaded classes come every few milliseconds.
    /// Each retransformation, one a second, may cost the names of one drain period of 25 ms, a fortieth of the time;
    /// the bound allows for a sampler that is four times as late. If all safepoints counted, it would be half of the
    /// time.
    fn names_stay_known_under_a_retransforming_agent(jdk) {
        for collector in ["-XX:+UseSerialGC", "-XX:+UseG1GC"] {
            // A second of the main thread has some 800 collections.
            let run = Workload::new("Retransformation")
                .argument(1)
                .argument(1000)
                .argument(1)
                .jvm_option("-Djdk.attach.allowAttachSelf=true")
                .jvm_option(collector)
                .jvm_option("-Xmx256m")
                .jvm_option("-Xmn2m")
                .record(jdk);
            run.assert_exit_code(0);
            let main = run.stacks_by_thread().below("main");
            let (unloaded, total) = (main.ns_below("[unloaded]"), main.total_ns());
            assert!(total > 750_000_000, "{total} ns in main");
            assert!(
                unloaded <= total / 10,
                "{collector}: {unloaded} of {total} ns are [unloaded], {:?}",
                run.starvation
            );
        }
    }
}

on_every_jdk! { concurrent;
    /// Without redefinitions, names stay certain while classes are loaded and garbage is collected.
    fn names_are_certain_without_redefinition(jdk) {
        let run = Workload::new("AllocHeavy").argument(1).jvm_option("-XX:+UseSerialGC").record(jdk);
        run.assert_exit_code(0);
        assert_eq!(run.stacks().ns_below("[unloaded]"), 0);
    }
}

on_every_jdk! { concurrent;
    /// The marks that prove names are read before the first sample.
    fn names_are_certain_from_the_first_sample_on(jdk) {
        for _ in 0..4 {
            let run = Workload::new("Lambdas").argument(0.3).record_option("--interval=1ms").record(jdk);
            run.assert_exit_code(0);
            assert!(run.summary().samples > 50, "{:?}", run.summary().cpu_ns);
            assert_eq!(run.stacks().ns_below("[unloaded]"), 0);
        }
    }
}
