//! A collector with a store: several JVMs at once, crashes, a full disk, and a regression found by a comparison.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Barrier, Mutex};

use java_tests::collector::{CollectorProcess, summary_of, tickwalk_json};
use java_tests::{
    Finished, Jdk, TICK_NS, Truth, Workload, create_end_file, on_jdk, on_jdk_exclusively, on_jdks,
    run_through_restart, span_tolerance_ns,
};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;

fn rows<'v>(answer: &'v Value, name: &str) -> &'v [Value] {
    answer[name].as_array().expect("rows")
}

/// Asserts that `stored_ns` hold all CPU time that the workload used.
#[track_caller]
fn assert_all_is_stored(run: &Finished, stored_ns: u64) {
    let truth = Truth::parse(&run.stdout).method_cpu_ns("Burner.burn");
    assert!(stored_ns + span_tolerance_ns(TICK_NS) >= truth, "{stored_ns} of {truth}");
}

fn address(directory: &Path) -> String {
    format!("unix:{}", directory.join("socket").display())
}

on_jdks! { concurrent 11, 25;
    /// The collector is killed with SIGKILL during a run and restarted on the same store: the agent resends what was
    /// not acknowledged, and the store holds everything in the agent's account exactly once.
    fn stores_everything_once_after_a_restart(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = address(directory.path());
        let store = directory.path().join("store");
        let end_file = directory.path().join("end-file");
        let start = || CollectorProcess::start_store(&address, &store).0;
        let run = run_through_restart(jdk, &address, &end_file, start);
        let store = store.display().to_string();
        let answer = tickwalk_json(&["query", "statistics", &store]);
        let [process] = rows(&answer, "processes") else { panic!("not one process: {answer}") };
        assert_eq!(process["state"], "ended", "{process}");
        assert_eq!((&process["missing_messages"], &process["unknown_samples"]), (&0.into(), &0.into()), "{process}");
        let number = |name: &str| process[name].as_u64().expect("a number");
        assert_eq!(number("kernel_ns"), number("sampled_ns") + number("unfinished_ns"), "{process}");
        assert_all_is_stored(&run, number("sampled_ns"));
        let threads = tickwalk_json(&["query", "threads", &store, "--with", "limit=1000"]);
        let sum: u64 = rows(&threads, "threads").iter().filter_map(|row| row["cpu_ns"].as_u64()).sum();
        assert_eq!(sum, number("sampled_ns"));
    }
}

/// Two JVMs of different versions send to one collector, which is killed with SIGKILL and restarted. The store then has
/// for each thread, to the nanosecond, the CPU time in the account that its agent also wrote to a file.
#[test]
fn stores_each_thread_of_two_jvms_after_a_restart_alone_on_jdk17_and_25() {
    on_jdk_exclusively(17, |old: &Jdk| on_jdk(25, |new: &Jdk| check_two_jvms([old, new])));
}

