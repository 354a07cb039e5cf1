//! A mistake in the agent's options causes one line on standard error and the program runs unprofiled; with `strict`
//! the JVM does not start. An unknown option causes a line only. The command refuses all of these before it starts the
//! program.

use java_tests::{INTERVAL_NS, Jdk, Workload, on_every_jdk, on_jdks};

/// Runs `Hello` with a bad option string and asserts one line that contains `expected`, and otherwise the same output
/// and exit code as without the agent.
#[track_caller]
fn check(jdk: &Jdk, options: &str, expected: &str) {
    let hello = Workload::new("Hello");
    let unprofiled = hello.run_unprofiled(jdk);
    let profiled = hello.run_with_agent(jdk, options);
    assert_eq!(profiled.stdout, unprofiled.stdout, "{options}");
    assert_eq!(profiled.exit_code(), unprofiled.exit_code(), "{options}: {}", profiled.stderr);
    let lines: Vec<&str> = profiled.stderr.lines().collect();
    let [line] = lines[..] else { panic!("{options}: not exactly one line on stderr: {lines:?}") };
    assert!(line.starts_with("tickwalk: "), "{options}: {line}");
    assert!(line.contains(expected), "{options}: '{expected}' is not in: {line}");
}

/// Returns a path at which no user, root included, can create a file: below a regular file.
fn impossible_path() -> String {
    format!("{}/below/recording.tickwalk", std::env::current_exe().expect("this test's path").display())
}

on_jdks! { concurrent 25;
    fn unknown_option(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("a.tickwalk");
        super::check(jdk, &format!("mode=cputime,file={},colour=red", file.display()), "unknown option 'colour'");
        assert!(file.metadata().is_ok_and(|file| file.len() > 0), "the program is profiled all the same");
    }
}

on_jdks! { concurrent 25;
    fn bad_interval_unit(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,interval=10parsecs", "10parsecs");
    }
}

on_jdks! { concurrent 25;
    fn rate_without_unit(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,rate=500", "500/s");
    }
}

on_jdks! { concurrent 25;
    fn bad_debug_hook(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,debug=queue:64..16", "queue:64..16");
    }
}

on_jdks! { concurrent 25;
    fn unwritable_file(jdk) {
        let path = impossible_path();
        super::check(jdk, &format!("mode=cputime,file={path}"), &path);
    }
}

on_jdks! { concurrent 25;
    /// Nothing listens on port 1, so the connection is refused at once.
    fn unreachable_collector(jdk) {
        super::check(jdk, "mode=cputime,collector=127.0.0.1:1", "127.0.0.1:1");
    }
}

on_every_jdk! { concurrent;
    fn strict_refuses_to_start(jdk) {
        let profiled = Workload::new("Hello").run_with_agent(jdk, "mode=cputime,strict,colour=red");
        assert_ne!(profiled.exit_code(), 0);
        assert!(!profiled.stdout.contains("hello"), "the program ran: {}", profiled.stdout);
        let warnings: Vec<&str> = profiled.stderr.lines().filter(|line| line.starts_with("tickwalk: ")).collect();
        assert_eq!(warnings.len(), 1, "{}", profiled.stderr);
        assert!(warnings[0].contains("colour"), "{}", warnings[0]);
    }
}

on_jdks! { concurrent 11, 25;
    /// A second agent in the same JVM prints one line and does nothing; the profile of the first is complete.
    fn second_agent_does_not_disturb_the_first(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let second = directory.path().join("second.tickwalk");
        let agent = java_tests::binaries::agent();
        let option = format!("-agentpath:{}=file={}", agent.display(), second.display());
        let run = Workload::new("TightLoop").argument(1).jvm_option(&option).record(jdk);
        run.assert_exit_code(0);
        let lines = run.stderr.lines().filter(|line| line.contains("already")).count();
        assert_eq!(lines, 1, "{}", run.stderr);
        assert!(!second.exists(), "the second agent wrote a file");
        assert!(run.summary().complete, "{:?}", run.summary());
        run.assert_method_time("TightLoop.spin", INTERVAL_NS);
    }
}

on_jdks! { concurrent 25;
    /// A filter of system calls refuses the clocks by which threads are profiled, here in place of the C library.
    fn refused_clocks(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let recording = folder.path().join("recording.tickwalk");
        let preload = format!("LD_PRELOAD={}", java_tests::native_library("noclock").display());
        let hello = Workload::new("Hello").launcher(&["env", &preload]);
        let finished = hello.run_with_agent(jdk, &format!("file={}", recording.display()));
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        let refused = "tickwalk: the CPU clocks of threads cannot be read (Operation not permitted (os error 1)): a filter of \
                       system calls (seccomp) refuses clock_gettime; allow it; the program runs unprofiled\n";
        assert_eq!(finished.stderr, refused);
        assert!(!recording.exists());
    }
}

on_jdks! { concurrent 25;
    /// The command checks options as the agent reads them, before the program starts.
    fn the_command_refuses_before_the_program_starts(jdk) {
        for (options, expected) in [
            (&["--mode", "alloc"][..], "'alloc' is not 'cputime', 'wall', 'jvmti' or 'api'"),
            (&["-e", "alloc"], "'alloc' is not sampled; write event=cpu"),
            (&["--agent-option", "colour=red"], "unknown option 'colour'"),
            (&["--agent-option", "title=x"], "'title' has no effect here"),
            (&["--mode", "wall", "--budget", "1%"], "'budget=1%' has no effect with mode=wall"),
            (&["-d", "100ms"], "option 'duration'"),
        ] {
            let mut hello = Workload::new("Hello");
            for option in options {
                hello = hello.record_option(option);
            }
            let run = hello.record(jdk);
            run.assert_exit_code(2);
            assert!(run.stderr.contains(expected), "{options:?}: {}", run.stderr);
            assert!(!run.stdout.contains("hello"), "{options:?}: the program ran");
        }
    }
}
