//! Stacks of virtual threads that have blocked: all but the newest frames are in the heap.

use java_tests::{Jdk, Run, Stack, Workload, on_jdks};

const DEPTH: usize = 150;
/// Least CPU time of the workload, a fixed amount of work, on a fast machine.
const MIN_NS: u64 = 200_000_000;

fn record(jdk: &Jdk, options: &[&str], agent: &[&str]) -> Run {
    // Stacks that are cut by a defect may be rare, so the run has five hundred samples.
    let workload = Workload::new("FrozenStack").argument(2).argument(DEPTH).record_option("--interval=4ms");
    let workload = options.iter().fold(workload, |workload, option| workload.jvm_option(option));
    let with_agent =
        |workload: Workload, option| workload.record_option("--agent-option").record_option(option);
    let run = agent.iter().copied().fold(workload, with_agent).record(jdk);
    run.assert_exit_code(0);
    run
}

fn is_complete(stack: &Stack) -> bool {
    let frames = &stack.frames;
    let at = frames.iter().position(|name| name == "FrozenStack.run");
    let descends = frames.iter().filter(|name| *name == "FrozenStack.descend").count();
    stack.stop.is_none()
        && descends == DEPTH
        && at.is_some_and(|at| frames.get(at + 1).is_some_and(|name| name == "FrozenStack.descend"))
}

/// Asserts that nearly every sample has all frames from the leaf to the virtual thread's `run`.
fn check_complete(jdk: &Jdk, options: &[&str]) {
    let run = record(jdk, options, &[]);
    let burn = run.stacks().below("FrozenStack.burn");
    assert!(burn.total_ns() > MIN_NS, "{options:?}: {} ns in burn", burn.total_ns());
    let whole = burn.share_where(is_complete);
    assert!(
        whole >= 0.98,
        "{options:?}: {whole} of the samples in burn are complete: {:?}",
        run.summary().stops
    );
}

on_jdks! { concurrent 21, 25; fn complete_with_g1(jdk) { check_complete(jdk, &["-XX:+UseG1GC"]); } }
on_jdks! { concurrent 21, 25; fn complete_with_serial(jdk) { check_complete(jdk, &["-XX:+UseSerialGC"]); } }
on_jdks! { concurrent 21, 25; fn complete_with_parallel(jdk) { check_complete(jdk, &["-XX:+UseParallelGC"]); } }
on_jdks! { concurrent 21, 25; fn complete_with_wide_references(jdk) { check_complete(jdk, &["-XX:-UseCompressedOops"]); } }
on_jdks! { concurrent 25; fn complete_with_compact_headers(jdk) { check_complete(jdk, &["-XX:+UseCompactObjectHeaders"]); } }
on_jdks! { concurrent 21, 25; fn complete_with_checked_jni(jdk) { check_complete(jdk, &["-Xcheck:jni"]); } }
on_jdks! {
    concurrent 21, 25;
    /// Frozen interpreter frames are linked by offsets instead of addresses.
    fn complete_when_interpreted(jdk) { check_complete(jdk, &["-XX:CompileCommand=exclude,FrozenStack::descend"]); }
}
on_jdks! { concurrent 21, 25; fn complete_with_zgc(jdk) { check_complete(jdk, &["-XX:+UseZGC"]); } }
on_jdks! {
    concurrent 21;
    fn complete_with_generational_zgc(jdk) { check_complete(jdk, &["-XX:+UseZGC", "-XX:+ZGenerational"]); }
}
on_jdks! { concurrent 21, 25; fn complete_with_shenandoah(jdk) { check_complete(jdk, &["-XX:+UseShenandoahGC"]); } }

