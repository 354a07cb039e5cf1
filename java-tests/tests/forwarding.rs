//! Handing on to a receiver that others made: OpenTelemetry's own definitions over Google's gRPC, in Python.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use java_tests::collector::CollectorProcess;
use java_tests::{Jdk, Workload, binaries, on_every_jdk, on_jdk_alone, python};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;

/// A running receiver; it says what it has got when it is ended.
struct Receiver {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Receiver {
    /// Starts one and waits until it takes connections.
    fn start(port: u16, secrets: &[&Path]) -> Receiver {
        let mut command = python::reader("otlp_receiver");
        command.arg(port.to_string()).args(secrets).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        assert_eq!(line.trim(), format!("ready {port}"), "the receiver cannot listen");
        Receiver { child, said }
    }

    fn end(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("a child of ours").success(), "{text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn ask(arguments: &[&str]) -> Value {
    let output = Command::new(binaries::tickwalk()).args(arguments).output().expect("tickwalk starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// CPU time by a name, as the store has it.
fn stored(store: &str, question: &str, name: &str, column: &str) -> BTreeMap<String, u64> {
    let answer = ask(&["query", question, store, "--with", "limit=10000"]);
    let mut sums = BTreeMap::new();
    for row in answer[question].as_array().expect("rows") {
        let ns = row[column].as_u64().expect("a number");
        if ns > 0 {
            *sums.entry(row[name].as_str().expect("a name").to_owned()).or_default() += ns;
        }
    }
    sums
}

fn received(got: &Value, table: &str) -> BTreeMap<String, u64> {
    let rows = got[table].as_object().expect("a table");
    rows.iter().map(|(name, ns)| (name.clone(), ns.as_u64().expect("a number"))).collect()
}

/// The value of a metric, summed over its labels.
fn metric(metrics: &Value, family: &str, name: &str) -> f64 {
    let samples = metrics["metrics"][family]["samples"].as_array().cloned().unwrap_or_default();
    samples.iter().filter(|sample| sample[0] == name).filter_map(|sample| sample[2].as_f64()).sum()
}

on_every_jdk! {
    /// Over TLS, to a receiver that is down at first: in the end it has what the store has, to the nanosecond, once.
    /// The collector is told to stop as soon as the JVM has ended, so what it still held was flushed.
    fn all_arrives_encrypted_at_a_receiver_that_was_down(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        let port = free_port();
        let to = format!("https://localhost:{port}");
        let trusted = certificate.display().to_string();
        let address = format!("unix:{}", directory.path().join("socket").display());
        let store = directory.path().join("store");
        let arguments = ["--forward", &to, "--forward-ca", &trusted, "--forward-header", "tenant=7", "--forward-every", "1s"];
        let (collector, http) = CollectorProcess::start_store_with(&address, &store, &arguments, &[]);
        let read_metrics = || python::read("metrics", &[&format!("{http}/metrics")]);
        let told = |family: &str| metric(&read_metrics(), family, &format!("{family}_total"));
        let mut receiver = None;
        // The program goes on until a first request has arrived.
        let enough = directory.path().join("enough");
        let options = format!("collector={address},interval=1ms");
        let workload = Workload::new("Killed").argument(4).argument(enough.display());
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && receiver.is_none() && told("tickwalk_forward_retries") > 0.0 {
                receiver = Some(Receiver::start(port, &[&certificate, &key]));
            }
            if receiver.is_some() && !enough.exists() && told("tickwalk_forwarded_requests") > 0.0 {
                std::fs::write(&enough, "").expect("a writable folder");
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        let metrics = read_metrics();
        collector.stop();
        let got = receiver.expect("started").end();
        let store = store.display().to_string();
        let threads = stored(&store, "threads", "thread", "cpu_ns");
        assert_eq!(received(&got, "threads"), threads);
        assert_eq!(received(&got, "leaves"), stored(&store, "methods", "name", "self_ns"));
        assert!(got["cpu_ns"].as_u64().is_some_and(|ns| ns > 3 * SECOND), "{got}");
        assert_eq!(got["repeated"], 0);
        assert_eq!(got["headers"]["tenant"], "7");
        assert_eq!(received(&got, "services").into_keys().collect::<Vec<_>>(), ["Killed"]);
        metrics_are_those_described(&metrics);
    }
}

/// Every metric that `collector/API.md` names is there, and none besides.
fn metrics_are_those_described(metrics: &Value) {
    assert!(
        metrics["content_type"].as_str().is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4"))
    );
    let described = include_str!("../../collector/API.md").split("### Metrics").nth(1).expect("a part");
    let described = described.split("###").next().expect("a part");
    let described: BTreeSet<&str> = described
        .split('`')
        .filter_map(|word| word.split('{').next())
        .filter(|word| word.starts_with("tickwalk_"))
        .collect();
    let mut there = BTreeSet::new();
    for (name, family) in metrics["metrics"].as_object().expect("metrics") {
        if name.starts_with("process_") {
            continue;
        }
        // The parser takes the ending off the names of counters.
        there.insert(if family["type"] == "counter" { format!("{name}_total") } else { name.clone() });
    }
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    let optional = BTreeSet::from(["tickwalk_samples_lost_total", "tickwalk_query_duration_seconds"]);
    let missing: Vec<_> = described.difference(&there).filter(|name| !optional.contains(**name)).collect();
    let surplus: Vec<_> = there.difference(&described).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, not described {surplus:?}");
}

/// Variables that other programs' exporters read send nothing anywhere, until somebody asks for them.
#[test]
fn the_environment_alone_sends_nothing() {
    on_jdk_alone(17, |jdk: &Jdk| {
        for (arguments, is_sent) in [(&[][..], false), (&["--forward", "env"][..], true)] {
            let directory = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let receiver = Receiver::start(port, &[]);
            let to = format!("http://127.0.0.1:{port}");
            let variables = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", to.as_str()),
                ("OTEL_EXPORTER_OTLP_HEADERS", "tenant=of%20env"),
            ];
            let address = format!("unix:{}", directory.path().join("socket").display());
            let store = directory.path().join("store");
            let (collector, _) = CollectorProcess::start_store_with(&address, &store, arguments, &variables);
            let options = format!("collector={address}");
            let run = Workload::new("Killed").argument(1).run_with_agent_watched(jdk, &options, |_| ());
            assert_eq!(run.exit_code(), 0, "{}", run.stderr);
            collector.stop();
            let got = receiver.end();
            assert_eq!(got["requests"].as_u64().is_some_and(|requests| requests > 0), is_sent, "{got}");
            if is_sent {
                let store = store.display().to_string();
                assert_eq!(received(&got, "threads"), stored(&store, "threads", "thread", "cpu_ns"));
                assert_eq!(got["headers"]["tenant"], "of env");
            }
        }
    });
}
