//! Stacks through the foreign function API: Java calls C, which calls Java, which calls C again.

use java_tests::{Jdk, Run, Stack, Stacks, Workload, native_library, on_jdks};

/// Frame that marks missing native frames.
const MISSING: &str = "[native frames missing]";

/// Calls of Java by C on the stacks of the main thread.
const LEVELS: usize = 3;

/// Options of the JVM. An inlined method can be named at an instruction of its caller (`design/verification.md`), so
/// the innermost one is not inlined.
const OPTIONS: [&str; 3] = [
    "--enable-native-access=ALL-UNNAMED",
    "-XX:CompileCommand=quiet",
    "-XX:CompileCommand=dontinline,Panama::work",
];

fn record(jdk: &Jdk, options: &[&str]) -> Run {
    let mut run = Workload::new("Panama").argument(1.5).argument(native_library("panama").display());
    for option in OPTIONS.iter().chain(options) {
        run = run.jvm_option(option);
    }
    let run = run.record_option("--interval=1ms").record(jdk);
    run.assert_exit_code(0);
    run
}

/// Returns whether this is an upcall stub, whose name is that which the JVM reports for it.
fn is_upcall(frame: &str) -> bool {
    ["UpcallStub", "upcall_stub"].contains(&frame)
}

/// Returns whether C code and Java call each other on the stack in the order in which they do in the program.
fn alternates(stack: &Stack) -> bool {
    let call = ["panama_call", "call_back"];
    let of_chain = |frame: &&str| call.contains(frame) || is_upcall(frame) || *frame == "Panama.callback";
    let chain: Vec<&str> = stack.frames.iter().map(String::as_str).filter(of_chain).collect();
    let started = chain.first() == Some(&"call_back");
    let expected = |at: usize| match (at + usize::from(started)) % 4 {
        0 => "panama_call",
        1 => "call_back",
        2 => "UpcallStub",
        _ => "Panama.callback",
    };
    chain.len() <= 4 * LEVELS
        && chain
            .iter()
            .enumerate()
            .all(|(at, &frame)| frame == expected(at) || (is_upcall(frame) && expected(at) == "UpcallStub"))
}

fn is_whole(stack: &Stack) -> bool {
    stack.stop.is_none() && stack.has("start_thread") && !stack.has(MISSING) && alternates(stack)
}

/// Checks the stacks of a run whose innermost methods were called through all levels.
fn assert_whole(run: &Run) {
    let stacks = run.stacks();
    let through = |frame: &str| -> Stacks {
        Stacks { all: stacks.below(frame).all.into_iter().filter(|stack| !stack.has("run_task")).collect() }
    };
    for innermost in ["Panama.work", "panama_spin"] {
        let all = through(innermost);
        assert!(all.total_ns() > 20_000_000, "{innermost} has {} ns", all.total_ns());
        let levels =
            |stack: &Stack| stack.count("Panama.callback") == LEVELS && stack.count("call_back") == LEVELS;
        let share = all.share_where(|stack| is_whole(stack) && levels(stack) && stack.has("Panama.main"));
        assert!(share >= 0.99, "{share} of the samples in {innermost} have all levels: {:?}", all.all);
    }
    let started = stacks.below("run_task");
    let chain = |stack: &Stack| is_whole(stack) && !stack.has("Panama.main") && stack.count("call_back") == 1;
    assert!(
        started.ns_below("Panama.callback") > 20_000_000,
        "the started threads have {} ns",
        started.total_ns()
    );
    let share = started.share_where(chain);
    assert!(share >= 0.97, "{share} of the samples of started threads are whole: {:?}", started.all);
    // Between the languages: in the stubs, in the VM's functions that they call, and in the C code.
    let between = Stacks {
        all: stacks
            .all
            .into_iter()
            .filter(|stack| stack.frames.iter().any(|frame| is_upcall(frame) || frame == "panama_call"))
            .collect(),
    };
    let share = between.share_where(is_whole);
    let cut: Vec<&Stack> = between.all.iter().filter(|stack| !is_whole(stack)).collect();
    assert!(share >= 0.99, "{share} of the samples below C code are whole: {cut:?}");
}

on_jdks! { concurrent 21, 25;
    fn chains_of_compiled_code(jdk) {
        assert_whole(&record(jdk, &[]));
    }
}

on_jdks! { concurrent 21;
    fn chains_of_interpreted_code(jdk) {
        assert_whole(&record(jdk, &["-Xint"]));
    }
}

on_jdks! { concurrent 21, 25;
    /// Samples of calls through stubs are walked after methods were compiled into their places: what has been replaced
    /// is left out.
    fn code_compiled_in_the_place_of_freed_stubs(jdk) {
        let mut workload = Workload::new("StubReuse").argument(3).argument(native_library("panama").display());
        // Nothing but the stubs is freed.
        for option in ["--enable-native-access=ALL-UNNAMED", "-XX:-SegmentedCodeCache", "-XX:+UseSerialGC", "-Xms512m"] {
            workload = workload.jvm_option(option);
        }
        // Late walks.
        for option in ["--interval=1ms", "--agent-option=debug=drain:300ms", "--agent-option=debug=queue:2048/fixed"] {
            workload = workload.record_option(option);
        }
        let run = workload.record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks();
        let is_compiled = |stack: &Stack| stack.frames.iter().any(|frame| frame.starts_with("Reusing"));
        let through_stub = stacks.below("StubReuse.callback");
        assert_eq!(through_stub.ns_where(is_compiled), 0, "{:?}", through_stub.all);
        let is_replaced = |stack: &Stack| stack.stop.as_deref() == Some("code_replaced");
        assert!(through_stub.ns_where(is_replaced) > 0, "no walk met a method in the place of its stub");
        let is_right = |stack: &Stack| {
            let chain =
                ["StubReuse.main", "StubReuse.callThroughStubs", "panama_call", "call_back", "StubReuse.callback"];
            let places = chain.map(|name| stack.frames.iter().position(|frame| frame == name));
            places.iter().all(Option::is_some) && places.is_sorted()
        };
        let whole = |stack: &Stack| stack.stop.is_none();
        assert_eq!(through_stub.ns_where(|stack| whole(stack) && !is_right(stack)), 0, "{:?}", through_stub.all);
        let wrong = |stack: &Stack| {
            whole(stack) && is_compiled(stack)
                && (!stack.has("StubReuse.compileMethods") || stack.has("StubReuse.callThroughStubs"))
        };
        assert_eq!(stacks.ns_where(wrong), 0);
    }
}
