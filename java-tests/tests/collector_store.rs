//! A collector with a store: several JVMs at once, a change that is found, a crash survived.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Barrier, Mutex};

use java_tests::collector::{CollectorProcess, summary_of};
use java_tests::{
    Finished, Jdk, TICK_NS, Truth, Workload, binaries, on_every_jdk, on_jdk, on_jdk_alone, on_jdks,
    stretch_tolerance_ns,
};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;

/// What `tickwalk` prints as JSON.
fn ask(arguments: &[&str]) -> Value {
    let output = Command::new(binaries::tickwalk()).args(arguments).output().expect("tickwalk starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tickwalk {arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rows<'v>(answer: &'v Value, name: &str) -> &'v [Value] {
    answer[name].as_array().expect("rows")
}

/// Asserts that what the workload burnt until it ended is among `told_ns`.
#[track_caller]
fn assert_all_is_told(run: &Finished, told_ns: u64) {
    let truth = Truth::parse(&run.stdout).method_cpu_ns("Killed.burn");
    assert!(told_ns + stretch_tolerance_ns(TICK_NS) >= truth, "{told_ns} of {truth}");
}

/// Lets a workload end that waits for this file.
fn create(enough: &Path) {
    std::fs::write(enough, "").expect("a writable folder");
}

fn address(directory: &Path) -> String {
    format!("unix:{}", directory.join("socket").display())
}

on_every_jdk! {
    /// Killed with SIGKILL in the middle of a run and started anew on the same store: the agent repeats what was not
    /// acknowledged, and in the end the store has all that the agent's account says, once. The program goes on until the
    /// agent is back; queues are for seconds, for how late the sampler may be is another test's business.
    fn killed_and_restarted(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = address(directory.path());
        let store = directory.path().join("store");
        let mut collector = Some(CollectorProcess::start_store(&address, &store).0);
        let enough = directory.path().join("enough");
        let mut outage_began = None;
        let options = format!("collector={address},interval=1ms,debug=queue:2048");
        let workload = Workload::new("Killed").argument(4).argument(enough.display());
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match (&collector, outage_began) {
            (Some(first), None) if cpu_ns > SECOND && first.sessions() > 0 => {
                collector.take().expect("running").crash();
                outage_began = Some(cpu_ns);
            }
            (None, Some(began)) if cpu_ns > began + SECOND => {
                collector = Some(CollectorProcess::start_store(&address, &store).0);
            }
            (Some(second), Some(_)) if second.sessions() > 0 => create(&enough),
            _ => {}
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        collector.expect("restarted").stop();
        let store = store.display().to_string();
        let answer = ask(&["query", "statistics", &store]);
        let [process] = rows(&answer, "processes") else { panic!("not one process: {answer}") };
        assert_eq!(process["state"], "ended", "{process}");
        assert_eq!((&process["missing_messages"], &process["unknown_samples"]), (&0.into(), &0.into()), "{process}");
        let number = |name: &str| process[name].as_u64().expect("a number");
        assert_eq!(number("kernel_ns"), number("sampled_ns") + number("unfinished_ns"), "{process}");
        assert_all_is_told(&run, number("sampled_ns"));
        let threads = ask(&["query", "threads", &store, "--with", "limit=1000"]);
        let sum: u64 = rows(&threads, "threads").iter().filter_map(|row| row["cpu_ns"].as_u64()).sum();
        assert_eq!(sum, number("sampled_ns"));
    }
}

/// Two JVMs of different versions, one collector killed with SIGKILL under both of them. In the end each of their
/// threads has in the store, to the nanosecond, what its own agent's account says, which that agent also wrote to a file.
#[test]
fn a_killed_collector_has_each_thread_of_two_jvms_whole() {
    on_jdk_alone(17, |old: &Jdk| on_jdk(25, |new: &Jdk| whole_threads([old, new])));
}

fn whole_threads(jdks: [&Jdk; 2]) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let address = address(directory.path());
    let store = directory.path().join("store");
    let recordings = &[17, 25].map(|feature| directory.path().join(format!("{feature}.tickwalk")));
    let collector = Mutex::new(Some(CollectorProcess::start_store(&address, &store).0));
    let enough = directory.path().join("enough");
    // Both are connected and past their first second before the collector dies, go on for a second before it is back,
    // and until they are back as well.
    let (deaths, births) = (Barrier::new(2), Barrier::new(2));
    let are_connected =
        || collector.lock().expect("no panic").as_ref().is_some_and(|now| now.sessions() == 2);
    let run = |jdk: &Jdk, recording: &Path| {
        let (mut outage_began, mut saw_birth) = (None, false);
        let options =
            format!("collector={address},file={},interval=1ms,debug=queue:2048", recording.display());
        let workload = Workload::new("Killed").argument(4).argument(enough.display());
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match outage_began {
            None if cpu_ns > SECOND && are_connected() => {
                outage_began = Some(cpu_ns);
                if deaths.wait().is_leader() {
                    collector.lock().expect("no panic").take().expect("running").crash();
                }
            }
            Some(began) if cpu_ns > began + SECOND && !saw_birth => {
                saw_birth = true;
                if births.wait().is_leader() {
                    let started = CollectorProcess::start_store(&address, &store).0;
                    *collector.lock().expect("no panic") = Some(started);
                }
            }
            Some(_) if saw_birth && are_connected() => create(&enough),
            _ => {}
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(saw_birth);
        run
    };
    let run = &run;
    let runs = std::thread::scope(|scope| {
        let [old, new] = [0, 1].map(|n| scope.spawn(move || run(jdks[n], &recordings[n])));
        [old, new].map(|run| run.join().expect("no panic"))
    });
    collector.into_inner().expect("no panic").expect("restarted").stop();
    let store = store.display().to_string();
    let answer = ask(&["query", "statistics", &store]);
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
        let account = summary_of(&recordings[newer], &runs[newer].starved);
        assert!(account.complete, "{:?}", account.cpu_ns);
        let id = format!("process={}", process["process"].as_str().expect("an id"));
        let answer = ask(&["query", "threads", &store, "--with", "limit=1000", "--with", &id]);
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
        assert!(accounted.len() > 1, "main and at least one thread of the VM: {accounted:?}");
        let lost: i64 = account.threads.iter().map(|thread| thread.lost_ns).sum();
        let sampled: i64 = accounted.iter().map(|(_, cpu_ns)| cpu_ns).sum();
        assert_all_is_told(&runs[usize::from(feature == 25)], (sampled + lost).cast_unsigned());
    }
}

on_jdks! { 17, 25;
    /// The disk of the store fills up in the middle of a run and has space again before its end: the collector says so
    /// in one line, the agent merges what waits, and in the end nothing is missing.
    fn full_disk(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = address(directory.path());
        let disk = directory.path().join("disk");
        std::fs::create_dir(&disk).expect("a folder to mount on");
        let small = CollectorProcess::start_store_on_small_disk(&address, &disk, 16 << 20);
        let Some((collector, http)) = small else {
            eprintln!("skipped: no mounts in a namespace of its own here");
            return;
        };
        let filler = collector.sees(&disk).join("filler");
        let (mut filled, mut emptied) = (false, false);
        let options = format!("collector={address},interval=1ms,window=16k");
        let full_lines = || {
            let said = collector.said();
            let lines = said.lines().filter(|line| line.contains("the disk of the store is full"));
            lines.filter(|line| line.contains("agents keep their data")).count()
        };
        let is_writable_again = || collector.said().contains("the store can be written again");
        let enough = directory.path().join("enough");
        // The store's file has pages to spare, so its end is met some time after the disk's; and the agent comes back some
        // time after there is room again. The program goes on for as long.
        let workload = Workload::new("Killed").argument(5).argument(enough.display());
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && !filled && collector.sessions() > 0 {
                filled = true;
                fill(&filler);
            }
            if cpu_ns > 4 * SECOND && !emptied && full_lines() > 0 {
                emptied = true;
                std::fs::remove_file(&filler).expect("it was there");
            }
            if emptied && is_writable_again() {
                create(&enough);
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(filled && emptied, "{}", collector.said());
        assert_eq!(full_lines(), 1, "one clear line: {}", collector.said());
        assert!(run.stderr.contains("samples are kept"), "{}", run.stderr);
        assert!(is_writable_again(), "{}", collector.said());
        let answer = ask(&["query", "statistics", &http]);
        let [process] = rows(&answer, "processes") else { panic!("not one process: {answer}") };
        assert_eq!(process["state"], "ended", "{process}");
        assert_eq!((&process["missing_messages"], &process["unknown_samples"]), (&0.into(), &0.into()), "{process}");
        let number = |name: &str| process[name].as_u64().expect("a number");
        // Where the sampler thread gets no processor, queues may fill; what was sampled must all have arrived.
        let lost: u64 = process["lost_ns"].as_object().expect("causes").values().filter_map(Value::as_u64).sum();
        let told = number("sampled_ns") + lost;
        assert_eq!(number("kernel_ns"), told + number("unfinished_ns"), "{process}");
        assert_eq!(number("requests"), number("samples"), "{process}");
        assert_all_is_told(&run, told);
        collector.stop();
    }
}

/// Takes all the space there is.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file on the small disk");
    let mut block = vec![0; 1 << 20];
    // The last bytes go one page at a time.
    while !block.is_empty() {
        if let Err(error) = file.write_all(&block) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            block.truncate(if block.len() > 4096 { 4096 } else { 0 });
        }
    }
}

