//! Programs that profile themselves: by async-profiler's Java API, with a class of theirs, and by the C functions.

use std::collections::BTreeMap;
use std::path::Path;

use java_tests::{Stacks, Truth, Workload, binaries, java_example, on_every_jdk, on_jdks, span_tolerance_ns};

const INTERVAL_NS: u64 = 1_000_000;

/// The output of a program, by section.
struct Answers(BTreeMap<String, String>);

impl Answers {
    fn parse(stdout: &str) -> Self {
        let mut sections: BTreeMap<String, String> = BTreeMap::new();
        let mut present = String::new();
        for line in stdout.lines().filter(|line| !line.starts_with("truth ")) {
            match line.strip_prefix("== ") {
                Some(name) => present = name.to_owned(),
                None => *sections.entry(present.clone()).or_default() += &format!("{line}\n"),
            }
        }
        Self(sections)
    }

    #[track_caller]
    fn section(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("no section {name}: {:?}", self.0.keys())).trim_end()
    }

    #[track_caller]
    fn check(&self, name: &str, expected: &str) {
        assert_eq!(self.section(name), expected, "{name}");
    }

    #[track_caller]
    fn check_has(&self, name: &str, part: &str) {
        let section = self.section(name);
        assert!(section.contains(part), "{name}: {section}");
    }

    #[track_caller]
    fn stacks(&self, name: &str) -> Stacks {
        Stacks::parse_collapsed(self.section(name))
    }
}

/// Asserts that what was sampled below a method is what it used.
#[track_caller]
fn check_time(stacks: &Stacks, truth_ns: u64) {
    let sampled_ns = stacks.ns_below("AsyncApi.burn");
    assert!(
        sampled_ns.abs_diff(truth_ns) <= span_tolerance_ns(INTERVAL_NS),
        "sampled {sampled_ns}, true {truth_ns}: {:?}",
        stacks.all
    );
}

/// The answers that do not depend on how the library was loaded.
fn check_answers(answers: &Answers, truth: &Truth, folder: &Path) {
    assert!(answers.section("version").starts_with("4.5 (Tickwalk "), "{}", answers.section("version"));
    answers.check("idle", "Profiler is not active");
    let events: Vec<&str> =
        answers.section("list").lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(events, ["cpu", "wall", "itimer", "ctimer"]);
    answers.check_has("event", "java.lang.IllegalArgumentException: option 'event': 'alloc' is not sampled");
    answers.check_has(
        "misspelt",
        "java.lang.IllegalArgumentException: option 'interval': '1parsec' is not a time",
    );
    answers.check_has("nothing to stop", "java.lang.IllegalStateException: Profiler is not active");
    answers.check("no profile", "java.lang.IllegalStateException: Profiler has not started");
    answers.check("start", "Profiling started");
    answers.check("status", "Profiling is running for 0 seconds");
    answers.check_has("second start", "java.lang.IllegalStateException: Profiler already started");
    let truth_ns = truth.method_cpu_ns("hot");
    // The flush includes the samples of the last moment.
    check_time(&answers.stacks("running"), truth_ns);
    let stopped = answers.section("stop");
    let seconds = stopped.strip_prefix("Profiling stopped after ").expect(stopped);
    assert!(seconds.ends_with(" seconds. No dump options specified"), "{stopped}");
    let stacks = answers.stacks("ended");
    check_time(&stacks, truth_ns);
    let hot = stacks.below("AsyncApi.hot");
    assert!(hot.all.iter().all(|stack| stack.has("main")), "threads are apart: {:?}", hot.all);
    let text = answers.section("text");
    for part in
        ["--- CPU time ---", "of CPU time explained", "\n  [ 0] AsyncApi.burn\n", "\n  [ 1] AsyncApi.hot\n"]
    {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert_eq!(
        text.lines().filter(|line| line.starts_with("--- ") && line.contains(" ns (")).count(),
        2,
        "{text}"
    );
    answers.check_has("no such folder", "java.io.IOException: cannot write");
    answers.check_has("no such folder", "No such file or directory");
    answers.check_has("resume", "java.lang.IllegalStateException: a profile cannot be resumed");
    let read =
        |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    for name in ["at-stop.jfr", "flight.jfr", "at-exit.jfr"] {
        assert!(read(name).starts_with(b"FLR\0"), "{name}");
    }
    let page = String::from_utf8(read("page.html")).expect("UTF-8");
    assert!(page.contains("AsyncApi.hot") && page.contains("</html>"), "{} bytes", page.len());
    assert!(String::from_utf8(read("text.txt")).expect("UTF-8").contains("AsyncApi.burn"));
    assert!(
        String::from_utf8(read("again.collapsed")).expect("UTF-8").contains("AsyncApi.hot;AsyncApi.burn")
    );
    assert!(read("copy.tickwalk").len() > 1000);
    let left = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
}

on_every_jdk! {
    /// The library is loaded by a class of another name: its methods are bound when it is loaded.
    fn a_copied_class_of_async_profiler(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = Workload::new("AsyncApi").argument(binaries::agent().display()).argument(folder.path().display());
        let run = run.run_unprofiled(jdk);
        assert_eq!(run.exit_code(), 0, "{}\n{}", run.stdout, run.stderr);
        let answers = Answers::parse(&run.stdout);
        answers.check("end", "");
        check_answers(&answers, &Truth::parse(&run.stdout), folder.path());
        // The VM itself may warn about native access.
        let ours: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("tickwalk")).collect();
        assert_eq!(ours, ["tickwalk: unknown option 'intervall'; did you mean interval?"], "{}", run.stderr);
    }
}

