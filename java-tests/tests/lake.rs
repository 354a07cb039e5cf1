//! A collector fills a lake, which Tickwalk, DuckDB, ClickHouse (chDB) and DataFusion read with equal results.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use java_tests::collector::{CollectorProcess, summary_of, tickwalk_json};
use java_tests::fleet::{Sessions, run_agents};
use java_tests::object_store::ObjectStore;
use java_tests::{
    TICK_NS, Truth, binaries, on_every_jdk, on_jdks, python, run, run_through_restart, span_tolerance_ns,
};
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

/// Runs `tickwalk` with these variables; returns its standard output.
fn output(variables: &[(&str, &str)], words: &[&str]) -> String {
    let mut command = Command::new(binaries::tickwalk());
    command.args(words).envs(variables.iter().copied());
    let finished = run(command, |_| ());
    assert_eq!(finished.exit_code(), 0, "{words:?}: {}", finished.stderr);
    finished.stdout
}

/// The server's certificate is its own, as that of a private cloud. Its files are the same lake in a directory.
#[test]
fn a_lake_is_read_over_s3_and_tls_like_a_directory() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| directory.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let objects = ObjectStore::start_tls(&path("objects"), &certificate, &key);
    let certificate = certificate.display().to_string();
    let mut variables = objects.environment("reader").to_vec();
    variables.push(("SSL_CERT_FILE", &certificate));
    let (url, files) = (objects.url(), format!("file://{}", objects.files().display()));
    let address = format!("unix:{}", path("socket").display());
    let store = path("store");
    let collector = CollectorProcess::start_store_with(&address, &store, &["--lake", &url], &variables).0;
    let sent = run_agents(&address, 4);
    collector.stop();
    let sessions: Vec<String> = sent.keys().take(2).map(|id| format!("process={id}")).collect();
    for (verb, options) in [
        (&["top"][..], &["--process", "shop/1"][..]),
        (&["query", "methods"], &["--with", "limit=10000"]),
        (&["export", "--format", "collapsed", "-o", "-"], &[]),
        (&["diff"], &["--before", &sessions[0], "--after", &sessions[1]]),
    ] {
        let of = |source: &str| output(&variables, &[verb, &[source], options].concat());
        let over_s3 = of(&url);
        assert!(over_s3.len() > 100, "{verb:?}: {over_s3}");
        assert_eq!(over_s3, of(&files), "{verb:?}");
    }
    let page = path("flame.html").display().to_string();
    output(&variables, &["flamegraph", "-o", &page, &url, "--process", "shop/1"]);
    assert!(std::fs::metadata(&page).expect("a page").len() > 10_000);
    let server = Server::start(&variables, &url);
    let ask = |source: &str| {
        let answer =
            output(&variables, &["query", "methods", source, "--with", "from=0", "--with", "limit=10000"]);
        methods(&serde_json::from_str(&answer).expect("JSON"))
    };
    assert_eq!(ask(&server.address), ask(&files));
}

/// A running `tickwalk serve`, which is killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(variables: &[(&str, &str)], source: &str) -> Server {
        let mut command = Command::new(binaries::tickwalk());
        command.args(["serve", "--http", "127.0.0.1:0", source]).envs(variables.iter().copied());
        let mut child =
            command.env("NO_COLOR", "1").stderr(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        let log = child.stderr.as_mut().expect("a piped stderr");
        BufReader::new(log).read_line(&mut line).expect("text");
        let address = line.split_whitespace().find(|word| word.starts_with("http://"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

on_jdks! { concurrent 11, 25;
    /// The collector is killed with SIGKILL, and the agent goes on with another one, which has another store: the
    /// account in the lake is that of the recording that the agent writes at the same time, to the nanosecond.
    fn a_session_that_moves_to_another_collector_keeps_its_account(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let in_directory = |name: &str| directory.path().join(name).display().to_string();
        let address = format!("unix:{}", in_directory("socket"));
        let (recording, url) = (in_directory("whole.tickwalk"), format!("file://{}", in_directory("lake")));
        let start = |store: &str| {
            let store = directory.path().join(store);
            CollectorProcess::start_store_with(&address, &store, &["--lake", &url], &[]).0
        };
        let stores = Cell::new(["first", "second"].iter());
        let next = || {
            let mut left = stores.take();
            let store = left.next().expect("two collectors");
            stores.set(left);
            start(store)
        };
        let destination = format!("{address},file={recording}");
        let run = run_through_restart(jdk, &destination, &directory.path().join("end-file"), next);
        // The journal has all messages that the collector acknowledged before SIGKILL.
        start("first").stop();
        let whole = summary_of(Path::new(&recording), &run.starvation);
        let answer = tickwalk_json(&["query", "statistics", &url]);
        let [process] = &answer["processes"].as_array().expect("rows")[..] else { panic!("{answer}") };
        let number = |name: &str| process[name].as_i64().expect("a number");
        assert_eq!((number("kernel_ns"), number("before_timer_ns")), (whole.cpu_ns.kernel, whole.cpu_ns.before_timer));
        let of_lake = methods(&tickwalk_json(&["query", "methods", &url, "--with", "limit=10000"]));
        assert_eq!(of_lake.values().map(|row| row[0].cast_signed()).sum::<i64>(), whole.cpu_ns.sampled);
        // Rows that both collectors received count twice in this line.
        let (sampled, unfinished) = (number("sampled_ns"), number("unfinished_ns"));
        assert!(sampled >= whole.cpu_ns.sampled && unfinished <= whole.cpu_ns.unfinished, "{process}");
        assert_eq!(process["lost_ns"].as_object().map(|lost| lost.contains_key("not_received")), Some(false));
    }
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
        // Engines have to read its folder's name, service=caf%C3%A9%20100%25%2Feu.
        let destination = format!("{address},service=caf\u{e9} 100%/eu");
        let run = run_through_restart(jdk, &destination, &directory.path().join("end-file"), start);
        let ask = |source: &str| methods(&tickwalk_json(&["query", "methods", source, "--with", "limit=10000"]));
        let of_store = ask(&store.display().to_string());
        assert_eq!(ask(&url), of_store);
        let sum: u64 = of_store.values().map(|row| row[0]).sum();
        let truth = Truth::parse(&run.stdout).method_cpu_ns("Burner.burn");
        assert!(sum + span_tolerance_ns(TICK_NS) >= truth, "{sum} of {truth}");
        let processes = tickwalk_json(&["query", "processes", &url]);
        let service = processes["processes"][0]["service"].as_str().expect("a process");
        assert_eq!(service, "caf\u{e9} 100%/eu");
        let (lake, command) = (lake.display().to_string(), binaries::tickwalk().display().to_string());
        let mut arguments = vec![lake.as_str(), service, &command, "duckdb"];
        for engine in ["clickhouse", "datafusion"] {
            if Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache").join(engine).is_dir() {
                arguments.push(engine);
            } else {
                eprintln!("{engine} is not tested: run java-tests/fetch --{engine}");
            }
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
