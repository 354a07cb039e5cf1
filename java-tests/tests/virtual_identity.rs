//! Who burnt it: samples belong to virtual threads by number and name, and their CPU time to the carriers' accounts.

use std::collections::BTreeMap;

use java_tests::{
    CARRIER_CLOCK, INTERVAL_NS, Jdk, Run, Stack, VirtualThread, Workload, on_jdks, turns_tolerance_ns,
};

const HEAVY: &str = "heavy-\u{65e5}\u{672c}";
const TASKS: [(&str, &str); 4] = [
    ("VirtualIdentity.heavy", HEAVY),
    ("VirtualIdentity.light", "light"),
    ("VirtualIdentity.unnamed", ""),
    ("VirtualIdentity.pack", "pack"),
];

/// Turns of each task but the first, which has three times as many; as the workload has it.
const TURNS: u64 = 10;

/// What may differ: samples between a mount and the first frame of the task, and those after its last.
const SLACK_NS: u64 = 40_000_000;
/// Of some fifty samples of short threads, those of threads that were met inside the VM only.
const UNNAMED_NS: u64 = 30_000_000;

fn record(jdk: &Jdk, options: &[&str]) -> Run {
    let workload = Workload::new("VirtualIdentity").argument(0.5).jvm(CARRIER_CLOCK);
    let workload = options.iter().fold(workload, |workload, option| workload.jvm(option));
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    run.summary().assert_losses();
    run
}

/// The virtual thread that ran `method`, found by the number that Java has for it.
fn thread<'r>(run: &'r Run, method: &str) -> &'r VirtualThread {
    let java_id = run.truth.number("method", method, "java_id");
    let threads = &run.summary().virtual_threads;
    let found = threads.iter().find(|thread| thread.java_id == java_id);
    found.unwrap_or_else(|| panic!("{method}: no thread #{java_id} in {threads:#?}"))
}

/// Each thread has the CPU time of its own method, whatever carried it.
fn check_numbers(run: &Run) {
    let (stacks, by_thread) = (run.stacks(), run.stacks_by_thread());
    // None, on a machine that lets the sampler run.
    let lost = run.summary().cpu_ns.lost_before_end().cast_unsigned();
    for ((method, _), turns) in TASKS.into_iter().zip([3 * TURNS, TURNS, TURNS, TURNS]) {
        let thread = thread(run, method);
        let below = stacks.ns_below(method);
        let (truth, tolerance) = (run.truth.method_cpu_ns(method), turns_tolerance_ns(turns, INTERVAL_NS));
        assert!(
            below.abs_diff(truth) <= tolerance + lost,
            "{method}: {below} of {truth} ns, give or take {tolerance}, {lost} lost"
        );
        let difference = thread.sampled_ns.abs_diff(below);
        let named = |stack: &Stack| !thread.name.is_empty() && stack.has(&thread.name) && !stack.has(method);
        let others: Vec<&Stack> = by_thread.all.iter().filter(|stack| named(stack)).collect();
        assert!(difference <= SLACK_NS, "{method}: {below} ns below it, {thread:?}, besides: {others:#?}");
        let foreign = by_thread.ns_where(|stack| stack.has(method) && !stack.has(&thread.name));
        assert!(foreign <= below / 100, "{method}: {foreign} of {below} ns under another name");
        assert!(!thread.carriers.is_empty());
        let is_carrier = |name: &String| name.starts_with("ForkJoinPool-1-worker-");
        assert!(thread.carriers.iter().all(is_carrier), "{thread:?}");
    }
}

/// The accounts of the carriers close, and hold all that their virtual threads burnt.
fn check_accounts(run: &Run) {
    let summary = run.summary();
    let carried: u64 = summary.virtual_threads.iter().map(|thread| thread.sampled_ns).sum();
    let carriers = summary.threads.iter().filter(|thread| thread.name.starts_with("ForkJoinPool-1-worker-"));
    let sampled: i64 = carriers.clone().map(|thread| thread.sampled_ns).sum();
    assert!(sampled.cast_unsigned() >= carried, "{carried} ns carried, {sampled} ns accounted for");
    assert!(carriers.clone().all(|thread| thread.gap_ns() == 0 && thread.kernel_ns >= 0));
    let sum: i64 = summary.threads.iter().map(|thread| thread.sampled_ns).sum();
    assert_eq!(sum, summary.cpu_ns.sampled, "each sample is in one account");
}

/// Names as Java has them; those that follow each other on a carrier are told apart.
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
    // They were made in the order of their names, and so were their numbers.
    let brief: BTreeMap<u64, u64> = brief.collect();
    assert!(brief.len() >= 20, "{} of 40 short threads", brief.len());
    assert!(brief.values().is_sorted() && brief.values().all(|&java_id| java_id >= first), "{brief:?}");
    assert!(brief.get(&0).is_none_or(|&java_id| java_id == first), "{brief:?}");
    let stacks = run.stacks_by_thread();
    let all = stacks.ns_below("VirtualIdentity.brief");
    let named = stacks.ns_where(|stack| {
        stack.has("VirtualIdentity.brief") && stack.frames.iter().any(|name| name.starts_with("brief-"))
    });
    // A thread whose only sample found it inside the VM has a number and no name.
    let unnamed = all - named;
    assert!(
        unnamed <= (all / 50).max(UNNAMED_NS),
        "{named} of {all} ns of short threads under a name of theirs"
    );
}

fn check_all(run: &Run) {
    check_numbers(run);
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
    /// One carrier for all: each sample belongs to whom it carried then.
    fn on_one_carrier(jdk) {
        check_all(&record(jdk, &["-Djdk.virtualThreadScheduler.parallelism=1"]));
    }
}
on_jdks! {
    21, 25;
    /// Mounts are told by the interpreter's code as by compiled code.
    fn when_interpreted(jdk) { check_all(&record(jdk, &["-XX:TieredStopAtLevel=1", "-Xcomp"])); }
}
on_jdks! {
    21, 25;
    /// The collector moves objects at any time: numbers are known all the same, names are not.
    fn numbers_with_zgc(jdk) {
        let run = record(jdk, &["-XX:+UseZGC"]);
        check_numbers(&run);
        check_accounts(&run);
        let is_number = |thread: &VirtualThread| thread.name == format!("virtual thread #{}", thread.java_id);
        assert!(run.summary().virtual_threads.iter().all(is_number), "{:#?}", run.summary().virtual_threads);
    }
}
