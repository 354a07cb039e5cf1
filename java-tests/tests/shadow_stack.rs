//! A program that keeps a second stack of its own: every sampled stack must be one that it had.

use std::collections::HashSet;

use java_tests::{Stack, Workload, on_every_jdk};

/// Methods of this program that C2 inlines into one at most; its limit for a chain of calls is 9 in JDK 11.
const MAX_INLINED: usize = 4;

/// Methods that keep the book, not part of it.
const BOOK: &[&str] = &["ShadowStack.push", "ShadowStack.pop", "ShadowStack.add"];

/// Every stack the program had, root first, methods separated by semicolons.
fn legal_stacks(stdout: &str) -> HashSet<String> {
    let mut stacks: Vec<String> = Vec::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("shadow ")) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [node, parent, name] = fields[..] else { panic!("not a node: {line:?}") };
        let parent: usize = parent.parse().expect("a number");
        assert_eq!(node.parse(), Ok(stacks.len()), "nodes come in their order");
        let stack = stacks.get(parent).map_or(name.to_owned(), |below| format!("{below};{name}"));
        stacks.push(stack);
    }
    stacks.into_iter().collect()
}

/// The frames that the program notes as well, root first.
fn noted(stack: &Stack) -> String {
    // What the compiler of Java and the VM make of a lambda expression is not in the book.
    let own = |frame: &&String| {
        frame.starts_with("ShadowStack") && !frame.contains("lambda$") && !frame.contains("$$Lambda")
    };
    let noted = stack.frames.iter().filter(own).filter(|frame| !BOOK.contains(&frame.as_str()));
    noted.map(String::as_str).collect::<Vec<_>>().join(";")
}

/// Five hundred samples, so that a handful of odd ones is no matter.
fn workload() -> Workload {
    Workload::new("ShadowStack").argument(2).record_option("--interval=4ms")
}

fn judge(run: &java_tests::Run, least_whole: f64, most_imprecise: f64) {
    run.assert_exit_code(0);
    let legal = legal_stacks(&run.stdout);
    assert!(legal.len() > 10_000, "{} stacks in the book", legal.len());
    let stacks = run.stacks();
    let mine = stacks.below("ShadowStack.next");
    let mut different = HashSet::new();
    let mut imprecise_ns = 0;
    for stack in mine.all.iter().filter(|stack| stack.stop.is_none()) {
        let noted = noted(stack);
        if !legal.contains(&noted) {
            // Between two places that C2 describes, an instruction counts for the one behind it, which may lie in a
            // call that was inlined there and is not made this time: newest frames are too many.
            let mut caller = noted.as_str();
            let mut surplus = 0;
            while !legal.contains(caller) {
                caller = caller.rsplit_once(';').map_or("", |(caller, _)| caller);
                surplus += 1;
            }
            assert!(
                surplus <= MAX_INLINED,
                "the program never had the stack {noted}, {surplus} frames off, sampled as {stack:?}"
            );
            imprecise_ns += stack.ns;
        }
        different.insert(noted);
    }
    let imprecise = imprecise_ns as f64 / mine.total_ns() as f64;
    assert!(imprecise <= most_imprecise, "{imprecise} of the stacks have a newest frame that was not called");
    let whole = mine.share_where(|stack| stack.stop.is_none());
    assert!(whole >= least_whole, "{whole} of the stacks are whole: {:?}", run.summary().stops);
}

on_every_jdk! {
    fn every_sampled_stack_is_one_the_program_had(jdk) {
        // Which inlined call the VM's own tables name at an instruction is up to C2: from none to a third of the
        // samples are off in JDK 11 and 17, and AsyncGetCallTrace names the same methods.
        judge(&workload().record(jdk), 0.98, 1.0);
    }
}

on_every_jdk! {
    fn interpreted_too(jdk) {
        judge(&workload().jvm("-Xint").record(jdk), 0.98, 0.01);
    }
}

on_every_jdk! {
    fn compiled_by_c1_too(jdk) {
        judge(&workload().jvm("-XX:TieredStopAtLevel=1").record(jdk), 0.98, 0.01);
    }
}
