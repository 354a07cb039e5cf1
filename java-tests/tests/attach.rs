//! `tickwalk attach`: a JVM that runs already is profiled for a time or to its end, and runs on whatever happens.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use java_tests::collector::summary_of;
use java_tests::{Finished, Stacks, Summary, Truth, Workload, binaries, on_every_jdk, on_jdk_alone, run};
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

fn stacks(recording: &Path) -> Stacks {
    let mut command = Command::new(binaries::tickwalk());
    command.args(["export", "--format", "collapsed", "--unit", "ns"]).arg(recording);
    let finished = run(command, |_| ());
    assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
    Stacks::parse_collapsed(&finished.stdout)
}

/// The account is whole and closes, and what burnt is what the program says.
fn assert_closes(recording: &Path, program: &Finished) -> Summary {
    let summary = summary_of(recording, &program.starved);
    assert!(summary.complete);
    summary.assert_sums_close();
    let stacks = stacks(recording);
    let share = stacks.share_where(|stack| stack.has("Killed.burn"));
    assert!(summary.samples > 20 && share > 0.5, "{share} of {} samples", summary.samples);
    summary
}

/// As [`assert_closes`], of a profile that began in a program that ran already.
fn assert_true(recording: &Path, program: &Finished) -> Summary {
    let summary = assert_closes(recording, program);
    // What ran before the agent came is nobody's loss; reading tables and the self-test take some milliseconds.
    assert!(summary.cpu_ns.before_timer < summary.cpu_ns.kernel / 10, "{:?}", summary.cpu_ns);
    summary
}

/// A program that burns until it has burnt `seconds` and the file `enough` is there.
fn burning(seconds: u32, enough: &Path) -> Workload {
    Workload::new("Killed").argument(seconds).argument(enough.display())
}

