//! Stacks of virtual threads that have blocked: all frames but the newest wait in the heap.

use java_tests::{Jdk, Run, Stack, Workload, on_jdks};

const DEPTH: usize = 150;

fn record(jdk: &Jdk, options: &[&str]) -> Run {
    let workload = Workload::new("FrozenStack").argument(2).argument(DEPTH);
    let run = options.iter().fold(workload, |workload, option| workload.jvm(option)).record(jdk);
    run.assert_exit_code(0);
    run
}

fn is_whole(stack: &Stack) -> bool {
    let frames = &stack.frames;
    let at = frames.iter().position(|name| name == "FrozenStack.run");
    let descends = frames.iter().filter(|name| *name == "FrozenStack.descend").count();
    stack.stop.is_none()
        && descends == DEPTH
        && at.is_some_and(|at| frames.get(at + 1).is_some_and(|name| name == "FrozenStack.descend"))
}

/// Nearly every sample shows all frames from the leaf to the virtual thread's `run`.
fn check_whole(jdk: &Jdk, options: &[&str]) {
    let run = record(jdk, options);
    let burn = run.stacks().below("FrozenStack.burn");
    assert!(burn.total_ns() > 500_000_000, "{options:?}: {} ns in burn", burn.total_ns());
    let whole = burn.share_where(is_whole);
    assert!(
        whole >= 0.99,
        "{options:?}: {whole} of the samples in burn are whole: {:?}",
        run.summary().stops
    );
}

/// The collector moves objects while Java code runs, or the layout is unknown: the cut is marked, nothing is guessed.
fn check_marked(jdk: &Jdk, options: &[&str]) {
    let run = record(jdk, options);
    let burn = run.stacks().below("FrozenStack.burn");
    assert!(burn.total_ns() > 500_000_000, "{options:?}: {} ns in burn", burn.total_ns());
    let marked = burn.share_where(|stack| stack.stop.as_deref() == Some("continuation_barrier"));
    assert!(marked >= 0.99, "{options:?}: {marked} of the samples in burn are marked");
}

on_jdks! { 21, 25; fn whole_with_g1(jdk) { check_whole(jdk, &["-XX:+UseG1GC"]); } }
on_jdks! { 21, 25; fn whole_with_serial(jdk) { check_whole(jdk, &["-XX:+UseSerialGC"]); } }
on_jdks! { 21, 25; fn whole_with_parallel(jdk) { check_whole(jdk, &["-XX:+UseParallelGC"]); } }
on_jdks! { 21, 25; fn whole_with_wide_references(jdk) { check_whole(jdk, &["-XX:-UseCompressedOops"]); } }
on_jdks! { 25; fn whole_with_compact_headers(jdk) { check_whole(jdk, &["-XX:+UseCompactObjectHeaders"]); } }
on_jdks! {
    21, 25;
    /// Frozen interpreter frames are linked by distances instead of addresses.
    fn whole_when_interpreted(jdk) { check_whole(jdk, &["-XX:CompileCommand=exclude,FrozenStack::descend"]); }
}
on_jdks! { 21, 25; fn cut_with_zgc(jdk) { check_marked(jdk, &["-XX:+UseZGC"]); } }
on_jdks! { 21, 25; fn cut_with_checked_jni(jdk) { check_marked(jdk, &["-Xcheck:jni"]); } }
