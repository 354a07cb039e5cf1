//! The agent compares its results with the VM's at start, and turns off the capabilities that fail.

use java_tests::{
    INTERVAL_NS, Jdk, Run, Workload, native_library, on_every_jdk, on_jdks, span_tolerance_ns, tickwalk,
};

on_every_jdk! { concurrent;
    fn passes_on_every_jdk(jdk) {
        // The tests of compiled code need a hundred such walks; the run has about five hundred.
        let run = Workload::new("InlinedChain").argument(2).record_option("--interval=4ms").record(jdk);
        run.assert_exit_code(0);
        let tests = &run.summary().self_tests;
        for capability in ["stack walking", "names", "bytecode positions", "compiled code", "C2 code"] {
            let outcome = tests.iter().find(|test| test.capability == capability).map(|test| test.outcome.as_str());
            assert_eq!(outcome, Some("passed"), "{capability}: {tests:?}");
        }
    }
}

on_every_jdk! { concurrent;
    /// A wrong layout is detected before the first sample, and the accounts continue without stacks.
    fn detects_a_wrong_layout(jdk) {
        let run = Workload::new("TightLoop").argument(1).record_to_file(jdk, "debug=broken-layout");
        run.assert_exit_code(0);
        let warnings: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("tickwalk: ")).collect();
        let [warning] = warnings[..] else { panic!("one line is expected: {warnings:?}") };
        assert!(warning.contains("self-test failed (names: java/lang/ref/Reference."), "{warning}");
        // Neither frames nor the methods of compiler threads may have names, which would come from wrong addresses.
        for wrong in ["TightLoop", "[compiling]"] {
            let named = run.stacks().share_where(|stack| stack.frames.iter().any(|frame| frame.contains(wrong)));
            assert!(named == 0.0, "{wrong} in {named} of the samples");
        }
        // Only the main thread burns a known CPU time.
        let main = run.stacks_by_thread().below("main");
        let tolerance = span_tolerance_ns(INTERVAL_NS) + run.starvation_loss_ns();
        assert!(main.total_ns() + tolerance >= run.truth.method_cpu_ns("TightLoop.spin"));
        let marked = main.share_where(|stack| stack.has("[self_test_failed]"));
        assert!(marked >= 0.8, "{marked} of the samples are marked");
        assert!(run.tickwalk(&["top"]).contains("self-test failed (names)"));
    }
}

on_every_jdk! {
    /// `tickwalk doctor --java` starts a JVM and reports that everything works and the account closes.
    fn doctor_reports_the_self_test(jdk) {
        let run = tickwalk(&["doctor", "--json", "--java", &jdk.home.display().to_string()]);
        let findings: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        let statuses = |subject: &str| {
            let all = findings.as_array().expect("a list").iter();
            let of_subject = all.filter(|finding| finding["subject"] == subject);
            of_subject.map(|finding| finding["status"].as_str().expect("a status").to_owned()).collect::<Vec<_>>()
        };
        for (subject, count) in [("trial run", 1), ("self-test", 6), ("account", 1), ("requests", 1)] {
            assert_eq!(statuses(subject), vec!["ok"; count], "{subject}: {}", run.stdout);
        }
    }
}

/// Outcome and detail of the test of reads by loads.
fn reads_by_loads(run: &Run) -> (&str, &str) {
    let test = run.summary().self_tests.iter().find(|test| test.capability == "reads by loads");
    test.map(|test| (&*test.outcome, &*test.detail)).expect("a result")
}

/// Returns how many reads of unmapped memory were refused: by loads, and by system calls.
fn refused(run: &Run) -> [u64; 2] {
    let line = run.stderr.lines().find(|line| line.contains("unmapped memory: ")).expect("the hook reports");
    let numbers = line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<_>>();
    numbers.try_into().expect("two numbers")
}

/// Runs the workload with reads of unmapped memory at each sample; the JVM and the profile end as they should.
fn read_unmapped(workload: Workload, jdk: &Jdk) -> Run {
    let run = workload.record_option("--agent-option=debug=unmapped").record(jdk);
    run.assert_exit_code(0);
    assert!(run.summary().complete, "the sampler thread went on: {}", run.stderr);
    assert!(run.stacks().below("RegexStrings.main").total_ns() > 0);
    run
}

on_jdks! { concurrent 17, 21, 25;
    /// Memory that is not mapped is an error for the sampler thread, however it reads.
    fn unmapped_memory_is_read_by_loads(jdk) {
        let run = read_unmapped(Workload::new("RegexStrings").argument(2), jdk);
        assert_eq!(reads_by_loads(&run).0, "passed");
        let [loads, calls] = refused(&run);
        assert!(loads > 100 && calls > 100, "{loads} loads and {calls} system calls");
    }
}

on_jdks! { concurrent 11;
    /// The VM treats faults of its own threads only.
    fn an_older_vm_is_read_by_system_calls(jdk) {
        let run = read_unmapped(Workload::new("RegexStrings").argument(2), jdk);
        let (outcome, detail) = reads_by_loads(&run);
        assert!(outcome == "not_tried" && detail.starts_with("the VM's SafeFetchN was not found"), "{detail}");
        assert_eq!(refused(&run)[0], 0);
    }
}

on_jdks! { concurrent 17, 21, 25;
    /// A handler of SIGSEGV that is not the VM's.
    fn foreign_handlers_of_faults_are_not_relied_on(jdk) {
        let library = native_library("faulthandlers");
        let run = read_unmapped(Workload::new("FaultHandlers").argument(2).argument(library.display()), jdk);
        let (outcome, detail) = reads_by_loads(&run);
        assert!(outcome == "not_tried" && detail.starts_with("the handler of SIGSEGV or SIGBUS is not the VM's"), "{detail}");
        let [loads, calls] = refused(&run);
        assert!(loads < calls / 10, "{loads} loads before the program's own handlers, {calls} system calls");
    }
}
