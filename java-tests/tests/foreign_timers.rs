//! Stacks are whole beside a library with a CPU timer of its own, whose signal the kernel delivers at the same tick.

use java_tests::{Jdk, Stack, Workload, native_library, on_every_jdk};

/// Share of stacks that may be cut, as elsewhere; without a rule for the signals of others, four of five were.
const CUT: f64 = 0.0002;

/// Runs the workload with a timer of this kind; stacks are cut as rarely as without it.
fn check_beside(jdk: &Jdk, timer: &str) {
    let library = native_library("foreigntimer");
    // 1,250 samples on a 250 Hz kernel.
    let run = Workload::new("ForeignTimer").argument(5).argument(library.display()).argument(timer);
    let run = run.argument(4000).record_option("--interval=4ms").record(jdk);
    run.assert_exit_code(0);
    let ticks = run.truth.number("timer", timer, "ticks");
    assert!(ticks > 100, "the foreign timer expired {ticks} times");

    let main = run.stacks().below("ForeignTimer.main");
    assert!(run.summary().thread("main").samples > 1000, "{:?}", run.summary().cpu_ns);
    let is_whole = |stack: &Stack| stack.stop.is_none() && !stack.has("[native frames missing]");
    run.assert_failures_are_rare(&run.stacks_by_thread().below("main"), CUT, is_whole);

    // The handler is on the stack where it runs, and nowhere else.
    let handler = main.below("foreign_handler");
    assert!(handler.total_ns() > 0, "the handler was never interrupted");
    let working = handler.share_where(|stack| stack.has_chain(&["foreign_handler", "foreign_work"]));
    assert!(working >= 0.95, "{working} of the samples in the handler are in its work: {:?}", handler.all);
}

on_every_jdk! { concurrent; fn of_a_thread(jdk) { check_beside(jdk, "thread"); } }
on_every_jdk! { concurrent; fn of_the_process_with_own_code_at_the_end_of_the_handler(jdk) { check_beside(jdk, "process"); } }