fn check_two_jvms(jdks: [&Jdk; 2]) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let address = address(directory.path());
    let store = directory.path().join("store");
    let recordings = &[17, 25].map(|feature| directory.path().join(format!("{feature}.tickwalk")));
    let collector = Mutex::new(Some(CollectorProcess::start_store(&address, &store).0));
    let end_file = directory.path().join("end-file");
    // The collector is killed when both are connected and have used one second, and restarted when both have used
    // another. Both end when they have reconnected.
    let (crash, restart) = (Barrier::new(2), Barrier::new(2));
    let are_connected =
        || collector.lock().expect("no panic").as_ref().is_some_and(|now| now.sessions() == 2);
    let run = |jdk: &Jdk, recording: &Path| {
        let (mut outage_began, mut is_restarted) = (None, false);
        let options = format!(
            "collector={address},exitwait=10s,file={},interval=1ms,debug=queue:2048",
            recording.display()
        );
        let workload = Workload::burner(3, &end_file);
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match outage_began {
            None if cpu_ns > SECOND && are_connected() => {
                outage_began = Some(cpu_ns);
                if crash.wait().is_leader() {
                    collector.lock().expect("no panic").take().expect("running").crash();
                }
            }
            Some(began) if cpu_ns > began + SECOND && !is_restarted => {
                is_restarted = true;
                if restart.wait().is_leader() {
                    let started = CollectorProcess::start_store(&address, &store).0;
                    *collector.lock().expect("no panic") = Some(started);
                }
            }
            Some(_) if is_restarted && are_connected() => create_end_file(&end_file),
            _ => {}
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(is_restarted);
        run
    };
    let run = &run;
    let runs = std::thread::scope(|scope| {
        let [old, new] = [0, 1].map(|n| scope.spawn(move || run(jdks[n], &recordings[n])));
        [old, new].map(|run| run.join().expect("no panic"))
    });
    collector.into_inner().expect("no panic").expect("restarted").stop();
    let store = store.display().to_string();
    let answer = tickwalk_json(&["query", "statistics", &store]);
    let processes = rows(&answer, "processes");
    assert_eq!(processes.len(), 2, "{answer}");
    for process in processes {
        assert_eq!(process["state"], "ended", "{process}");
        assert_eq!(
            (&process["missing_messages"], &process["unknown_samples"]),
            (&0.into(), &0.into()),
            "{process}"
        );
        let feature = process["jdk_major"].as_u64().expect("a version");
        let newer = usize::from(feature == 25);
        let account = summary_of(&recordings[newer], &runs[newer].starvation);
        assert!(account.complete, "{:?}", account.cpu_ns);
        let id = format!("process={}", process["process"].as_str().expect("an id"));
        let answer = tickwalk_json(&["query", "threads", &store, "--with", "limit=1000", "--with", &id]);
        let number = |row: &Value, name: &str| row[name].as_i64().expect("a number");
        let mut stored: Vec<(i64, i64)> =
            rows(&answer, "threads").iter().map(|row| (number(row, "tid"), number(row, "cpu_ns"))).collect();
        stored.retain(|(_, cpu_ns)| *cpu_ns > 0);
        let mut accounted: Vec<(i64, i64)> = Vec::new();
        for thread in &account.threads {
            assert_eq!(thread.gap_ns(), 0, "{thread:?}");
            if thread.sampled_ns > 0 {
                accounted.push((thread.tid.into(), thread.sampled_ns));
            }
        }
        stored.sort_unstable();
        accounted.sort_unstable();
        assert_eq!(stored, accounted, "JDK {feature}");
        assert!(accounted.len() > 1, "main and at least one thread of the VM are expected: {accounted:?}");
        let lost: i64 = account.threads.iter().map(|thread| thread.lost_ns).sum();
        let sampled: i64 = accounted.iter().map(|(_, cpu_ns)| cpu_ns).sum();
        assert_all_is_stored(&runs[usize::from(feature == 25)], (sampled + lost).cast_unsigned());
    }
}

