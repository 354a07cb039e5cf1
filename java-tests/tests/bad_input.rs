//! A mistake in the profiler's options costs one clear line, never the program; with `strict` it costs the start.

use java_tests::{INTERVAL_NS, Jdk, Workload, on_every_jdk};

/// Runs `Hello` with a bad option string: one line that contains `named`, and otherwise the program as it is alone.
#[track_caller]
fn check(jdk: &Jdk, options: &str, named: &str) {
    let hello = Workload::new("Hello");
    let alone = hello.run_alone(jdk);
    let profiled = hello.run_with_agent(jdk, options);
    assert_eq!(profiled.stdout, alone.stdout, "{options}");
    assert_eq!(profiled.exit_code(), alone.exit_code(), "{options}: {}", profiled.stderr);
    let lines: Vec<&str> = profiled.stderr.lines().collect();
    let [line] = lines[..] else { panic!("{options}: not exactly one line on stderr: {lines:?}") };
    assert!(line.starts_with("tickwalk: "), "{options}: {line}");
    assert!(line.contains(named), "{options}: '{named}' is not named in: {line}");
}

/// A path no user can create a file at, root included: a folder below a regular file.
fn impossible_path() -> String {
    format!("{}/below/recording.tickwalk", std::env::current_exe().expect("this test's path").display())
}

on_every_jdk! {
    fn unknown_option(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,colour=red", "colour");
        assert!(!std::path::Path::new("unused.tickwalk").exists(), "nothing may be written");
    }
}

on_every_jdk! {
    fn bad_interval_unit(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,interval=10parsecs", "10parsecs");
    }
}

on_every_jdk! {
    fn rate_without_unit(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,rate=500", "500/s");
    }
}

on_every_jdk! {
    fn debug_hook_that_is_none(jdk) {
        super::check(jdk, "mode=cputime,file=unused.tickwalk,debug=queue:64..16", "queue:64..16");
    }
}

on_every_jdk! {
    fn unwritable_file(jdk) {
        let path = impossible_path();
        super::check(jdk, &format!("mode=cputime,file={path}"), &path);
    }
}

on_every_jdk! {
    /// Port 1 of this machine: nobody listens there, the connection is refused at once.
    fn unreachable_collector(jdk) {
        super::check(jdk, "mode=cputime,collector=127.0.0.1:1", "127.0.0.1:1");
    }
}

on_every_jdk! {
    fn strict_refuses_to_start(jdk) {
        let profiled = Workload::new("Hello").run_with_agent(jdk, "mode=cputime,strict,colour=red");
        assert_ne!(profiled.exit_code(), 0);
        assert!(!profiled.stdout.contains("hello"), "the program ran: {}", profiled.stdout);
        let ours: Vec<&str> = profiled.stderr.lines().filter(|line| line.starts_with("tickwalk: ")).collect();
        assert_eq!(ours.len(), 1, "{}", profiled.stderr);
        assert!(ours[0].contains("colour"), "{}", ours[0]);
    }
}

on_every_jdk! {
    /// A second agent in the same JVM says so in one line, touches nothing, and the first one's profile is whole.
    fn second_agent_leaves_the_first_alone(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let second = directory.path().join("second.tickwalk");
        let agent = java_tests::binaries::agent();
        let option = format!("-agentpath:{}=file={}", agent.display(), second.display());
        let run = Workload::new("TightLoop").argument(1).jvm(&option).record(jdk);
        run.assert_exit_code(0);
        let told = run.stderr.lines().filter(|line| line.contains("already")).count();
        assert_eq!(told, 1, "{}", run.stderr);
        assert!(!second.exists(), "the second agent wrote a file");
        assert!(run.summary().complete, "{:?}", run.summary());
        run.assert_stretch("TightLoop.spin", INTERVAL_NS);
    }
}
