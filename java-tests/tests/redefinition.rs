//! Classes that are redefined while they run, as Java agents and debugging tools do: a name is right or `[unloaded]`.

use java_tests::{Jdk, Run, Stack, Workload, on_every_jdk};

/// CPU time on the threads of the redefined classes, in nanoseconds.
#[derive(Debug, Default)]
struct Seen {
    all: u64,
    named: u64,
    unloaded: u64,
    wrong: Vec<Stack>,
}

/// CPU time that is burnt after the last redefinition, in nanoseconds; the first samples of it may be doubted.
const CALM_NS: u64 = 400_000_000;

impl Seen {
    /// With a redefinition every few milliseconds hardly a sample is walked before the next; afterwards all are named.
    fn check(&self) {
        assert!(self.named >= CALM_NS / 4 * 3, "{self:?}");
        assert!(self.unloaded > 0, "{self:?}");
    }
}

/// The class that a frame names, and whether class and method agree about it.
fn number(frame: &str) -> Option<(u32, bool)> {
    let (number, method) = frame.strip_prefix("Red")?.split_at_checked(5)?;
    let method = method.strip_prefix('.')?;
    let agrees = ["work", "spin"].map(|name| format!("{name}{number}")).iter().any(|name| name == method)
        || ["run", "<init>"].contains(&method);
    Some((number.parse().ok()?, agrees))
}

/// Each class runs on threads of its own, so a frame of another class did not run at the sample's time.
fn examine(run: &Run) -> Seen {
    let mut seen = Seen::default();
    for stack in run.stacks_by_thread().all {
        let (thread, frames) = stack.frames.split_first().expect("a thread");
        let Some(owner) = thread.strip_prefix("red-").and_then(|owner| owner.parse::<u32>().ok()) else {
            continue;
        };
        let found: Vec<_> = frames.iter().filter_map(|frame| number(frame)).collect();
        let is_foreign = frames.iter().any(|frame| frame.starts_with("Redefined.main"));
        let is_wrong = is_foreign || found.iter().any(|(number, agrees)| !agrees || *number != owner);
        seen.all += stack.ns;
        seen.named += if found.is_empty() { 0 } else { stack.ns };
        seen.unloaded += if stack.has("[unloaded]") { stack.ns } else { 0 };
        if is_wrong {
            seen.wrong.push(stack);
        }
    }
    seen
}

fn redefine(jdk: &Jdk, options: &[&str], between_collections: u32) -> (Run, Seen) {
    let mut workload = Workload::new("Redefined")
        .argument(3)
        .argument(12)
        .argument(between_collections)
        .jvm("-Djdk.attach.allowAttachSelf=true");
    for option in options {
        workload = workload.jvm(option);
    }
    let run = workload.record(jdk);
    run.assert_exit_code(0);
    let seen = examine(&run);
    assert!(seen.wrong.is_empty(), "{options:?}: {:#?}", seen.wrong);
    assert!(seen.all > 0, "no sample of any class");
    (run, seen)
}

on_every_jdk! {
    fn with_collections(jdk) {
        let (_, seen) = redefine(jdk, &["-XX:+UseSerialGC"], 3);
        seen.check();
    }
}

on_every_jdk! {
    /// Redefinition frees old versions by itself.
    fn without_collections(jdk) {
        let (_, seen) = redefine(jdk, &["-XX:+UseG1GC"], 0);
        seen.check();
    }
}

on_every_jdk! {
    /// The VM tells that nothing was redefined, so nothing is doubted where classes are loaded and garbage is collected.
    fn nothing_is_doubted_without_redefinition(jdk) {
        let run = Workload::new("AllocHeavy").argument(2).jvm("-XX:+UseSerialGC").record(jdk);
        run.assert_exit_code(0);
        let stacks = run.stacks_by_thread().all;
        let unloaded: u64 = stacks.iter().filter(|stack| stack.has("[unloaded]")).map(|stack| stack.ns).sum();
        let all: u64 = stacks.iter().map(|stack| stack.ns).sum();
        assert!(all > 0 && unloaded * 50 <= all, "{unloaded} of {all} ns unloaded");
    }
}