/// Has one line on standard error, which holds `text`.
fn assert_refused(finished: &Finished, text: &str) {
    assert_eq!(finished.exit_code(), 1, "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains(text), "{}", finished.stderr);
}

on_every_jdk! {
    /// Again and again, each with an account of its own.
    fn for_a_time(jdk) {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let enough = folders[0].path().join("enough");
        let mut attached = Vec::new();
        let program = burning(1, &enough).run_alone_watched(jdk, |pid, _| match folders.get(attached.len()) {
            Some(folder) => {
                attached.push(attach(&["--duration", "2s", "--interval", "1ms"], folder.path(), pid));
            }
            None => std::fs::write(&enough, []).expect("a file"),
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let mut burnt_ns = 0;
        for (attached, folder) in attached.iter().zip(&folders) {
            assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
            assert!(attached.stderr.contains("Killed.burn"), "{}", attached.stderr);
            let summary = assert_true(&folder.path().join("recording.tickwalk"), &program);
            burnt_ns += summary.thread("main").kernel_ns;
        }
        assert_eq!(attached.len(), 3);
        assert!(!program.stderr.contains("tickwalk:"), "{}", program.stderr);
        // What was burnt before or after a profile is no part of it: together they have less than the program.
        let truth = Truth::parse(&program.stdout).method_cpu_ns("Killed.burn");
        assert!(burnt_ns.cast_unsigned() < truth, "{burnt_ns} of {truth}");
    }
}

on_every_jdk! {
    /// One at a time; one that nobody waits for is ended by whoever asks.
    fn of_a_jvm_that_is_profiled(jdk) {
        let folder = tempfile::tempdir().expect("a folder");
        let (enough, first) = (folder.path().join("enough"), folder.path().join("first.tickwalk"));
        let agent = format!("-agentpath:{}=interval=1ms,file={}", binaries::agent().display(), first.display());
        let mut outcomes: Vec<Finished> = Vec::new();
        let program = burning(1, &enough).jvm(&agent).run_alone_watched(jdk, |pid, _| {
            let attached = match outcomes.len() {
                0 => attach(&[], folder.path(), pid),
                // The agent of the start has burnt a while by then.
                10 | 12 => attach(&["--stop"], folder.path(), pid),
                11 => attach(&["--duration", "2s", "--interval", "1ms"], folder.path(), pid),
                13 => return std::fs::write(&enough, []).expect("a file"),
                _ => outcomes[0].clone(),
            };
            outcomes.push(attached);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert_refused(&outcomes[0], "is being profiled already; 'tickwalk attach --stop ");
        assert_eq!(outcomes[10].exit_code(), 0, "{}", outcomes[10].stderr);
        assert_closes(&first, &program);
        assert_eq!(outcomes[11].exit_code(), 0, "{}", outcomes[11].stderr);
        assert_true(&folder.path().join("recording.tickwalk"), &program);
        assert_refused(&outcomes[12], "no profile runs in JVM ");
    }
}

on_every_jdk! {
    /// Ctrl-C ends the profile, with all that it has, and not the program.
    fn until_interrupted(jdk) {
        let folder = tempfile::tempdir().expect("a folder");
        let enough = folder.path().join("enough");
        let (mut attached, mut rounds) = (None, 0);
        let program = burning(1, &enough).run_alone_watched(jdk, |pid, _| {
            let attached = attached.get_or_insert_with(|| {
                let mut command = attach_command(&["--interval", "1ms"], folder.path(), pid);
                let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
                let mut told = BufReader::new(child.stderr.take().expect("piped"));
                let mut line = String::new();
                told.read_line(&mut line).expect("a line");
                assert!(line.contains("Ctrl-C ends the profile only"), "{line}");
                (child, told)
            });
            rounds += 1;
            if rounds == 10 {
                kill(Pid::from_raw(i32::try_from(attached.0.id()).expect("an id")), Signal::SIGINT).expect("runs");
                assert!(attached.0.wait().expect("a child").success());
                std::fs::write(&enough, []).expect("a file");
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let mut report = String::new();
        attached.expect("attached").1.read_to_string(&mut report).expect("text");
        assert!(report.contains("Killed.burn"), "{report}");
        assert_true(&folder.path().join("recording.tickwalk"), &program);
    }
}

on_every_jdk! {
    fn to_the_end_of_the_program(jdk) {
        let folder = tempfile::tempdir().expect("a folder");
        let recording = folder.path().join("recording.tickwalk");
        let mut attaching = None;
        let folder_path = folder.path().to_owned();
        let program = Workload::new("Killed").argument(4).run_alone_watched(jdk, |pid, _| {
            let folder = folder_path.clone();
            attaching
                .get_or_insert_with(|| std::thread::spawn(move || attach(&["--interval", "1ms"], &folder, pid)));
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let attached = attaching.expect("the program told of progress").join().expect("no panic");
        assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
        assert_true(&recording, &program);
    }
}

/// Without a process id those are listed that could be named.
#[test]
fn jvms_are_listed() {
    on_jdk_alone(21, |jdk| {
        let mut listed = Vec::new();
        for option in ["-Xmx64m", "-Xrs"] {
            let program = Workload::new("Killed").argument(1).jvm(option).run_alone_watched(jdk, |pid, _| {
                if listed.iter().all(|(known, _)| *known != pid) {
                    let mut command = Command::new(binaries::tickwalk());
                    command.arg("attach");
                    let list = run(command, |_| ());
                    let is_there = |line: &str| line.trim_start().starts_with(&format!("{pid}  "));
                    listed.push((pid, list.stdout.lines().find(|line| is_there(line)).map(str::to_owned)));
                }
            });
            assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        }
        let [(_, Some(line)), (_, None)] = &listed[..] else { panic!("the first one alone: {listed:?}") };
        assert!(line.ends_with("Killed 1"), "{line}");
    });
}

/// SIGQUIT would end it.
#[test]
fn what_does_not_listen_is_left_alone() {
    on_jdk_alone(17, |jdk| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut attached = Vec::new();
        let program = Workload::new("Killed").argument(1).jvm("-Xrs").run_alone_watched(jdk, |pid, _| {
            if attached.is_empty() {
                attached.push(attach(&[], folder.path(), pid));
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let [refused] = &attached[..] else { panic!("one: {attached:?}") };
        assert_refused(refused, "does not handle SIGQUIT");
    });
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("a process");
    let folder = tempfile::tempdir().expect("a folder");
    let refused = attach(&[], folder.path(), i32::try_from(sleeper.id()).expect("a process id"));
    assert_eq!(refused.exit_code(), 1);
    assert!(refused.stderr.contains("is no HotSpot JVM"), "{}", refused.stderr);
    assert!(sleeper.try_wait().expect("a child").is_none(), "it sleeps on");
    sleeper.kill().expect("killed");
    sleeper.wait().expect("ended");
}
