//! Stacks of virtual threads that have blocked: all frames but the newest wait in the heap.

use java_tests::{Jdk, Run, Stack, Workload, on_jdks};

const DEPTH: usize = 150;
/// Least CPU time of its work, a fixed count that takes two seconds, on a fast machine.
const LEAST_NS: u64 = 200_000_000;

fn record(jdk: &Jdk, options: &[&str], agent: &[&str]) -> Run {
    // What is cut or marked by mistake is rare: five hundred samples tell it from what is not.
    let workload = Workload::new("FrozenStack").argument(2).argument(DEPTH).record_option("--interval=4ms");
    let workload = options.iter().fold(workload, |workload, option| workload.jvm(option));
    let with_agent =
        |workload: Workload, option| workload.record_option("--agent-option").record_option(option);
    let run = agent.iter().copied().fold(workload, with_agent).record(jdk);
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
    let run = record(jdk, options, &[]);
    let burn = run.stacks().below("FrozenStack.burn");
    assert!(burn.total_ns() > LEAST_NS, "{options:?}: {} ns in burn", burn.total_ns());
    let whole = burn.share_where(is_whole);
    assert!(
        whole >= 0.98,
        "{options:?}: {whole} of the samples in burn are whole: {:?}",
        run.summary().stops
    );
}

/// The collector moves objects while Java code runs, or the layout is unknown: the cut is marked, nothing is guessed.
fn check_marked(jdk: &Jdk, options: &[&str]) {
    let run = record(jdk, options, &[]);
    let burn = run.stacks().below("FrozenStack.burn");
    assert!(burn.total_ns() > LEAST_NS, "{options:?}: {} ns in burn", burn.total_ns());
    let marked = burn.share_where(|stack| stack.stop.as_deref() == Some("continuation_barrier"));
    assert!(marked >= 0.98, "{options:?}: {marked} of the samples in burn are marked");
}

on_jdks! { beside 21, 25; fn whole_with_g1(jdk) { check_whole(jdk, &["-XX:+UseG1GC"]); } }
on_jdks! { beside 21, 25; fn whole_with_serial(jdk) { check_whole(jdk, &["-XX:+UseSerialGC"]); } }
on_jdks! { beside 21, 25; fn whole_with_parallel(jdk) { check_whole(jdk, &["-XX:+UseParallelGC"]); } }
on_jdks! { beside 21, 25; fn whole_with_wide_references(jdk) { check_whole(jdk, &["-XX:-UseCompressedOops"]); } }
on_jdks! { beside 25; fn whole_with_compact_headers(jdk) { check_whole(jdk, &["-XX:+UseCompactObjectHeaders"]); } }
on_jdks! { beside 21, 25; fn whole_with_checked_jni(jdk) { check_whole(jdk, &["-Xcheck:jni"]); } }
on_jdks! {
    21, 25;
    /// Frozen interpreter frames are linked by distances instead of addresses.
    fn whole_when_interpreted(jdk) { check_whole(jdk, &["-XX:CompileCommand=exclude,FrozenStack::descend"]); }
}
on_jdks! { beside 21, 25; fn cut_with_zgc(jdk) { check_marked(jdk, &["-XX:+UseZGC"]); } }

on_jdks! {
    21, 25;
    /// Frozen frames that do not fit are cut like those of a stack: the newest are shown, and that the rest is missing.
    fn cut_where_room_is_short(jdk) {
        // The thread's stack comes first: the newest frames and the carrier's.
        let run = record(jdk, &["-XX:CompileCommand=exclude,FrozenStack::descend"], &["maxstack=12k"]);
        let burn = run.stacks().below("FrozenStack.burn");
        assert!(burn.total_ns() > LEAST_NS, "{} ns in burn", burn.total_ns());
        let is_cut = |stack: &Stack| {
            stack.stop.as_deref() == Some("copy_end")
                && (20..DEPTH).contains(&stack.count("FrozenStack.descend"))
                && !stack.has("FrozenStack.run")
        };
        let cut = burn.share_where(is_cut);
        assert!(cut >= 0.98, "{cut} of the samples in burn are cut: {:#?}", burn.all);
    }
}

/// What stands for frames on their way from the heap to the stack.
const THAWING: &str = "[frames being thawed]";

/// Four samples of threads that return from everything.
const MOST_RETURNING_NS: u64 = 16_000_000;

/// Frames of `ContendedMonitors.descend` on each of its stacks.
const FIGHT_DEPTH: usize = 30;

/// Threads that let go of their carrier all the time: what is met while frames move between stack and heap is whole, or
/// says that it is not; no frame is there twice or missing without a word.
fn check_switches(jdk: &Jdk, options: &[&str], rounds: u32) -> Run {
    let workload = Workload::new("ContendedMonitors").argument(rounds).record_option("--interval=4ms");
    let run = options.iter().fold(workload, |workload, option| workload.jvm(option)).record(jdk);
    run.assert_exit_code(0);
    let stacks = run.stacks();
    let fights = |stack: &Stack| stack.has("ContendedMonitors.fight");
    let mut returning = 0;
    for stack in stacks.all.iter().filter(|stack| fights(stack) || moves(stack)) {
        let descends = stack.count("ContendedMonitors.descend");
        // The two newest frames at most are on their way: `fight` and what it calls. Of a thread that returns from
        // everything it is any.
        let is_right = descends == FIGHT_DEPTH && (fights(stack) || stack.has(THAWING));
        let is_returning = stack.has(THAWING) && descends < FIGHT_DEPTH;
        returning += if is_returning { stack.ns } else { 0 };
        let is_right = is_right || is_returning;
        // A thread that has only begun, or is ending, is on none of the two.
        let is_outside = descends == 0 && !fights(stack) && stack.has("jdk.internal.vm.Continuation.enter");
        let is_right = is_right || is_outside || (stack.stop.is_some() && descends <= FIGHT_DEPTH);
        assert!(is_right, "{options:?}: {descends} times descend in {stack:#?}");
    }
    // Each does that once, and it yields or waits hundreds of times.
    let moving = stacks.ns_where(moves);
    assert!(returning <= MOST_RETURNING_NS.max(moving / 20), "{options:?}: {returning} of {moving} ns");
    assert!(stacks.ns_where(fights) > 200_000_000, "{options:?}: {} ns", stacks.ns_where(fights));
    run
}

/// Whether frames are being moved.
fn moves(stack: &Stack) -> bool {
    stack.frames.iter().any(|frame| frame.starts_with("freeze<") || frame.starts_with("thaw<"))
}

on_jdks! {
    21, 25;
    /// Of the samples in which frames are moved, those of the first thaw instructions and of all of a freeze are whole.
    fn switches_are_whole(jdk) {
        let stacks = check_switches(jdk, &["-XX:+UseG1GC"], 300_000).stacks();
        let moving = stacks.ns_where(moves);
        let whole = stacks.ns_where(|stack| moves(stack) && stack.stop.is_none());
        assert!(whole > moving / 2, "{whole} of {moving} ns");
    }
}
on_jdks! {
    21, 25;
    /// Frames of the interpreter are moved one by one, which takes longer than all the rest.
    fn switches_are_marked_when_interpreted(jdk) {
        check_switches(jdk, &["-Xint", "-XX:+UseSerialGC"], 5_000);
    }
}
