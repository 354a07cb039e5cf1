//! A profile that cannot go on ends at once with one line, its account closes, and the program goes on.

use java_tests::collector::summary_of;
use java_tests::{Jdk, Run, Summary, Workload, create_end_file, native_library, on_every_jdk, on_jdks};

/// Returns the kernel's list of the POSIX timers of a process.
fn timers_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/timers")).expect("Linux lists the timers of a process")
}

/// Returns the lines of the agent on standard error.
fn agent_lines(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.starts_with("tickwalk: ")).collect()
}

/// Runs `workload`, which must report its CPU time, until the process has no timers any more; returns the lines of the
/// agent and the summary of the recording, if it was written to a regular file.
#[track_caller]
fn run_until_timers_are_gone(
    jdk: &Jdk,
    workload: Workload,
    file: Option<&str>,
    options: &str,
) -> (Vec<String>, Option<Summary>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (end_file, recording) = (folder.path().join("end"), folder.path().join("recording.tickwalk"));
    let file_option = file.map_or_else(|| recording.display().to_string(), str::to_owned);
    let agent = format!(
        "-agentpath:{}=interval=1ms,file={file_option}{options}",
        java_tests::binaries::agent().display()
    );
    let workload = workload.argument(end_file.display()).jvm_option(&agent);
    let mut rounds = 0;
    let finished = workload.run_unprofiled_watched(jdk, |pid, _| {
        rounds += 1;
        // The agent has a second and more to notice; without an end the test fails after 10 s of CPU time.
        let are_gone = rounds > 15 && timers_of(pid).is_empty();
        if are_gone || rounds > 100 {
            assert!(are_gone, "the process still has timers:\n{}", timers_of(pid));
            create_end_file(&end_file);
        }
    });
    assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
    let summary = file.is_none().then(|| summary_of(&recording, &finished.starvation));
    (agent_lines(&finished.stderr).into_iter().map(str::to_owned).collect(), summary)
}

/// Asserts that there is one line, which contains `text`.
#[track_caller]
fn assert_one_line(lines: &[String], text: &str) {
    let [line] = lines else { panic!("not one line: {lines:?}") };
    assert!(line.contains(text), "{line}");
}

/// Asserts that the panic and its consequence are reported in one line each.
#[track_caller]
fn assert_panic_lines(lines: &[String]) {
    let [panic, consequence] = lines else { panic!("not two lines: {lines:?}") };
    assert!(
        panic.contains("demands a panic") && consequence.contains("internal error, profiling is off"),
        "{lines:?}"
    );
}

on_jdks! { concurrent 25;
    /// After a panic in the sampler thread the timers are gone, and what was sampled before is in the recording.
    fn panic_in_the_sampler(jdk) {
        let burner = Workload::new("Burner").argument(1);
        let (lines, summary) = run_until_timers_are_gone(jdk, burner, None, ",debug=panic:sampler");
        assert_panic_lines(&lines);
        let summary = summary.expect("a recording");
        assert!(summary.complete && summary.samples > 0, "{summary:?}");
        summary.assert_sums_close();
    }
}

on_jdks! { concurrent 11, 25;
    /// The same for a panic in a callback of the VM.
    fn panic_in_a_callback(jdk) {
        let burner = Workload::new("Burner").argument(1);
        let (lines, summary) = run_until_timers_are_gone(jdk, burner, None, ",debug=panic:callback");
        assert_panic_lines(&lines);
        let summary = summary.expect("a recording");
        assert!(summary.complete, "{summary:?}");
        summary.assert_sums_close();
    }
}

on_jdks! { concurrent 25;
    /// A full disk: without any destination there is nothing to profile for.
    fn no_destination_left(jdk) {
        let burner = Workload::new("Burner").argument(1);
        let (lines, _) = run_until_timers_are_gone(jdk, burner, Some("/dev/full"), "");
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains("/dev/full") && line.contains("No space left"), "{line}");
        assert!(line.contains("no destination is left"), "{line}");
    }
}

