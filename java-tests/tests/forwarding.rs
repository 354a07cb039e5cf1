//! A collector forwards profiles to an independent receiver in Python, made of OpenTelemetry's definitions and Google's
//! gRPC.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use java_tests::collector::{CollectorProcess, tickwalk_json};
use java_tests::{Jdk, Workload, create_end_file, on_jdk_exclusively, on_jdks, python};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;

/// A running receiver, which prints what it received when it is stopped.
struct Receiver {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Receiver {
    /// Starts a receiver and waits until it accepts connections.
    fn start(port: u16, secrets: &[&Path]) -> Receiver {
        let mut command = python::reader("otlp_receiver");
        command.arg(port.to_string()).args(secrets).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        assert_eq!(line.trim(), format!("ready {port}"), "the receiver cannot listen");
        Receiver { child, stdout }
    }

    /// Stops the receiver and returns what it received.
    fn stop(mut self) -> Value {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("wait for the receiver").success(), "{text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Both fail if the receiver has ended, as it has unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Returns the CPU time by name that the store reports.
fn stored(store: &str, question: &str, name: &str, column: &str) -> BTreeMap<String, u64> {
    let answer = tickwalk_json(&["query", question, store, "--with", "limit=10000"]);
    let mut sums = BTreeMap::new();
    for row in answer[question].as_array().expect("rows") {
        let ns = row[column].as_u64().expect("a number");
        if ns > 0 {
            *sums.entry(row[name].as_str().expect("a name").to_owned()).or_default() += ns;
        }
    }
    sums
}

/// Returns the CPU time by name that the receiver reports.
fn received(report: &Value, table: &str) -> BTreeMap<String, u64> {
    let rows = report[table].as_object().expect("a table");
    rows.iter().map(|(name, ns)| (name.clone(), ns.as_u64().expect("a number"))).collect()
}

/// Returns the value of a metric, summed over its labels.
fn metric(metrics: &Value, family: &str, name: &str) -> f64 {
    let samples = metrics["metrics"][family]["samples"].as_array().cloned().unwrap_or_default();
    samples.iter().filter(|sample| sample[0] == name).filter_map(|sample| sample[2].as_f64()).sum()
}

on_jdks! { 11, 25;
    /// Over TLS, to a receiver that is down at first: in the end it has the same CPU times as the store, to the
    /// nanosecond, and nothing twice. The collector is stopped as soon as the JVM has ended, so it must flush what it
    /// holds.
    fn forwards_everything_once_over_tls(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        std::fs::write(&certificate, generated.cert.pem()).expect("written");
        std::fs::write(&key, generated.signing_key.serialize_pem()).expect("written");
        let port = free_port();
        let to = format!("https://localhost:{port}");
        let trusted = certificate.display().to_string();
        let address = format!("unix:{}", directory.path().join("socket").display());
        let store = directory.path().join("store");
        // All metrics are exported with a lake only.
        let lake = format!("file://{}", directory.path().join("lake").display());
        let arguments = [
            ["--forward", &to],
            ["--forward-ca", &trusted],
            ["--forward-header", "tenant=7"],
            ["--forward-every", "1s"],
            ["--lake", &lake],
        ]
        .concat();
        let (collector, http) = CollectorProcess::start_store_with(&address, &store, &arguments, &[]);
        let read_metrics = || python::read("metrics", &[&format!("{http}/metrics")]);
        let counter = |family: &str| metric(&read_metrics(), family, &format!("{family}_total"));
        let mut receiver = None;
        // The program runs until the first request has arrived.
        let end_file = directory.path().join("end-file");
        let options = format!("collector={address},exitwait=10s,interval=1ms");
        let workload = Workload::burner(4, &end_file);
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && receiver.is_none() && counter("tickwalk_forward_retries") > 0.0 {
                receiver = Some(Receiver::start(port, &[&certificate, &key]));
            }
            if receiver.is_some() && !end_file.exists() && counter("tickwalk_forwarded_requests") > 0.0 {
                create_end_file(&end_file);
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        let metrics = read_metrics();
        collector.stop();
        let report = receiver.expect("started").stop();
        let store = store.display().to_string();
        let threads = stored(&store, "threads", "thread", "cpu_ns");
        assert_eq!(received(&report, "threads"), threads);
        assert_eq!(received(&report, "leaves"), stored(&store, "methods", "name", "self_ns"));
        assert!(report["cpu_ns"].as_u64().is_some_and(|ns| ns > 3 * SECOND), "{report}");
        assert_eq!(report["repeated"], 0);
        assert_eq!(report["headers"]["tenant"], "7");
        assert_eq!(received(&report, "services").into_keys().collect::<Vec<_>>(), ["Burner"]);
        assert_metrics_are_documented(&metrics);
    }
}

/// Asserts that the collector exports the metrics that `docs/formats.md` describes, and no others.
fn assert_metrics_are_documented(metrics: &Value) {
    assert!(
        metrics["content_type"].as_str().is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4"))
    );
    let described = include_str!("../../docs/formats.md").split("### Metrics").nth(1).expect("a section");
    let described = described.split("###").next().expect("a section");
    let described: BTreeSet<&str> = described
        .split('`')
        .filter_map(|word| word.split('{').next())
        .filter(|word| word.starts_with("tickwalk_"))
        .collect();
    let mut exported = BTreeSet::new();
    for (name, family) in metrics["metrics"].as_object().expect("metrics") {
        if name.starts_with("process_") {
            continue;
        }
        // The parser removes the suffix of counters.
        exported.insert(if family["type"] == "counter" { format!("{name}_total") } else { name.clone() });
    }
    let exported: BTreeSet<&str> = exported.iter().map(String::as_str).collect();
    let optional = BTreeSet::from(["tickwalk_samples_lost_total", "tickwalk_query_duration_seconds"]);
    let missing: Vec<_> = described.difference(&exported).filter(|name| !optional.contains(**name)).collect();
    let surplus: Vec<_> = exported.difference(&described).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, not described {surplus:?}");
}

/// OpenTelemetry's environment variables have an effect only with `--forward env`.
#[test]
fn ignores_the_environment_by_default_alone_on_jdk17() {
    on_jdk_exclusively(17, |jdk: &Jdk| {
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
            let options = format!("collector={address},exitwait=10s");
            let run = Workload::new("Burner").argument(1).run_with_agent_watched(jdk, &options, |_| ());
            assert_eq!(run.exit_code(), 0, "{}", run.stderr);
            collector.stop();
            let report = receiver.stop();
            assert_eq!(report["requests"].as_u64().is_some_and(|requests| requests > 0), is_sent, "{report}");
            if is_sent {
                let store = store.display().to_string();
                assert_eq!(received(&report, "threads"), stored(&store, "threads", "thread", "cpu_ns"));
                assert_eq!(report["headers"]["tenant"], "of env");
            }
        }
    });
}