on_every_jdk! {
    /// The library is an agent: the class of the known name finds its methods by their exported names.
    fn the_class_of_async_profiler(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let workload = Workload::new("AsyncApi").argument("").argument(folder.path().display());
        let run = workload.run_with_agent(jdk, "start=no");
        assert_eq!(run.exit_code(), 0, "{}\n{}", run.stdout, run.stderr);
        let (answers, truth) = (Answers::parse(&run.stdout), Truth::parse(&run.stdout));
        answers.check("end", "");
        check_answers(&answers, &truth, folder.path());
        let samples: u64 = answers.section("samples").parse().expect("a number");
        assert!(samples > 0, "{samples} samples of 50 ms");
        assert!(answers.section("otlp").parse::<u64>().expect("a number") > 500);
        answers.check_has("bytes", "AsyncApi.burn");
        let filtered = answers.stacks("filtered");
        assert!(filtered.all.iter().all(|stack| stack.has("main") || stack.has("other")), "{:?}", filtered.all);
        assert!(filtered.ns_below("other") > 0, "{:?}", filtered.all);
        check_time(&filtered.below("main"), truth.method_cpu_ns("chosen"));
        answers.check("stop0", "Profiler is not active");
    }
}

on_jdks! { 25;
    /// `agent/examples/Control.java`: the C functions by the foreign function API.
    fn c_functions_from_java(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let page = folder.path().join("hot.html");
        let run = java_example(jdk, "Control", &[binaries::agent().as_path(), &page]);
        assert_eq!(run.exit_code(), 0, "{}\n{}", run.stdout, run.stderr);
        for part in [
            "\nstate=running\n",
            "\ninterval_ns=1000000\n",
            "\ncode 3, errno 2: cannot write /nonexistent/result.html: No such file or directory",
            "\ncode 2: Profiler is not active",
        ] {
            assert!(run.stdout.contains(part), "no {part}: {}", run.stdout);
        }
        assert!(!run.stdout.contains("/proc/self/fd"), "{}", run.stdout);
        assert!(std::fs::read_to_string(&page).expect("a page").contains("Control.work"));
        assert!(!run.stderr.contains("tickwalk:"), "{}", run.stderr);
    }
}
