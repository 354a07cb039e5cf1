//! A collector fills a lake in a directory, which Tickwalk, DuckDB and ClickHouse (chDB) read with equal results.

use std::collections::BTreeMap;
use std::path::Path;

use java_tests::collector::{CollectorProcess, tickwalk_json};
use java_tests::{TICK_NS, Truth, on_every_jdk, python, run_through_restart, span_tolerance_ns};
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

on_every_jdk! { concurrent;
    /// The collector is killed with SIGKILL during the run and started again: the lake has what the store has, and SQL
    /// engines find the same methods with the same times, to the nanosecond.
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
        let sql = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/lake/sql").display().to_string();
        let lake = lake.display().to_string();
        let clickhouse = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/clickhouse");
        let packages = clickhouse.display().to_string();
        let mut arguments = vec![lake.as_str(), &sql, service];
        if clickhouse.is_dir() {
            arguments.push(&packages);
        } else {
            eprintln!("ClickHouse is not tested: run java-tests/fetch --clickhouse");
        }
        let answers = python::read("lake_sql", &arguments);
        assert!(answers["duckdb"].is_object());
        for (engine, rows) in answers.as_object().expect("engines") {
            let rows = rows.as_object().expect("rows").iter();
            let rows: BTreeMap<String, [u64; 3]> = rows
                .map(|(name, numbers)| (name.clone(), serde_json::from_value(numbers.clone()).expect("numbers")))
                .collect();
            assert_eq!(rows, of_store, "{engine}");
        }
    }
}
