//! A collector fills a lake, which Tickwalk, DuckDB and ClickHouse (chDB) read with equal results.

use std::collections::BTreeMap;
use std::path::Path;

use java_tests::collector::{CollectorProcess, tickwalk_json};
use java_tests::fleet::{Sessions, run_agents};
use java_tests::object_store::ObjectStore;
use java_tests::{TICK_NS, Truth, binaries, on_every_jdk, python, run_through_restart, span_tolerance_ns};
use serde_json::Value;

/// Self time, total time and own samples by method.
fn methods(answer: &Value) -> BTreeMap<String, [u64; 3]> {
    let number = |row: &Value, name: &str| row[name].as_u64().expect("a number");
    let columns = ["self_ns", "total_ns", "self_samples"];
    let rows = answer["methods"].as_array().expect("rows");
    rows.iter()
        .map(|row| {
            (row["name"].as_str().expect("a name").to_owned(), columns.map(|column| number(row, column)))
        })
        .collect()
}

/// Returns the folder of the SQL that ships.
fn sql() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/lake/sql").display().to_string()
}

/// Each fault is there while a collector receives, seals and ends; the last one goes away while it runs.
#[test]
fn object_storage_that_fails_loses_and_doubles_nothing() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut objects = ObjectStore::start(&directory.path().join("objects"));
    let address = format!("unix:{}", directory.path().join("socket").display());
    let (store, url) = (directory.path().join("store"), objects.url());
    let start = |objects: &ObjectStore| {
        let environment = objects.environment("collector");
        CollectorProcess::start_store_with(&address, &store, &["--lake", &url], &environment).0
    };
    let mut sent = Sessions::new();
    for fault in ["slow", "unavailable", "full", "cut"] {
        objects.fail("collector", fault);
        let collector = start(&objects);
        sent.extend(run_agents(&address, 4));
        collector.stop();
    }
    let collector = start(&objects);
    collector.wait_for_log("the lake cannot be written");
    objects.fail("collector", "none");
    collector.wait_for_log("the lake can be written again");
    collector.stop();
    let lake = python::read("lake_sessions", &[&objects.files().display().to_string(), &sql()]);
    let found: Sessions = serde_json::from_value(lake["sessions"].clone()).expect("sessions");
    assert!(sent.len() == 16 && sent.values().all(|[cpu_ns, _]| *cpu_ns > 0), "{sent:?}");
    assert_eq!(found, sent);
    let accounts = sent.iter().map(|(session, [cpu_ns, _])| (session.clone(), (*cpu_ns).into())).collect();
    assert_eq!(lake["accounts"], Value::Object(accounts));
    assert_eq!(lake["doubled"], 0, "one collector receives no message twice");
}

on_every_jdk! { concurrent;
    /// The collector is killed with SIGKILL during the run and started again: the lake has what the store has, and SQL
    /// engines give the same answers to ten questions, to the nanosecond.
    fn tickwalk_and_sql_engines_agree_on_a_lake(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let (store, lake) = (directory.path().join("store"), directory.path().join("lake"));
        let url = format!("file://{}", lake.display());
        let start = || CollectorProcess::start_store_with(&address, &store, &["--lake", &url], &[]).0;
        let run = run_through_restart(jdk, &address, &directory.path().join("end-file"), start);
        let ask = |source: &str| methods(&tickwalk_json(&["query", "methods", source, "--with", "limit=10000"]));
        let of_store = ask(&store.display().to_string());
        assert_eq!(ask(&url), of_store);
        let sum: u64 = of_store.values().map(|row| row[0]).sum();
        let truth = Truth::parse(&run.stdout).method_cpu_ns("Burner.burn");
        assert!(sum + span_tolerance_ns(TICK_NS) >= truth, "{sum} of {truth}");
        let processes = tickwalk_json(&["query", "processes", &url]);
        let service = processes["processes"][0]["service"].as_str().expect("a process");
        let (lake, command) = (lake.display().to_string(), binaries::tickwalk().display().to_string());
        let mut arguments = vec![lake.as_str(), service, &command, "duckdb"];
        if Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/clickhouse").is_dir() {
            arguments.push("clickhouse");
        } else {
            eprintln!("ClickHouse is not tested: run java-tests/fetch --clickhouse");
        }
        let answers = python::read("lake_sql", &arguments);
        let own = answers["tickwalk"].as_object().expect("answers");
        assert_eq!((own.len(), own["hot methods"].as_array().map(Vec::len)), (10, Some(of_store.len())));
        for engine in &arguments[3..] {
            for (question, rows) in own {
                assert!(rows.as_array().is_some_and(|rows| !rows.is_empty()), "{question}");
                assert_eq!(&answers[*engine][question], rows, "{engine}, {question}");
            }
        }
        for (panel, rows) in answers["dashboard"].as_object().into_iter().flatten() {
            assert!(rows.as_array().is_some_and(|rows| !rows.is_empty()), "{panel}");
        }
        // Level, CPU time, and label of the root of the dashboard's flame graph.
        let root = &answers["dashboard"]["Flame graph of $service"][0];
        assert!(root.is_null() || (&root[0], &root[1], &root[3]) == (&0.into(), &sum.into(), &"all".into()), "{root}");
    }
}
