//! `tickwalk start`, `dump`, `status` and `stop` control profiles that no command waits for; an agent that was loaded
//! with `start=no` does nothing until then and again afterwards; an agent whose command was killed ends the profile by
//! itself.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use java_tests::collector::{CollectorProcess, summary_of};
use java_tests::{Workload, binaries, create_end_file, on_every_jdk, on_jdks, succeed, tickwalk};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn status(pid: i32) -> serde_json::Value {
    serde_json::from_str(&succeed(&["status", "--json", &pid.to_string()]).stdout).expect("JSON")
}

fn agent_option(options: &str) -> String {
    format!("-agentpath:{}={options}", binaries::agent().display())
}

/// Traces that a profile may leave in a process: handled signals, timers, and threads of the agent.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    handled_signals: String,
    timers: usize,
    threads: usize,
}

fn traces(pid: i32) -> Traces {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process");
    let handled = read("status").lines().find_map(|line| line.strip_prefix("SigCgt:").map(str::to_owned));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a running process");
    let names =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    Traces {
        handled_signals: handled.expect("SigCgt"),
        timers: read("timers").lines().filter(|line| line.starts_with("ID:")).count(),
        threads: names.filter(|name| name.starts_with("tickwalk")).count(),
    }
}

/// Waits until a process holds `expected`, as its threads end a moment after they were joined.
#[track_caller]
fn await_traces(pid: i32, expected: &Traces) {
    await_that(|| traces(pid) == *expected);
    assert_eq!(traces(pid), *expected);
}

