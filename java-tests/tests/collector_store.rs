//! A collector with a store: several JVMs at once, a change that is found, a crash survived.

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use java_tests::collector::CollectorProcess;
use java_tests::{Jdk, Workload, binaries, on_every_jdk, on_jdk};
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

fn address(directory: &Path) -> String {
    format!("unix:{}", directory.join("socket").display())
}

on_every_jdk! {
    /// Killed with SIGKILL in the middle of a run and started anew on the same store: the agent repeats what was not
    /// acknowledged, and in the end the store has all that the agent's account says, once.
    fn killed_and_restarted(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = address(directory.path());
        let store = directory.path().join("store");
        let mut collector = Some(CollectorProcess::start_store(&address, &store).0);
        let (mut killed, mut restarted) = (false, false);
        let options = format!("collector={address},interval=1ms");
        let run = Workload::new("Killed").argument(5).run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && !killed {
                collector.take().expect("running").crash();
                killed = true;
            }
            if cpu_ns > 2 * SECOND && !restarted {
                collector = Some(CollectorProcess::start_store(&address, &store).0);
                restarted = true;
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(killed && restarted);
        collector.expect("restarted").stop();
        let store = store.display().to_string();
        let answer = ask(&["query", "statistics", &store]);
        let [process] = rows(&answer, "processes") else { panic!("not one process: {answer}") };
        assert_eq!(process["state"], "ended", "{process}");
        assert_eq!((&process["missing_messages"], &process["unknown_samples"]), (&0.into(), &0.into()), "{process}");
        let number = |name: &str| process[name].as_u64().expect("a number");
        assert_eq!(number("kernel_ns"), number("sampled_ns") + number("unfinished_ns"), "{process}");
        assert!(number("sampled_ns") > 49 * SECOND / 10, "{process}");
        let threads = ask(&["query", "threads", &store, "--with", "limit=1000"]);
        let sum: u64 = rows(&threads, "threads").iter().filter_map(|row| row["cpu_ns"].as_u64()).sum();
        assert_eq!(sum, number("sampled_ns"));
    }
}

/// Two JVMs of different versions stream at once, and both are live. The second has a planted regression in one of
/// five equal stages, which is the greatest change between the two.
#[test]
fn a_planted_regression_is_found_between_two_live_jvms() {
    on_jdk(17, |old: &Jdk| on_jdk(25, |new: &Jdk| find_planted(old, new)));
}

fn find_planted(old: &Jdk, new: &Jdk) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let address = address(directory.path());
    let store = directory.path().join("store");
    let (collector, http) = CollectorProcess::start_store(&address, &store);
    let options = format!("collector={address},interval=1ms");
    // Both hold still for a moment in their middle, while one of them asks.
    let middle = Barrier::new(2);
    let run = |jdk: &Jdk, factor: u64, asks: bool| {
        let mut is_past = false;
        let workload = Workload::new("PlantedRegression").argument(4).argument(factor);
        let finished = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > 2 * SECOND && !is_past {
                is_past = true;
                middle.wait();
                if asks {
                    let answer = ask(&["query", "processes", &http]);
                    let mut live: Vec<u64> = rows(&answer, "processes")
                        .iter()
                        .filter(|process| process["state"] == "live" && process["samples"].as_u64() > Some(0))
                        .filter_map(|process| process["jdk_major"].as_u64())
                        .collect();
                    live.sort_unstable();
                    assert_eq!(live, [17, 25], "{answer}");
                }
                middle.wait();
            }
        });
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        assert!(is_past);
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