/// Runs the workload for `seconds` with a habit of its native code on signal 40, which the timers use.
fn with_habit(jdk: &Jdk, habit: &str, seconds: u32) -> Run {
    let library = native_library("habits");
    let workload = Workload::new("NativeHabits")
        .argument(seconds)
        .argument(library.display())
        .argument(habit)
        .argument(40);
    workload.record_to_file(jdk, "interval=1ms,signal=40")
}

on_jdks! { 11, 25;
    /// The handler is replaced in the middle: the profile ends, and the other handler gets few of our signals.
    fn replaced_handler(jdk) {
        let run = with_habit(jdk, "replace", 2);
        run.assert_exit_code(0);
        let lines: Vec<String> = agent_lines(&run.stderr).into_iter().map(str::to_owned).collect();
        assert_one_line(&lines, "installed its own handler for signal 40");
        let foreign = run.stdout.lines().find_map(|line| line.strip_prefix("foreign ")?.parse::<u64>().ok());
        // The handler is looked at ten times a second; the rest of the program would give 250.
        assert!(foreign.expect("a number") < 100, "{}", run.stdout);
        let summary = summary_of(&run.recording, &run.starvation);
        assert!(summary.complete && summary.samples > 100, "{summary:?}");
        summary.assert_sums_close();
        assert!(summary.cpu_ns.lost["handler_replaced"] > 0, "{:?}", summary.cpu_ns);
    }
}

on_jdks! { concurrent 11, 25;
    /// A thread that blocks the signal is named, and so is its time.
    fn blocked_in_one_thread(jdk) {
        let run = with_habit(jdk, "block", 4);
        run.assert_exit_code(0);
        let lines: Vec<String> = agent_lines(&run.stderr).into_iter().map(str::to_owned).collect();
        assert_one_line(&lines, "thread \"main\" blocks signal 40");
        let summary = summary_of(&run.recording, &run.starvation);
        summary.assert_sums_close();
        let blocked = summary.cpu_ns.lost["signal_blocked"];
        let span = 1_900_000_000..2_100_000_000;
        assert!(span.contains(&blocked), "blocked for 2 s: {:?}", summary.cpu_ns);
    }
}

on_jdks! { concurrent 11, 25;
    /// A thread that unblocks the signal is sampled again.
    fn blocked_for_a_while(jdk) {
        let run = with_habit(jdk, "block-for-a-while", 4);
        run.assert_exit_code(0);
        let summary = summary_of(&run.recording, &run.starvation);
        summary.assert_sums_close();
        let main = summary.thread("main");
        let blocked = summary.cpu_ns.lost["signal_blocked"];
        assert!(blocked > 1_900_000_000, "{:?}", summary.cpu_ns);
        // Seconds 1 and 2, and from at latest some seconds after the end of second 4 on.
        assert!(main.sampled_ns > 2_000_000_000, "{main:?}");
    }
}

/// Blocks every real-time signal and becomes the command that follows.
const BLOCK_AND_RUN: &str = "import os,signal,sys; signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 65)); os.execvp(sys.argv[1], sys.argv[1:])";

on_jdks! { concurrent 11, 25;
    /// A launcher that blocks all real-time signals passes that on to every thread of the JVM.
    fn blocked_by_the_launcher(jdk) {
        let workload = Workload::new("TightLoop").argument(1).launcher(&["python3", "-c", BLOCK_AND_RUN]);
        let run = workload.record_to_file(jdk, "interval=1ms");
        run.assert_exit_code(0);
        assert_eq!(agent_lines(&run.stderr), [""; 0], "{}", run.stderr);
        let summary = summary_of(&run.recording, &run.starvation);
        summary.assert_sums_close();
        // Without the signal there are no samples at all.
        assert!(summary.cpu_ns.sampled > summary.cpu_ns.kernel / 2, "{summary:?}");
    }
}