/// Waits until `holds` does, for half a minute at most.
#[allow(clippy::disallowed_methods, reason = "the kernel announces no change of the files in /proc")]
fn await_that(holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

on_every_jdk! { concurrent;
    /// The JVM writes the recording; what is sampled so far can be seen at any time.
    fn starts_dumps_and_stops(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, file) = (folder.path().join("end-file"), folder.path().join("a.tickwalk"));
        let file_text = file.display().to_string();
        let (mut steps, mut due_ns, mut dumped) = (0, 0, None);
        let program = Workload::burner(0, &end_file).run_unprofiled_watched(jdk, |pid, cpu_ns| {
            if cpu_ns < due_ns {
                return;
            }
            let text = pid.to_string();
            steps += 1;
            match steps {
                1 => {
                    assert_eq!(status(pid)["state"], "not loaded");
                    let refused = tickwalk(&["stop", &text]);
                    assert!(refused.stderr.contains("no profile runs in JVM"), "{}", refused.stderr);
                    succeed(&["start", "--interval", "1ms", "-o", &file_text, &text]);
                    let status = status(pid);
                    assert_eq!((&status["state"], &status["facts"]["interval_ns"]), (&"running".into(), &"1000000".into()));
                    assert_eq!(status["facts"]["file"], *file_text);
                    let refused = tickwalk(&["start", &text]);
                    assert!(refused.stderr.contains("is already being profiled"), "{}", refused.stderr);
                    // Samples are written every second.
                    due_ns = cpu_ns_from_now(pid, 2_000_000_000);
                }
                2 => dumped = Some(succeed(&["dump", &text])),
                3 => {
                    let copy = folder.path().join("copy.tickwalk");
                    let stopped = succeed(&["stop", "-o", &copy.display().to_string(), &text]);
                    assert!(stopped.stdout.contains("Burner.burn"), "{}", stopped.stdout);
                    assert_eq!(std::fs::read(&copy).expect("a copy"), std::fs::read(&file).expect("a recording"));
                    assert_eq!(status(pid)["state"], "idle");
                    create_end_file(&end_file);
                }
                _ => {}
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(dumped.expect("dumped").stdout.contains("Burner.burn"));
        let summary = summary_of(&file, &program.starvation);
        assert!(summary.complete && summary.samples > 20, "{} samples", summary.samples);
        summary.assert_sums_close();
        assert!(!program.stderr.contains("tickwalk:"), "{}", program.stderr);
    }
}

on_jdks! { concurrent 25;
    /// `-o FORMAT -f FILE`, as async-profiler's users write them, names the copy of a stop, and the file of a start.
    fn formats_are_named_beside_their_files(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (mut steps, mut due_ns) = (0, 0);
        let program = Workload::burner(0, &folder.path().join("end-file")).run_unprofiled_watched(jdk, |pid, cpu_ns| {
            if cpu_ns < due_ns {
                return;
            }
            let text = pid.to_string();
            steps += 1;
            match steps {
                1 => {
                    succeed(&["start", "--interval", "1ms", "-o", &path("a.tickwalk"), &text]);
                    due_ns = cpu_ns_from_now(pid, 500_000_000);
                }
                2 => {
                    succeed(&["stop", "-o", "collapsed", "-f", &path("of-stop"), &text]);
                    succeed(&["start", "--interval", "1ms", "-o", "collapsed", "-f", &path("of-start"), &text]);
                    due_ns = cpu_ns_from_now(pid, 500_000_000);
                }
                3 => {
                    succeed(&["stop", &text]);
                    create_end_file(&folder.path().join("end-file"));
                }
                _ => {}
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        for name in ["of-stop", "of-start"] {
            let stacks = std::fs::read_to_string(path(name)).expect("text");
            let is_stack = |line: &str| line.contains(";Burner.main;") && line.contains("Burner.burn");
            assert!(stacks.lines().any(is_stack), "{name}: {stacks}");
        }
    }
}

/// Number of cycles that are compared with the first ones; `python3 java-tests/measure attach-cycles --waiting` does a
/// thousand.
const CYCLES: usize = 12;
/// Cycles after which libraries, classes and the arenas of the C library are there.
const WARM: usize = 6;

on_jdks! { concurrent 11, 25;
    /// Before the first start and after each stop there is no timer, no handler and no thread of the agent.
    fn an_agent_that_waits_leaves_nothing(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, file) = (folder.path().join("end-file"), folder.path().join("%p.tickwalk"));
        let option = agent_option(&format!("start=no,interval=1ms,file={}", file.display()));
        let mut sizes = Vec::new();
        let mut before = None;
        let program = Workload::burner(0, &end_file).jvm_option(&option).run_unprofiled_watched(jdk, |pid, _| {
            let text = pid.to_string();
            let before = before.get_or_insert_with(|| {
                assert_eq!(status(pid)["state"], "waiting");
                traces(pid)
            });
            assert_eq!((before.timers, before.threads), (0, 0));
            if sizes.len() < CYCLES {
                succeed(&["start", &text]);
                // A thread sets its name itself.
                await_that(|| traces(pid).threads > 0);
                let during = traces(pid);
                assert!(during.timers > 0 && during.threads > 0, "{during:?}");
                assert_ne!(during.handled_signals, before.handled_signals);
                succeed(&["stop", &text]);
                await_traces(pid, before);
                assert_eq!(status(pid)["state"], "waiting");
                sizes.push(memory_of(pid));
            } else {
                create_end_file(&end_file);
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        // No file is written before a start; the interval is that of the load.
        let recording = folder.path().read_dir().expect("a folder").flatten().find(|entry| entry.file_name() != "end-file");
        let summary = summary_of(&recording.expect("a recording").path(), &program.starvation);
        assert!(summary.complete);
        let (first, last) = (&sizes[WARM], &sizes[CYCLES - 1]);
        // An arena of the C library is 64 MB of address space and two mappings; a profile that left its memory would
        // add 400 MB and three.
        assert!(last.address_space < first.address_space + 200_000, "{sizes:?}");
        assert!(last.mappings < first.mappings + 8 && last.descriptors <= first.descriptors + 2, "{sizes:?}");
        assert!(!program.stderr.contains("tickwalk:"), "{}", program.stderr);
        assert!(!program.stderr.contains("loaded dynamically"), "{}", program.stderr);
    }
}

/// Resources of a process.
#[derive(Debug)]
struct Size {
    mappings: usize,
    /// In kilobytes.
    address_space: u64,
    descriptors: usize,
}

fn memory_of(pid: i32) -> Size {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a running process");
    let size = read("status")
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:")?.trim().split(' ').next()?.parse().ok());
    Size {
        mappings: read("maps").lines().count(),
        address_space: size.expect("VmSize"),
        descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a running process").count(),
    }
}

/// Starts `tickwalk attach`; returns it when it profiles.
fn attached(folder: &Path, pid: i32) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = Command::new(binaries::tickwalk());
    command
        .args(["attach", "--interval", "1ms", "-o"])
        .arg(folder.join("recording.tickwalk"))
        .arg(pid.to_string());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    log.read_line(&mut line).expect("a line");
    assert!(line.contains("profiling JVM"), "{line}");
    (child, log)
}

on_jdks! { concurrent 11, 25;
    /// A command that waits for a profile ends with it, with a complete report.
    fn attach_ends_when_another_command_stops_the_profile(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let (mut waiting, mut rounds) = (None, 0);
        let program = Workload::burner(0, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            let (child, log) = waiting.get_or_insert_with(|| attached(folder.path(), pid));
            rounds += 1;
            if rounds == 5 {
                succeed(&["stop", &pid.to_string()]);
                assert!(child.wait().expect("a child").success());
                let mut report = String::new();
                log.read_to_string(&mut report).expect("text");
                assert!(report.contains("was ended by another command") && report.contains("Burner.burn"), "{report}");
                create_end_file(&end_file);
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(summary_of(&folder.path().join("recording.tickwalk"), &program.starvation).complete);
    }
}

on_jdks! { concurrent 17, 25;
    /// Ten seconds after its command was killed, the agent ends the profile and removes what the command has left.
    fn an_agent_whose_command_was_killed_ends_the_profile(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let (mut killed, mut left, mut before) = (false, None, None);
        let program = Workload::burner(0, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            let before = before.get_or_insert_with(|| traces(pid));
            if !std::mem::replace(&mut killed, true) {
                let (mut child, _) = attached(folder.path(), pid);
                let status = status(pid);
                let options = status["facts"]["options"].as_str().expect("options").to_owned();
                let socket = options.split(',').find_map(|part| part.strip_prefix("collector=unix:"));
                let directory = Path::new(socket.expect("a socket")).parent().expect("a folder").to_owned();
                assert!(directory.is_dir());
                child.kill().expect("killed");
                child.wait().expect("ended");
                left = Some(directory);
            } else if !end_file.exists() && traces(pid) == *before {
                assert!(!left.as_ref().expect("a folder").exists());
                assert_eq!(status(pid)["state"], "idle");
                create_end_file(&end_file);
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(program.stderr.contains("is given up: it was not reachable for 10s"), "{}", program.stderr);
        assert!(program.stderr.contains("no destination is left; the program goes on"), "{}", program.stderr);
    }
}

/// Returns the CPU time of a process in ticks of 10 ms.
fn cpu_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running process");
    let (_, fields) = stat.rsplit_once(") ").expect("fields");
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum()
}

/// Returns the CPU time that a process will have used after `more_ns` from now on. The burner reports the CPU time that
/// it had used when it wrote a line, so a line with that much was written after those, however late it is read.
fn cpu_ns_from_now(pid: i32, more_ns: u64) -> u64 {
    // The ticks are rounded down.
    (cpu_ticks(pid) + 2) * 10_000_000 + more_ns
}

/// Starts `record --ssh` for JVM `pid`, with a stand-in for ssh(1) that runs the script here, and its directories below
/// `there`.
fn recorded_over_ssh(folder: &Path, there: &Path, pid: i32) -> Child {
    let ssh = folder.join("ssh");
    if !ssh.exists() {
        std::fs::write(&ssh, "#!/bin/sh\nshift 2; exec sh -c \"$1\"\n").expect("a script");
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new(binaries::tickwalk());
    command
        .args(["record", "--ssh", "web1", "-d", "600s", "--interval", "1ms", "-p", &pid.to_string(), "-o"])
        .arg(folder.join("recording.tickwalk"))
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("TMPDIR", there)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().expect("started")
}

on_jdks! { concurrent 17, 25;
    /// Ctrl-C ends a profile of another machine and brings its recording; a lost connection ends it too. Nothing stays
    /// there.
    fn a_profile_over_ssh_ends_with_its_connection(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let there = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let is_clean = || std::fs::read_dir(there.path()).expect("a folder").count() == 0;
        let mut is_done = false;
        let program = Workload::burner(0, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            if std::mem::replace(&mut is_done, true) {
                return;
            }
            let before = traces(pid);
            let begin = || {
                let child = recorded_over_ssh(folder.path(), there.path(), pid);
                await_that(|| status(pid)["state"] == "running");
                let ticks = cpu_ticks(pid);
                await_that(|| cpu_ticks(pid) > ticks + 10);
                child
            };
            let interrupted = begin();
            kill(Pid::from_raw(i32::try_from(interrupted.id()).expect("a process id")), Signal::SIGINT).expect("sent");
            let output = interrupted.wait_with_output().expect("ended");
            assert!(output.status.success());
            assert!(is_clean());
            await_traces(pid, &before);
            let report = String::from_utf8_lossy(&output.stderr);
            assert!(report.contains("Burner.burn"), "{report}");

            let mut lost = begin();
            lost.kill().expect("killed");
            lost.wait().expect("ended");
            await_that(is_clean);
            assert!(is_clean());
            await_traces(pid, &before);
            create_end_file(&end_file);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
    }
}

on_jdks! { concurrent 21;
    /// A collector that was killed is shown as lost, and as connected once another one listens at its address.
    fn the_status_says_whether_the_collector_is_reached(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let address = format!("unix:{}", folder.path().join("socket").display());
        let mut collectors = Vec::new();
        let program = Workload::burner(0, &end_file).run_unprofiled_watched(jdk, |pid, _| {
            if !collectors.is_empty() {
                return;
            }
            let start = || CollectorProcess::start(&address, folder.path(), &[]);
            let await_state = |start: &str| {
                let state = || status(pid)["facts"]["collector"].as_str().unwrap_or_default().to_owned();
                await_that(|| state().starts_with(start));
                let state = state();
                assert!(state.starts_with(start), "{state} in place of {start}");
            };
            let first = start();
            succeed(&["start", "--collector", &address, &pid.to_string()]);
            await_state("connected");
            first.crash();
            await_state("lost the connection to it: ");
            collectors.push(start());
            await_state("connected");
            create_end_file(&end_file);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        collectors.pop().expect("restarted").stop();
    }
}
