//! The workload records its own stacks: every sampled stack must be one of them.

use std::collections::HashSet;

use java_tests::{Jdk, Run, Stack, Workload, on_every_jdk};

/// Longest chain of calls that C2 inlines (`MaxInlineLevel`), up to JDK 13 and from JDK 14 on.
const MAX_INLINED: [usize; 2] = [9, 15];

/// Methods of the workload that record its stacks and are not recorded themselves.
const RECORDING_METHODS: &[&str] = &["ShadowStack.push", "ShadowStack.pop", "ShadowStack.add"];

/// The stacks that the workload recorded.
#[derive(Default)]
struct RecordedStacks {
    /// Every stack, root first, methods separated by semicolons.
    stacks: HashSet<String>,
    /// Pairs of caller and callee.
    calls: HashSet<(String, String)>,
}

impl RecordedStacks {
    /// Parses the output of the workload.
    fn parse(stdout: &str) -> Self {
        let mut nodes: Vec<(String, String)> = Vec::new();
        let mut recorded = Self::default();
        for line in stdout.lines().filter_map(|line| line.strip_prefix("shadow ")) {
            let fields: Vec<&str> = line.split(' ').collect();
            let [node, parent, name] = fields[..] else { panic!("the line is not a node: {line:?}") };
            let parent: usize = parent.parse().expect("a number");
            assert_eq!(node.parse(), Ok(nodes.len()), "nodes are printed in order");
            let stack = nodes.get(parent).map_or(name.to_owned(), |(below, caller)| {
                recorded.calls.insert((caller.clone(), name.to_owned()));
                format!("{below};{name}")
            });
            recorded.stacks.insert(stack.clone());
            nodes.push((stack, name.to_owned()));
        }
        recorded
    }

    /// Returns how many of the newest frames must be removed from `stack` to get a recorded stack; fails with a pair of
    /// frames that never called each other.
    ///
    /// The VM's debug information has entries for some instructions only, and an instruction between two entries gets
    /// the later one. That entry may be in an inlined call that was not made this time, so the stack has additional
    /// newest frames. Each of them is still called by the one below it somewhere in the program.
    fn additional_frames(&self, stack: &str) -> Result<usize, (String, String)> {
        let (mut rest, mut additional) = (stack, 0);
        while !self.stacks.contains(rest) {
            let (below, name) = rest.rsplit_once(';').unwrap_or(("", rest));
            let caller = below.rsplit_once(';').map_or(below, |(_, caller)| caller);
            let call = (caller.to_owned(), name.to_owned());
            if !self.calls.contains(&call) {
                return Err(call);
            }
            (rest, additional) = (below, additional + 1);
        }
        Ok(additional)
    }
}

/// Returns the frames that the workload records as well, root first.
fn recorded_frames(stack: &Stack) -> String {
    // The workload does not record the methods that javac and the VM generate for a lambda expression.
    let own = |frame: &&String| {
        frame.starts_with("ShadowStack") && !frame.contains("lambda$") && !frame.contains("$$Lambda")
    };
    let frames = stack.frames.iter().filter(own).filter(|frame| !RECORDING_METHODS.contains(&frame.as_str()));
    frames.map(String::as_str).collect::<Vec<_>>().join(";")
}

/// Returns a workload with five hundred samples, so that a few cut ones do not matter.
fn workload() -> Workload {
    Workload::new("ShadowStack").argument(2).record_option("--interval=4ms")
}

fn check_stacks(jdk: &Jdk, run: &Run, least_whole: f64, most_imprecise: f64) {
    run.assert_exit_code(0);
    let recorded = RecordedStacks::parse(&run.stdout);
    assert!(recorded.stacks.len() > 10_000, "{} recorded stacks", recorded.stacks.len());
    let most = MAX_INLINED[usize::from(jdk.feature >= 14)];
    let stacks = run.stacks();
    let mine = stacks.below("ShadowStack.next");
    let mut imprecise_ns = 0;
    for stack in mine.all.iter().filter(|stack| stack.stop.is_none()) {
        let frames = recorded_frames(stack);
        let additional = recorded.additional_frames(&frames);
        assert!(
            additional.as_ref().is_ok_and(|&additional| additional <= most),
            "the program never had the stack {frames}, additional {additional:?}, sampled as {stack:?}"
        );
        imprecise_ns += if additional == Ok(0) { 0 } else { stack.ns };
    }
    let imprecise = imprecise_ns as f64 / mine.total_ns() as f64;
    assert!(imprecise <= most_imprecise, "{imprecise} of the stacks have a newest frame that was not called");
    let whole = mine.share_where(|stack| stack.stop.is_none());
    assert!(whole >= least_whole, "{whole} of the stacks are complete: {:?}", run.summary().stops);
}

on_every_jdk! { concurrent;
    fn compiled_stacks_are_real(jdk) {
        // C2 decides which inlined call the debug information names at an instruction: in JDK 11 and 17 up to a third
        // of the samples have additional frames, and AsyncGetCallTrace reports the same ones.
        check_stacks(jdk, &workload().record(jdk), 0.98, 1.0);
    }
}

on_every_jdk! { concurrent;
    fn interpreted_stacks_are_real(jdk) {
        check_stacks(jdk, &workload().jvm_option("-Xint").record(jdk), 0.98, 0.01);
    }
}

on_every_jdk! { concurrent;
    fn stacks_of_c1_code_are_real(jdk) {
        check_stacks(jdk, &workload().jvm_option("-XX:TieredStopAtLevel=1").record(jdk), 0.98, 0.01);
    }
}
