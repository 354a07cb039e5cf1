//! Virtual threads whose frames lie in a heap that is collected all the time: no stack has a frame of another thread.

use java_tests::{Jdk, Stack, Workload, on_jdks};

/// Methods of the workload's kinds of threads, and how often each is on a stack of its kind.
const KINDS: [(&str, usize); 4] = [
    ("CollectedStacks.first", 20),
    ("CollectedStacks.second", 35),
    ("CollectedStacks.third", 50),
    ("CollectedStacks.fourth", 65),
];
/// Least share of whole stacks: a thread in native code runs beside pauses, whose share of the time depends on the
/// machine.
const MIN_WHOLE: f64 = 0.6;

/// Returns whether all frames are those of one kind of thread; a whole stack has all of them, unless the names of some
/// could not be proven.
fn is_possible(stack: &Stack) -> bool {
    let counts = KINDS.map(|(method, depth)| (stack.count(method), depth));
    let mut present = counts.into_iter().filter(|&(count, _)| count != 0);
    let kind = present.next();
    let is_of_one_kind = present.next().is_none() && kind.is_none_or(|(count, depth)| count <= depth);
    let has_all = kind.is_some_and(|(count, depth)| count == depth) && stack.has("CollectedStacks.run");
    is_of_one_kind && (stack.stop.is_some() || stack.has("[unloaded]") || has_all)
}

fn judge(jdk: &Jdk, options: &[&str]) {
    // Seconds, threads, milliseconds between two collections.
    let workload = Workload::new("CollectedStacks").argument(2).argument(400).argument(20);
    let workload = workload.record_option("--interval=1ms").jvm_option("-Xmx512m");
    let workload = workload.jvm_option("-Djdk.reflect.useNativeAccessorOnly=true");
    let run = options.iter().fold(workload, |workload, option| workload.jvm_option(option)).record(jdk);
    run.assert_exit_code(0);
    let below = run.stacks().below("CollectedStacks.work");
    assert!(below.total_ns() > 100_000_000, "{options:?}: {} ns", below.total_ns());
    let wrong: Vec<&Stack> = below.all.iter().filter(|stack| !is_possible(stack)).collect();
    assert!(wrong.is_empty(), "{options:?}: {wrong:#?}");
    let native = below.clone().below("java.util.zip.Deflater.deflateBytesBytes");
    // A thread that cannot unmount: frames of native code and of the VM between its Java frames.
    let called = below.clone().below("CollectedStacks.called");
    for (place, stacks) in [("all", &below), ("native code", &native), ("called by native code", &called)] {
        let whole = stacks.share_where(|stack| stack.stop.is_none());
        assert!(whole >= MIN_WHOLE, "{options:?}, {place}: {whole} of {} ns", stacks.total_ns());
    }
}

on_jdks! { concurrent 21, 25; fn with_g1(jdk) { judge(jdk, &["-XX:+UseG1GC"]); } }
on_jdks! { concurrent 21, 25; fn with_zgc(jdk) { judge(jdk, &["-XX:+UseZGC"]); } }
on_jdks! { concurrent 21; fn with_generational_zgc(jdk) { judge(jdk, &["-XX:+UseZGC", "-XX:+ZGenerational"]); } }
on_jdks! { concurrent 21, 25; fn with_shenandoah(jdk) { judge(jdk, &["-XX:+UseShenandoahGC"]); } }