on_jdks! { concurrent 17, 25;
    /// Time stamps of the monotonic clock, for machines whose counters differ, give the same profile.
    fn time_stamps_of_the_clock(jdk) {
        let run = Workload::new("TightLoop").argument(1).record_to_file(jdk, "interval=1ms,debug=clock-stamps");
        run.assert_exit_code(0);
        let summary = summary_of(&run.recording, &run.starvation);
        summary.assert_sums_close();
        run.assert_method_time("TightLoop.spin", 1_000_000);
    }
}

on_jdks! { 17, 25;
    /// Three hundred threads under a small limit of pending signals leave timers for the program and for others.
    fn timers_are_left_for_others(jdk) {
        let library = native_library("habits");
        let limit = format!("--sigpending={}", java_tests::pending_signals() + 60);
        let timers = Workload::new("NativeHabits").argument(2).argument(library.display()).argument("timers").argument(10);
        let run = timers.launcher(&["prlimit", &limit]).record_to_file(jdk, "interval=1ms");
        run.assert_exit_code(0);
        for line in ["in a child 10", "timers 10"] {
            assert!(run.stdout.contains(line), "{}", run.stdout);
        }
        let lines = agent_lines(&run.stderr);
        assert!(matches!(lines[..], [line] if line.contains("half of the user's pending signals")), "{lines:?}");
        summary_of(&run.recording, &run.starvation).assert_sums_close();
    }
}

/// The workload whose native code forks; the child burns CPU time and ends by `exit`.
fn forking() -> Workload {
    let library = native_library("habits");
    Workload::new("NativeHabits").argument(1).argument(library.display()).argument("fork").argument(300)
}

/// Asserts that the parent's profile is complete and has nothing of the child.
#[track_caller]
fn assert_child_left_no_trace(run: &Run, summary: &Summary) {
    run.assert_exit_code(0);
    assert!(run.stdout.contains("child 0"), "{}", run.stdout);
    assert!(summary.complete, "{summary:?}");
    summary.assert_sums_close();
    summary.assert_requests_are_explained();
    let in_child =
        run.stacks().ns_where(|stack| stack.has("burn") && stack.has("Java_NativeHabits_forkAndBurn"));
    assert_eq!(in_child, 0, "samples of the child");
}

on_jdks! { concurrent 11, 25;
    /// The child of a fork without exec is not sampled, and its end leaves the recording of the parent alone.
    fn fork_without_exec(jdk) {
        let run = forking().record_to_file(jdk, "interval=1ms");
        assert_child_left_no_trace(&run, &summary_of(&run.recording, &run.starvation));
    }
}

on_jdks! { concurrent 25;
    /// The same with a connection, which the child shares: it sends nothing, and the session goes on after its end.
    fn fork_without_exec_beside_a_connection(jdk) {
        let run = forking().record_option("--interval=1ms").record(jdk);
        let summary = run.summary();
        assert_child_left_no_trace(&run, summary);
        assert_eq!((summary.delivery.connections, summary.delivery.resent), (1, 0), "{:?}", summary.delivery);
    }
}

on_every_jdk! { concurrent;
    /// Threads that leave the VM while a profile ends, with freed memory overwritten: their handlers must not read the
    /// `JavaThread` that was freed.
    fn threads_detach_while_profiles_end(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end");
        let library = native_library("habits");
        let workload = Workload::new("NativeHabits")
            .argument(1)
            .argument(library.display())
            .argument("detach")
            .argument(4)
            .argument(end_file.display())
            .launcher(&["env", "MALLOC_PERTURB_=165"]);
        let mut profiles = 0;
        let finished = workload.run_unprofiled_watched(jdk, |pid, _| {
            if profiles == 5 {
                return create_end_file(&end_file);
            }
            profiles += 1;
            let mut command = std::process::Command::new(java_tests::binaries::tickwalk());
            command.args(["attach", "--interval", "1ms", "--duration", "500ms", "--agent-option", "debug=stop-delay:300ms"]);
            command.arg("-o").arg(folder.path().join("recording.tickwalk")).arg(pid.to_string());
            let attached = java_tests::run(command, |_| ());
            assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
        });
        assert_eq!((finished.exit_code(), profiles), (0, 5), "{}", finished.stderr);
    }
}
