//! Stacks are whole beside a library with a CPU timer of its own, whose signal the kernel delivers at the same tick.

use java_tests::{Jdk, Stack, Workload, native_library, on_every_jdk};

/// Runs the workload with a timer of this kind; at most one stack of a thousand may be cut.
fn check_beside(jdk: &Jdk, timer: &str) {
    let library = native_library("foreigntimer");
    let run = Workload::new("ForeignTimer").argument(8).argument(library.display()).argument(timer);
    let run = run.argument(4000).record_option("--interval=4ms").record(jdk);
    run.assert_exit_code(0);
    let ticks = run.truth.number("timer", timer, "ticks");
    assert!(ticks > 100, "the foreign timer expired {ticks} times");

    let main = run.stacks().below("ForeignTimer.main");
    let all = run.stacks_by_thread().below("main").all;
    let total: u64 = all.iter().map(|stack| stack.ns).sum();
    // Assembler routines that are entered by a jump have no unwind table; the Java frames below them are found.
    let is_copying = |stack: &Stack| stack.frames.last().is_some_and(|leaf| leaf.starts_with("_Copy_"));
    let is_whole =
        |stack: &Stack| stack.stop.is_none() && (!stack.has("[native frames missing]") || is_copying(stack));
    let cut: Vec<&Stack> = all.iter().filter(|stack| !is_whole(stack)).collect();
    let cut_ns: u64 = cut.iter().map(|stack| stack.ns).sum();
    assert!(run.summary().thread("main").samples > 1000, "{:?}", run.summary().cpu_ns);
    assert!(cut_ns * 1000 <= total, "{cut_ns} of {total} ns in cut stacks: {cut:#?}");

    // The handler is on the stack where it runs, and nowhere else.
    let handler = main.below("foreign_handler");
    assert!(handler.total_ns() > 0, "the handler was never interrupted");
    let working = handler.share_where(|stack| stack.has_chain(&["foreign_handler", "foreign_work"]));
    assert!(working >= 0.95, "{working} of the samples in the handler are in its work: {:?}", handler.all);
}

on_every_jdk! { concurrent; fn of_a_thread(jdk) { check_beside(jdk, "thread"); } }
on_every_jdk! { concurrent; fn of_the_process_with_own_code_at_the_end_of_the_handler(jdk) { check_beside(jdk, "process"); } }