/// Two JVMs of different versions stream at once, and both are live. The second has a planted regression in one of
/// five equal stages, which is the greatest change between the two.
#[test]
fn a_planted_regression_is_found_between_two_live_jvms() {
    on_jdk_alone(17, |old: &Jdk| on_jdk(25, |new: &Jdk| find_planted(old, new)));
}

/// Releases of the processes that are live and have samples.
fn live(http: &str) -> Vec<u64> {
    let answer = ask(&["query", "processes", http]);
    let processes = rows(&answer, "processes").iter();
    let live =
        processes.filter(|process| process["state"] == "live" && process["samples"].as_u64() > Some(0));
    let mut live: Vec<u64> = live.filter_map(|process| process["jdk_major"].as_u64()).collect();
    live.sort_unstable();
    live
}

fn find_planted(old: &Jdk, new: &Jdk) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let address = address(directory.path());
    let store = directory.path().join("store");
    let (collector, http) = CollectorProcess::start_store(&address, &store);
    let options = format!("collector={address},interval=1ms");
    // Neither ends before one of them has seen both live, and both burn the same.
    let enough = directory.path().join("enough");
    let run = |jdk: &Jdk, factor: u64, asks: bool| {
        let mut is_seen = false;
        let workload =
            Workload::new("PlantedRegression").argument(4).argument(factor).argument(enough.display());
        let finished = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && asks && !is_seen && live(&http) == [17, 25] {
                is_seen = true;
                create(&enough);
            }
        });
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        assert!(is_seen || !asks);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(old, 1, true));
        scope.spawn(|| run(new, 3, false));
    });
    collector.stop();
    let store = store.display().to_string();
    let processes = ask(&["query", "processes", &store]);
    let process_of = |major: u64| {
        let process = rows(&processes, "processes").iter().find(|process| process["jdk_major"] == major);
        process.expect("stored")["process"].as_str().expect("an id").to_owned()
    };
    let (before, after) = (format!("process={}", process_of(17)), format!("process={}", process_of(25)));
    let answer = ask(&["diff", &store, "--before", &before, "--after", &after, "--json"]);
    let first = &rows(&answer, "methods")[0];
    assert_eq!(first["name"], "PlantedRegression.stageC", "{answer}");
}
