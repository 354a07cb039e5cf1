//! `tickwalk attach`: a JVM that runs already is profiled for a time or to its end, and runs on whatever happens.

use std::path::Path;
use std::process::Command;

use java_tests::collector::summary_of;
use java_tests::{Finished, Stacks, Summary, Workload, binaries, on_every_jdk, on_jdk, run};

fn attach(options: &[&str], folder: &Path, pid: i32) -> Finished {
    let mut command = Command::new(binaries::tickwalk());
    command.arg("attach").args(options).arg("-o").arg(folder.join("recording.tickwalk")).arg(pid.to_string());
    run(command, |_| ())
}

fn stacks(recording: &Path) -> Stacks {
    let mut command = Command::new(binaries::tickwalk());
    command.args(["export", "--format", "collapsed", "--unit", "ns"]).arg(recording);
    let finished = run(command, |_| ());
    assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
    Stacks::parse_collapsed(&finished.stdout)
}

/// The account closes, and what burnt is what the program says.
fn assert_true(recording: &Path, complete: bool) -> Summary {
    let summary = summary_of(recording);
    assert_eq!(summary.complete, complete);
    summary.assert_sums_close();
    let stacks = stacks(recording);
    let share = stacks.share_where(|stack| stack.has("Killed.burn"));
    assert!(summary.samples > 20 && share > 0.5, "{share} of {} samples", summary.samples);
    // What ran before the agent came is nobody's loss; reading tables and the self-test take some milliseconds.
    assert!(summary.cpu_ns.before_timer < summary.cpu_ns.kernel / 10, "{:?}", summary.cpu_ns);
    summary
}

/// A program that burns until it has burnt `seconds` and the file `enough` is there.
fn burning(seconds: u32, enough: &Path) -> Workload {
    Workload::new("Killed").argument(seconds).argument(enough.display())
}

on_every_jdk! {
    fn for_a_time(jdk) {
        let folder = tempfile::tempdir().expect("a folder");
        let enough = folder.path().join("enough");
        let mut attached = Vec::new();
        let program = burning(1, &enough).run_alone_watched(jdk, |pid, _| {
            if attached.len() < 3 {
                attached.push(attach(&["--duration", "2s", "--interval", "1ms"], folder.path(), pid));
            } else if !enough.exists() {
                std::fs::write(&enough, []).expect("a file");
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let [first, again, third] = &attached[..] else { panic!("three: {attached:?}") };
        assert_eq!(first.exit_code(), 0, "{}", first.stderr);
        assert!(first.stderr.contains("Killed.burn"), "{}", first.stderr);
        assert_true(&folder.path().join("recording.tickwalk"), true);
        // Once in a JVM's life; the program does not notice.
        for refused in [again, third] {
            assert_eq!(refused.exit_code(), 1, "{}", refused.stderr);
            assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
            assert!(refused.stderr.contains("the JVM refused the agent"), "{}", refused.stderr);
        }
        assert!(program.stderr.contains("has, or had, a Tickwalk agent already"), "{}", program.stderr);
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
        assert_true(&recording, true);
    }
}

/// SIGQUIT would end it.
#[test]
fn what_does_not_listen_is_left_alone() {
    on_jdk(17, |jdk| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut attached = Vec::new();
        let program = Workload::new("Killed").argument(1).jvm("-Xrs").run_alone_watched(jdk, |pid, _| {
            if attached.is_empty() {
                attached.push(attach(&[], folder.path(), pid));
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let [refused] = &attached[..] else { panic!("one: {attached:?}") };
        assert_eq!(refused.exit_code(), 1);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("does not handle SIGQUIT"), "{}", refused.stderr);
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