on_jdks! { concurrent 17, 25;
    /// The disk of the store fills up during a run and has space again before its end: the collector logs one line, the
    /// agent merges the waiting samples, and nothing is missing in the end.
    fn survives_a_full_disk(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = address(directory.path());
        let disk = directory.path().join("disk");
        std::fs::create_dir(&disk).expect("a folder to mount on");
        let small = CollectorProcess::start_store_on_small_disk(&address, &disk, 16 << 20);
        let Some((collector, http)) = small else {
            eprintln!("skipped: mount namespaces are not permitted on this machine");
            return;
        };
        let filler = collector.path_in_namespace(&disk).join("filler");
        let (mut filled, mut emptied) = (false, false);
        let options = format!("collector={address},exitwait=10s,interval=1ms,window=16k");
        let full_lines = || {
            let log = collector.log();
            let lines = log.lines().filter(|line| line.contains("the disk of the store is full"));
            lines.filter(|line| line.contains("agents keep their data")).count()
        };
        let is_writable_again = || collector.log().contains("the store can be written again");
        let end_file = directory.path().join("end-file");
        // The store's file has free pages, so the store fails some time after the disk is full, and the agent
        // reconnects some time after there is space again. The program runs until then.
        let workload = Workload::burner(5, &end_file);
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && !filled && collector.sessions() > 0 {
                filled = true;
                fill(&filler);
            }
            if cpu_ns > 4 * SECOND && !emptied && full_lines() > 0 {
                emptied = true;
                std::fs::remove_file(&filler).expect("the filler exists");
            }
            if emptied && is_writable_again() {
                create_end_file(&end_file);
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(filled && emptied, "{}", collector.log());
        assert_eq!(full_lines(), 1, "exactly one line is expected: {}", collector.log());
        assert!(run.stderr.contains("samples are kept"), "{}", run.stderr);
        assert!(is_writable_again(), "{}", collector.log());
        let answer = tickwalk_json(&["query", "statistics", &http]);
        let [process] = rows(&answer, "processes") else { panic!("not one process: {answer}") };
        assert_eq!(process["state"], "ended", "{process}");
        assert_eq!((&process["missing_messages"], &process["unknown_samples"]), (&0.into(), &0.into()), "{process}");
        let number = |name: &str| process[name].as_u64().expect("a number");
        // Queues may overflow if the sampler thread is delayed, but everything that was sampled must be stored.
        let lost: u64 = process["lost_ns"].as_object().expect("causes").values().filter_map(Value::as_u64).sum();
        let stored_ns = number("sampled_ns") + lost;
        assert_eq!(number("kernel_ns"), stored_ns + number("unfinished_ns"), "{process}");
        assert_eq!(number("requests"), number("samples"), "{process}");
        assert_all_is_stored(&run, stored_ns);
        collector.stop();
    }
}

/// Fills the file system of `path`.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file on the small disk");
    let mut block = vec![0; 1 << 20];
    // The last blocks are written page by page.
    while !block.is_empty() {
        if let Err(error) = file.write_all(&block) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            block.truncate(if block.len() > 4096 { 4096 } else { 0 });
        }
    }
}

/// Two JVMs of different versions stream at once. In the second, one of five equal stages is slower, and a comparison
/// reports it as the largest change.
#[test]
fn finds_a_regression_between_two_live_jvms_alone_on_jdk17_and_25() {
    on_jdk_exclusively(17, |old: &Jdk| on_jdk(25, |new: &Jdk| check_regression(old, new)));
}

/// Returns the JDK releases of the live processes that have samples.
fn live_releases(http: &str) -> Vec<u64> {
    let answer = tickwalk_json(&["query", "processes", http]);
    let processes = rows(&answer, "processes").iter();
    let live =
        processes.filter(|process| process["state"] == "live" && process["samples"].as_u64() > Some(0));
    let mut live: Vec<u64> = live.filter_map(|process| process["jdk_major"].as_u64()).collect();
    live.sort_unstable();
    live
}

fn check_regression(old: &Jdk, new: &Jdk) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let address = address(directory.path());
    let store = directory.path().join("store");
    let (collector, http) = CollectorProcess::start_store(&address, &store);
    let options = format!("collector={address},exitwait=10s,interval=1ms");
    // Neither ends before both were live at the same time, and both burn the same CPU time.
    let end_file = directory.path().join("end-file");
    let run = |jdk: &Jdk, factor: u64, observes: bool| {
        let mut are_both_live = false;
        let workload =
            Workload::new("PlantedRegression").argument(4).argument(factor).argument(end_file.display());
        let finished = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && observes && !are_both_live && live_releases(&http) == [17, 25] {
                are_both_live = true;
                create_end_file(&end_file);
            }
        });
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        assert!(are_both_live || !observes);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(old, 1, true));
        scope.spawn(|| run(new, 3, false));
    });
    collector.stop();
    let store = store.display().to_string();
    let processes = tickwalk_json(&["query", "processes", &store]);
    let process_of = |major: u64| {
        let process = rows(&processes, "processes").iter().find(|process| process["jdk_major"] == major);
        process.expect("stored")["process"].as_str().expect("an id").to_owned()
    };
    let (before, after) = (format!("process={}", process_of(17)), format!("process={}", process_of(25)));
    let answer = tickwalk_json(&["diff", &store, "--before", &before, "--after", &after, "--json"]);
    let first = &rows(&answer, "methods")[0];
    assert_eq!(first["name"], "PlantedRegression.stageC", "{answer}");
}
