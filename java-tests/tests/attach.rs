//! `tickwalk attach` profiles a running JVM for a given time or to its end, and the JVM continues in every case.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use java_tests::collector::summary_of;
use java_tests::{
    Finished, Jdk, Summary, Truth, Workload, binaries, create_end_file, on_every_jdk, on_jdk_concurrently,
    on_jdk_exclusively, on_jdks, run, stacks_of, tickwalk,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn attach(options: &[&str], folder: &Path, pid: i32) -> Finished {
    run(attach_command(options, folder, pid), |_| ())
}

fn attach_command(options: &[&str], folder: &Path, pid: i32) -> Command {
    let mut command = Command::new(binaries::tickwalk());
    command.arg("attach").args(options).arg("-o").arg(folder.join("recording.tickwalk")).arg(pid.to_string());
    command
}

/// Asserts that the recording is complete, its accounts close, and most of its samples are below the workload's method.
fn assert_account_closes(recording: &Path, program: &Finished) -> Summary {
    let summary = summary_of(recording, &program.starvation);
    assert!(summary.complete);
    summary.assert_sums_close();
    let stacks = stacks_of(recording);
    let share = stacks.share_where(|stack| stack.has("Burner.burn"));
    assert!(summary.samples > 20 && share > 0.5, "{share} of {} samples", summary.samples);
    summary
}

/// Like [`assert_account_closes`], for a profile that began while the program was running.
fn assert_attached_account_closes(recording: &Path, program: &Finished) -> Summary {
    let summary = assert_account_closes(recording, program);
    // The account begins with the agent, whose start (tables, self-test) takes some milliseconds.
    assert!(summary.cpu_ns.before_timer < summary.cpu_ns.kernel / 10, "{:?}", summary.cpu_ns);
    summary
}

/// Asserts exit code 1 and exactly one line on standard error, which contains `text`.
fn assert_refused(finished: &Finished, text: &str) {
    assert_eq!(finished.exit_code(), 1, "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains(text), "{}", finished.stderr);
}

/// Returns whether a JVM records positions between safepoints for code that it compiles from now on.
fn records_positions(jdk: &Jdk, pid: i32) -> bool {
    let mut command = Command::new(jdk.home.join("bin/jcmd"));
    command.arg(pid.to_string()).args(["VM.flags", "-all"]);
    let finished = run(command, |_| ());
    let flag = finished.stdout.lines().find(|line| line.contains(" DebugNonSafepoints "));
    flag.unwrap_or_else(|| panic!("{finished:?}")).contains("= true")
}

on_every_jdk! { concurrent;
    /// Three profiles one after the other, each with an account of its own; the first has positions recorded.
    fn attaches_repeatedly_for_a_duration(jdk) {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a temporary folder")).collect();
        let end_file = folders[0].path().join("end-file");
        let mut attached = Vec::new();
        // Without the option the VM does not list the flag.
        let program = Workload::burner(1, &end_file).jvm_option("-XX:+UnlockDiagnosticVMOptions");
        let program = program.run_unprofiled_watched(jdk, |pid, _| match folders.get(attached.len()) {
            Some(folder) => {
                let is_first = attached.is_empty();
                assert!(!is_first || !records_positions(jdk, pid), "before any profile");
                attached.push(attach(&["--duration", "2s", "--interval", "1ms"], folder.path(), pid));
                assert!(!is_first || records_positions(jdk, pid), "after the first one");
            }
            None => create_end_file(&end_file),
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let mut burnt_ns = 0;
        for (attached, folder) in attached.iter().zip(&folders) {
            assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
            assert!(attached.stderr.contains("Burner.burn"), "{}", attached.stderr);
            let summary = assert_attached_account_closes(&folder.path().join("recording.tickwalk"), &program);
            burnt_ns += summary.thread("main").kernel_ns;
            let told = attached.stderr.contains("of the samples may show the method and line of a later call");
            assert_eq!(told, 5 * summary.biased_received >= summary.samples, "{}", attached.stderr);
        }
        assert_eq!(attached.len(), 3);
        assert!(!program.stderr.contains("tickwalk:"), "{}", program.stderr);
        // The profiles exclude the CPU time before and after them, so together they hold less than the program used.
        let truth = Truth::parse(&program.stdout).method_cpu_ns("Burner.burn");
        assert!(burnt_ns.cast_unsigned() < truth, "{burnt_ns} of {truth}");
    }
}

on_jdks! { concurrent 11, 25;
    /// A JVM has one profile at a time; `--stop` ends it, whoever started it.
    fn refuses_a_second_profile_until_stopped(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, first) = (folder.path().join("end-file"), folder.path().join("first.tickwalk"));
        let agent = format!("-agentpath:{}=interval=1ms,file={}", binaries::agent().display(), first.display());
        let mut outcomes: Vec<Finished> = Vec::new();
        let program = Workload::burner(1, &end_file).jvm_option(&agent).run_unprofiled_watched(jdk, |pid, _| {
            let attached = match outcomes.len() {
                0 => attach(&[], folder.path(), pid),
                // By then the agent loaded at the start has recorded for a while.
                10 | 12 => attach(&["--stop"], folder.path(), pid),
                11 => attach(&["--duration", "2s", "--interval", "1ms"], folder.path(), pid),
                13 => return create_end_file(&end_file),
                _ => outcomes[0].clone(),
            };
            outcomes.push(attached);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert_refused(&outcomes[0], "is already being profiled; 'tickwalk stop ");
        assert_eq!(outcomes[10].exit_code(), 0, "{}", outcomes[10].stderr);
        assert_account_closes(&first, &program);
        assert_eq!(outcomes[11].exit_code(), 0, "{}", outcomes[11].stderr);
        assert_attached_account_closes(&folder.path().join("recording.tickwalk"), &program);
        assert_refused(&outcomes[12], "no profile runs in JVM ");
    }
}

on_jdks! { concurrent 11, 25;
    /// Ctrl-C completes the profile and does not end the program.
    fn ends_the_profile_when_interrupted(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let (mut attached, mut rounds) = (None, 0);
        let program = Workload::burner(1, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            let attached = attached.get_or_insert_with(|| {
                let mut command = attach_command(&["--interval", "1ms"], folder.path(), pid);
                let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
                let mut log = BufReader::new(child.stderr.take().expect("piped"));
                let mut line = String::new();
                log.read_line(&mut line).expect("a line");
                assert!(line.contains("Ctrl-C ends the profile only"), "{line}");
                (child, log)
            });
            rounds += 1;
            if rounds == 10 {
                kill(Pid::from_raw(i32::try_from(attached.0.id()).expect("an id")), Signal::SIGINT).expect("tickwalk is running");
                assert!(attached.0.wait().expect("a child").success());
                create_end_file(&end_file);
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let mut report = String::new();
        attached.expect("attached").1.read_to_string(&mut report).expect("text");
        assert!(report.contains("Burner.burn"), "{report}");
        assert_attached_account_closes(&folder.path().join("recording.tickwalk"), &program);
    }
}

on_every_jdk! { concurrent;
    fn profiles_to_the_end_of_the_program(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, recording) = (folder.path().join("end-file"), folder.path().join("recording.tickwalk"));
        let (mut attaching, mut profiled_rounds) = (None, 0);
        let folder_path = folder.path().to_owned();
        let program = Workload::burner(0, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            let folder = folder_path.clone();
            attaching
                .get_or_insert_with(|| std::thread::spawn(move || attach(&["--interval", "1ms"], &folder, pid)));
            if profiled_rounds == 10 {
                return;
            }
            // The timers are the profile's; each round burns 100 ms.
            let timers = std::fs::read_to_string(format!("/proc/{pid}/timers")).expect("a running process");
            profiled_rounds += u32::from(!timers.is_empty());
            if profiled_rounds == 10 {
                create_end_file(&end_file);
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let attached = attaching.expect("the workload reported a CPU time").join().expect("no panic");
        assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
        assert_attached_account_closes(&recording, &program);
    }
}

/// The list shows all JVMs and whether they can be profiled; without a process id, `attach` prints it as well.
#[test]
fn lists_jvms_alone_on_jdk21() {
    on_jdk_exclusively(21, |jdk| {
        let mut listed: Vec<(i32, Vec<String>)> = Vec::new();
        for option in ["-Xmx64m", "-Xrs", "-XX:-UsePerfData"] {
            let program = Workload::new("Burner").argument(1).jvm_option(option).run_unprofiled_watched(
                jdk,
                |pid, _| {
                    if listed.iter().any(|(known, _)| *known == pid) {
                        return;
                    }
                    let row = |verb: &str| {
                        let list = tickwalk(&[verb]);
                        let is_it = |line: &&str| line.trim_start().starts_with(&format!("{pid}  "));
                        let words = list.stdout.lines().find(is_it).expect("a row").split_whitespace();
                        words.skip(3).collect::<Vec<_>>().join(" ")
                    };
                    listed.push((pid, vec![row("list"), row("attach")]));
                },
            );
            assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        }
        let states = ["idle - Burner 1", "no SIGQUIT handler - Burner 1", "idle - Burner 1"];
        for (expected, (_, rows)) in states.into_iter().zip(&listed) {
            assert!(rows.iter().all(|row| row == expected), "{expected}: {rows:?}");
        }
        assert_eq!(listed.len(), 3);
    });
}

/// SIGQUIT, with which the command reaches a JVM, would kill a process that does not handle it.
#[test]
fn refuses_processes_that_do_not_handle_sigquit_on_jdk17() {
    on_jdk_concurrently(17, |jdk| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let mut attached = Vec::new();
        let program =
            Workload::burner(1, &end_file).jvm_option("-Xrs").run_unprofiled_watched(jdk, |pid, _| {
                if attached.is_empty() {
                    attached.push(attach(&[], folder.path(), pid));
                    create_end_file(&end_file);
                }
            });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let [refused] = &attached[..] else { panic!("one result is expected: {attached:?}") };
        assert_refused(refused, "does not handle SIGQUIT");
    });
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("a process");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = attach(&[], folder.path(), i32::try_from(sleeper.id()).expect("a process id"));
    assert_eq!(refused.exit_code(), 1);
    assert!(refused.stderr.contains("is not a HotSpot JVM"), "{}", refused.stderr);
    assert!(sleeper.try_wait().expect("a child").is_none(), "the process still sleeps");
    sleeper.kill().expect("killed");
    sleeper.wait().expect("ended");
}

/// Returns the number of mappings of a process, and its address space in kilobytes.
fn memory_of(pid: i32) -> (usize, u64) {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process");
    let size = read("status")
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.trim().split(' ').next()?.parse().ok());
    (read("maps").lines().count(), size.expect("VmSize"))
}

on_jdks! { concurrent 11, 25;
    /// Profile after profile of one JVM uses the same memory; under checked JNI, which has nothing to say.
    fn profiles_use_the_same_memory(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let mut sizes = Vec::new();
        let program = Workload::burner(1, &end_file).jvm_option("-Xcheck:jni").run_unprofiled_watched(jdk, |pid, _| {
            if sizes.len() == 8 {
                return create_end_file(&end_file);
            }
            let attached = attach(&["--duration", "500ms"], folder.path(), pid);
            assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
            sizes.push(memory_of(pid));
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(!program.stdout.contains("WARNING"), "{}", program.stdout);
        // The first profiles load libraries and classes, and threads get stacks and arenas of the C library, 64 MB
        // each. A profile that left its own memory would add 400 MB.
        let (first, last) = (sizes[2], sizes[7]);
        assert!(last.1 < first.1 + 200_000 && last.0 < first.0 + 15, "mappings and kilobytes: {sizes:?}");
    }
}

/// Blocks every real-time signal and SIGPROF, and becomes the command that follows.
const BLOCK_AND_RUN: &str = "import os,signal,sys; signal.pthread_sigmask(signal.SIG_BLOCK, [*range(34, 65), signal.SIGPROF]); os.execvp(sys.argv[1], sys.argv[1:])";

on_jdks! { concurrent 25;
    /// Every thread of a running JVM blocks what its launcher blocked, and a profile would have no samples.
    fn refuses_a_jvm_whose_threads_block_the_signal(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let mut attached = Vec::new();
        let program = Workload::burner(1, &end_file).launcher(&["python3", "-c", BLOCK_AND_RUN]);
        let program = program.run_unprofiled_watched(jdk, |pid, _| {
            if attached.is_empty() {
                attached.push(attach(&[], folder.path(), pid));
                create_end_file(&end_file);
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let [refused] = &attached[..] else { panic!("one result is expected: {attached:?}") };
        assert_refused(refused, "the JVM refused the agent");
        let lines: Vec<&str> = program.stderr.lines().filter(|line| line.starts_with("tickwalk:")).collect();
        assert!(matches!(lines[..], [line] if line.contains("is blocked in this process")), "{lines:?}");
    }
}

/// Answers to a command that comes while the JVM is being created.
const STARTING: [&str; 4] = [
    "is not a HotSpot JVM",
    "does not handle SIGQUIT",
    "did not answer within",
    "the JVM refused the agent: return code -1",
];

on_every_jdk! { concurrent;
    /// While the VM compiles all it needs for its start, each command is refused in one line or succeeds; the VM lives
    /// on.
    fn attaches_while_the_vm_is_created(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, pid_file) = (folder.path().join("end-file"), folder.path().join("pid"));
        let write_pid = format!(r#"echo $$ >{0}.part; mv {0}.part {0}; exec "$@""#, pid_file.display());
        let workload =
            Workload::burner(1, &end_file).jvm_option("-Xcomp").launcher(&["sh", "-c", &write_pid, "sh"]);
        let output = folder.path().to_owned();
        let attaching = std::thread::spawn(move || {
            let pid = loop {
                match std::fs::read_to_string(&pid_file) {
                    Ok(pid) => break pid.trim().parse().expect("a process id"),
                    Err(_) => std::thread::yield_now(),
                }
            };
            let mut refused = Vec::new();
            let last = loop {
                let attached = attach(&["--duration", "1s"], &output, pid);
                let is_starting = STARTING.iter().any(|text| attached.stderr.contains(text));
                if attached.exit_code() == 0 || !is_starting {
                    break attached;
                }
                refused.push(attached);
            };
            create_end_file(&end_file);
            (refused, last)
        });
        let program = workload.run_unprofiled_watched(jdk, |_, _| ());
        let (refused, last) = attaching.join().expect("no panic");
        assert_eq!((program.exit_code(), last.exit_code()), (0, 0), "{}{}", program.stderr, last.stderr);
        assert!(refused.iter().all(|refused| refused.stderr.lines().count() == 1), "{refused:?}");
        // Where the agent refuses, it also prints a line in the JVM: one for each refused command.
        let by_jvm = refused.iter().filter(|refused| refused.stderr.contains(STARTING[3])).count();
        let lines: Vec<&str> = program.stderr.lines().filter(|line| line.starts_with("tickwalk:")).collect();
        assert!(lines.iter().all(|line| line.contains("the JVM is still starting; try again")), "{lines:?}");
        assert_eq!(lines.len(), by_jvm, "{refused:?}");
    }
}
