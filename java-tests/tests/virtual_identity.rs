//! Samples carry the id and name of their virtual thread, and the CPU time is in the accounts of the carriers.

use std::collections::BTreeMap;

use java_tests::{
    CARRIER_CLOCK_OPTION, INTERVAL_NS, Jdk, Run, Stack, VirtualThread, Workload, on_jdks, spans_tolerance_ns,
};

const HEAVY: &str = "heavy-\u{65e5}\u{672c}";
const TASKS: [(&str, &str); 4] = [
    ("VirtualIdentity.heavy", HEAVY),
    ("VirtualIdentity.light", "light"),
    ("VirtualIdentity.unnamed", ""),
    ("VirtualIdentity.pack", "pack"),
];

/// Spans of each task in the workload; the first task has three times as many.
const SPANS: u64 = 10;

/// Largest difference by samples between a mount and the first frame of the task, and after its last frame.
const OUTSIDE_NS: u64 = 40_000_000;
/// Largest time of short threads whose only sample was taken inside the VM, of some fifty samples.
const UNNAMED_NS: u64 = 30_000_000;

fn record(jdk: &Jdk, options: &[&str]) -> Run {
    let workload = Workload::new("VirtualIdentity").argument(0.5).jvm_option(CARRIER_CLOCK_OPTION);
    let workload = options.iter().fold(workload, |workload, option| workload.jvm_option(option));
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    run.summary().assert_losses();
    run
}

/// Returns the virtual thread that ran `method`, found by its id in Java.
fn thread<'r>(run: &'r Run, method: &str) -> &'r VirtualThread {
    let java_id = run.truth.number("method", method, "java_id");
    let threads = &run.summary().virtual_threads;
    let found = threads.iter().find(|thread| thread.java_id == java_id);
    found.unwrap_or_else(|| panic!("{method}: no thread #{java_id} in {threads:#?}"))
}

/// Asserts that each thread id has the CPU time of its own method on all carriers.
fn check_ids(run: &Run) {
    let (stacks, by_thread) = (run.stacks(), run.stacks_by_thread());
    // Zero on a machine without scheduling delays.
    let lost = run.summary().cpu_ns.lost_before_end().cast_unsigned();
    for ((method, _), spans) in TASKS.into_iter().zip([3 * SPANS, SPANS, SPANS, SPANS]) {
        let thread = thread(run, method);
        let below = stacks.ns_below(method);
        let (truth, tolerance) = (run.truth.method_cpu_ns(method), spans_tolerance_ns(spans, INTERVAL_NS));
        assert!(
            below.abs_diff(truth) <= tolerance + lost,
            "{method}: {below} of {truth} ns, tolerance {tolerance}, lost {lost}"
        );
        let difference = thread.sampled_ns.abs_diff(below);
        let named = |stack: &Stack| !thread.name.is_empty() && stack.has(&thread.name) && !stack.has(method);
        let others: Vec<&Stack> = by_thread.all.iter().filter(|stack| named(stack)).collect();
        assert!(difference <= OUTSIDE_NS, "{method}: {below} ns below it, {thread:?}, besides: {others:#?}");
        let foreign = by_thread.ns_where(|stack| stack.has(method) && !stack.has(&thread.name));
        assert!(foreign <= below / 100, "{method}: {foreign} of {below} ns under another name");
        assert!(!thread.carriers.is_empty());
        let is_carrier = |name: &String| name.starts_with("ForkJoinPool-1-worker-");
        assert!(thread.carriers.iter().all(is_carrier), "{thread:?}");
    }
}

/// Asserts that the accounts of the carriers close and hold the CPU time of their virtual threads.
fn check_accounts(run: &Run) {
    let summary = run.summary();
    let carried: u64 = summary.virtual_threads.iter().map(|thread| thread.sampled_ns).sum();
    let carriers = summary.threads.iter().filter(|thread| thread.name.starts_with("ForkJoinPool-1-worker-"));
    let sampled: i64 = carriers.clone().map(|thread| thread.sampled_ns).sum();
    assert!(sampled.cast_unsigned() >= carried, "{carried} ns in virtual threads, {sampled} ns in carriers");
    assert!(carriers.clone().all(|thread| thread.gap_ns() == 0 && thread.kernel_ns >= 0));
    let sum: i64 = summary.threads.iter().map(|thread| thread.sampled_ns).sum();
    assert_eq!(sum, summary.cpu_ns.sampled, "each sample is in one account");
}

/// Asserts that the names are those of Java, and that threads which follow each other on a carrier are distinguished.
fn check_names(run: &Run) {
    for (method, name) in TASKS {
        let thread = thread(run, method);
        let shown = if name.is_empty() { format!("virtual thread #{}", thread.java_id) } else { name.into() };
        assert_eq!(thread.name, shown);
    }
    let first = run.truth.number("method", "VirtualIdentity.brief", "java_id");
    let brief = run.summary().virtual_threads.iter().filter_map(|thread| {
        let number: u64 = thread.name.strip_prefix("brief-")?.parse().ok()?;
        Some((number, thread.java_id))
    });
    // The threads are created in the order of their names, and so are their ids.
    let brief: BTreeMap<u64, u64> = brief.collect();
    assert!(brief.len() >= 20, "{} of 40 short threads", brief.len());
    assert!(brief.values().is_sorted() && brief.values().all(|&java_id| java_id >= first), "{brief:?}");
    assert!(brief.get(&0).is_none_or(|&java_id| java_id == first), "{brief:?}");
    let stacks = run.stacks_by_thread();
    let all = stacks.ns_below("VirtualIdentity.brief");
    let named = stacks.ns_where(|stack| {
        stack.has("VirtualIdentity.brief") && stack.frames.iter().any(|name| name.starts_with("brief-"))
    });
    // A thread whose only sample was taken inside the VM has an id and no name.
    let unnamed = all - named;
    assert!(unnamed <= (all / 50).max(UNNAMED_NS), "{named} of {all} ns of short threads are named");
}

fn check_all(run: &Run) {
    check_ids(run);
    check_names(run);
    check_accounts(run);
}

on_jdks! { 21, 25; fn with_g1(jdk) { check_all(&record(jdk, &["-XX:+UseG1GC"])); } }
on_jdks! { 21, 25; fn with_serial(jdk) { check_all(&record(jdk, &["-XX:+UseSerialGC"])); } }
on_jdks! {
    21, 25;
    fn with_parallel_and_wide_words(jdk) {
        check_all(&record(jdk, &["-XX:+UseParallelGC", "-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"]));
    }
}
on_jdks! {
    21, 25;
    /// One carrier for all threads: each sample belongs to the thread that was mounted.
    fn on_one_carrier(jdk) {
        check_all(&record(jdk, &["-Djdk.virtualThreadScheduler.parallelism=1"]));
    }
}
on_jdks! {
    21, 25;
    /// Mounts are detected in C1 code that was compiled at the first call.
    fn when_interpreted(jdk) { check_all(&record(jdk, &["-XX:TieredStopAtLevel=1", "-Xcomp"])); }
}
on_jdks! {
    21, 25;
    /// ZGC moves objects at any time: names are read where the colour of a reference allows it.
    fn with_zgc(jdk) { check_all(&record(jdk, &["-XX:+UseZGC"])); }
}