on_jdks! {
    concurrent 21, 25;
    /// Frozen frames beyond the size limit are cut like those of a stack: the newest are shown, and the cut is marked.
    fn cut_at_the_size_limit(jdk) {
        // The limit covers the thread's stack first: the newest frames and those of the carrier.
        let run = record(jdk, &["-XX:CompileCommand=exclude,FrozenStack::descend"], &["maxstack=12k"]);
        let burn = run.stacks().below("FrozenStack.burn");
        assert!(burn.total_ns() > MIN_NS, "{} ns in burn", burn.total_ns());
        let is_cut = |stack: &Stack| {
            stack.stop.as_deref() == Some("copy_end")
                && (20..DEPTH).contains(&stack.count("FrozenStack.descend"))
                && !stack.has("FrozenStack.run")
        };
        let cut = burn.share_where(is_cut);
        assert!(cut >= 0.98, "{cut} of the samples in burn are cut: {:#?}", burn.all);
    }
}

/// Frame that marks frames which are being moved from the heap to the stack.
const THAWING: &str = "[frames being thawed]";

/// Largest time of threads that return from all frames: four samples.
const MAX_RETURNING_NS: u64 = 16_000_000;

/// Frames of `ContendedMonitors.descend` on each of its stacks.
const FIGHT_DEPTH: usize = 30;

/// Threads unmount all the time: a stack that is sampled while frames move between stack and heap is complete or
/// marked, and no frame is duplicated or missing without a mark.
fn check_switches(jdk: &Jdk, options: &[&str], rounds: u32) -> Run {
    let workload = Workload::new("ContendedMonitors").argument(rounds).record_option("--interval=4ms");
    let run = options.iter().fold(workload, |workload, option| workload.jvm_option(option)).record(jdk);
    run.assert_exit_code(0);
    let stacks = run.stacks();
    let fights = |stack: &Stack| stack.has("ContendedMonitors.fight");
    let mut returning = 0;
    for stack in stacks.all.iter().filter(|stack| fights(stack) || moves(stack)) {
        let descends = stack.count("ContendedMonitors.descend");
        // At most the two newest frames are being moved: `fight` and its callee. In a thread that returns from all
        // frames it may be any frame.
        let is_right = descends == FIGHT_DEPTH && (fights(stack) || stack.has(THAWING));
        let is_returning = stack.has(THAWING) && descends < FIGHT_DEPTH;
        returning += if is_returning { stack.ns } else { 0 };
        let is_right = is_right || is_returning;
        // A thread that is starting or ending has neither method on its stack.
        let is_outside = descends == 0 && !fights(stack) && stack.has("jdk.internal.vm.Continuation.enter");
        let is_right = is_right || is_outside || (stack.stop.is_some() && descends <= FIGHT_DEPTH);
        assert!(is_right, "{options:?}: {descends} times descend in {stack:#?}");
    }
    // Each thread returns from all frames once, and yields or waits hundreds of times.
    let moving = stacks.ns_where(moves);
    assert!(returning <= MAX_RETURNING_NS.max(moving / 20), "{options:?}: {returning} of {moving} ns");
    assert!(stacks.ns_where(fights) > 200_000_000, "{options:?}: {} ns", stacks.ns_where(fights));
    run
}

/// Returns whether frames are being moved.
fn moves(stack: &Stack) -> bool {
    stack.frames.iter().any(|frame| frame.starts_with("freeze<") || frame.starts_with("thaw<"))
}

on_jdks! {
    21, 25;
    /// Most samples in which frames are moved are complete: those of a freeze and of the first instructions of a thaw.
    fn switches_are_complete(jdk) {
        let stacks = check_switches(jdk, &["-XX:+UseG1GC"], 300_000).stacks();
        let moving = stacks.ns_where(moves);
        let whole = stacks.ns_where(|stack| moves(stack) && stack.stop.is_none());
        assert!(whole > moving / 2, "{whole} of {moving} ns");
    }
}
on_jdks! {
    21, 25;
    /// Interpreter frames are moved one by one, which takes longest.
    fn switches_are_marked_when_interpreted(jdk) {
        check_switches(jdk, &["-Xint", "-XX:+UseSerialGC"], 5_000);
    }
}
