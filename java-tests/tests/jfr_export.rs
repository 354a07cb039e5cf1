//! The JDK's `jfr` tool reads what `tickwalk export` writes, with every sample and all CPU time.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use java_tests::{CARRIER_CLOCK_OPTION, Jdk, Workload, on_every_jdk, on_jdks};

/// Runs the JDK's `jfr` and returns its standard output. C2 is off: the tool ends before optimised code pays off.
fn jfr(jdk: &Jdk, arguments: &[&str], file: &Path) -> String {
    let tool = jdk.java().with_file_name("jfr");
    let output = Command::new(&tool)
        .arg("-J-XX:TieredStopAtLevel=1")
        .args(arguments)
        .arg(file)
        .output()
        .expect("jfr starts");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", tool.display());
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the number after `label` in `text`.
fn number_after(text: &str, label: &str) -> u64 {
    let (_, rest) = text.split_once(label).unwrap_or_else(|| panic!("no {label} in {text}"));
    let digits: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().unwrap_or_else(|error| panic!("{label}{rest}: {error}"))
}

/// Returns the samples of each method in the table of a view: `Lambdas.burn(long)   123   45.60%`. Names of C++
/// functions may contain parentheses and numbers.
fn samples_by_method(view: &str) -> HashMap<String, u64> {
    let mut samples = HashMap::new();
    for line in view.lines() {
        let Some((name, _)) = line.split_once('(') else { continue };
        let number = line.split_whitespace().rev().nth(1);
        let number = number.and_then(|number| number.replace(',', "").parse::<u64>().ok());
        *samples.entry(name.trim().to_owned()).or_default() += number.unwrap_or_default();
    }
    samples
}

/// Parses a duration such as `PT0.012S` to nanoseconds; sampling periods are below a minute.
fn nanoseconds(duration: &str) -> u64 {
    let seconds = duration.strip_prefix("PT").and_then(|text| text.strip_suffix('S')).expect("seconds");
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    format!("{whole}{part:0<9}").parse().expect("digits")
}

on_every_jdk! { concurrent;
    fn exports_every_sample_and_all_cpu_time(jdk) {
        let run = Workload::new("Lambdas").argument(0.5).record(jdk);
        run.assert_exit_code(0);
        let file = run.recording.with_extension("jfr");
        run.tickwalk(&["export", "--cpu-time-samples", "-o", file.to_str().expect("text")]);
        let summary = run.summary();

        assert_eq!(number_after(&jfr(jdk, &["summary"], &file), "jdk.CPUTimeSample "), summary.samples);
        let print = ["print", "--json", "--stack-depth", "64", "--events", "CPUTimeSample"];
        let printed: serde_json::Value = serde_json::from_str(&jfr(jdk, &print, &file)).expect("JSON");
        let events = printed["recording"]["events"].as_array().expect("events");
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        let periods = events.iter().map(|event| nanoseconds(&text(&event["values"]["samplingPeriod"])));
        assert_eq!(periods.sum::<u64>() as i64, summary.cpu_ns.sampled);

        // Only names with a dot are Java methods, whose class can be compared.
        let hottest = run.stacks().hot_methods().into_iter().find(|method| method.name.contains('.'));
        let hottest = hottest.expect("methods");
        let own_ns: u64 = events
            .iter()
            .map(|event| &event["values"])
            .filter(|values| {
                let method = &values["stackTrace"]["frames"][0]["method"];
                let class = text(&method["type"]["name"]).replace('/', ".");
                format!("{class}.{}", text(&method["name"])) == hottest.name
            })
            .map(|values| nanoseconds(&text(&values["samplingPeriod"])))
            .sum();
        assert_eq!(own_ns, hottest.self_ns, "{}", hottest.name);
    }
}

on_jdks! {
    concurrent 21, 25;
    /// Events of virtual threads have the thread's name, id and kind.
    fn virtual_threads(jdk) {
        let run = Workload::new("VirtualIdentity").argument(0.1).jvm_option(CARRIER_CLOCK_OPTION).record(jdk);
        run.assert_exit_code(0);
        let file = run.recording.with_extension("jfr");
        run.tickwalk(&["export", "--cpu-time-samples", "-o", file.to_str().expect("text")]);
        let print = ["print", "--json", "--events", "CPUTimeSample"];
        let printed: serde_json::Value = serde_json::from_str(&jfr(jdk, &print, &file)).expect("JSON");
        let events = printed["recording"]["events"].as_array().expect("events");
        for thread in &run.summary().virtual_threads {
            let of_thread = events.iter().map(|event| &event["values"]).filter(|values| {
                values["eventThread"]["javaThreadId"].as_u64() == Some(thread.java_id)
            });
            let mut sampled_ns = 0;
            for values in of_thread {
                let event_thread = &values["eventThread"];
                assert_eq!(event_thread["javaName"].as_str(), Some(&*thread.name));
                assert_eq!(event_thread["virtual"], true);
                sampled_ns += nanoseconds(values["samplingPeriod"].as_str().expect("text"));
            }
            assert_eq!(sampled_ns, thread.sampled_ns, "{thread:?}");
        }
    }
}

on_jdks! {
    concurrent 25;
    /// The views of JDK 25 for CPU-time samples.
    fn views_for_cpu_time(jdk) {
        let run = Workload::new("Lambdas").argument(0.5).record(jdk);
        run.assert_exit_code(0);
        let file = run.recording.with_extension("jfr");
        run.tickwalk(&["export", "--cpu-time-samples", "-o", file.to_str().expect("text")]);
        let statistics = jfr(jdk, &["view", "cpu-time-statistics"], &file);
        assert_eq!(number_after(&statistics, "Total Samples:"), run.summary().samples);
        let hot = jfr(jdk, &["view", "--width", "200", "cpu-time-hot-methods"], &file);
        assert!(hot.contains("Lambdas."), "{hot}");
    }
}

on_jdks! {
    21, 25;
    /// By default each sample is one event of the kind that every tool reads.
    fn views_of_execution_samples(jdk) {
        let run = Workload::new("Lambdas").argument(0.5).record(jdk);
        run.assert_exit_code(0);
        let file = run.recording.with_extension("jfr");
        run.tickwalk(&["export", "-o", file.to_str().expect("text")]);
        let hot = jfr(jdk, &["view", "--width", "200", "hot-methods"], &file);
        assert!(hot.contains("Lambdas."), "{hot}");
        let samples = samples_by_method(&hot);
        let ours = run.tickwalk(&["view", "hot-methods", "--limit", "10"]);
        // The first row is the hottest method, which has most samples in the view of jfr as well.
        let first = ours.lines().find(|line| line.contains(" % "));
        let hottest = first.and_then(|row| samples.get(row.split_whitespace().last()?));
        assert!(hottest.is_some() && hottest == samples.values().max(), "{ours}\n{hot}");
        let summary = jfr(jdk, &["summary"], &file);
        assert_eq!(number_after(&summary, "jdk.ExecutionSample "), run.summary().samples);
        assert_eq!(number_after(&summary, "jdk.CPUTimeSample "), 0);
    }
}

on_jdks! { 25;
    /// Events of wall time have the state of their thread, as the `jfr` tool reads it.
    fn states_of_wall_time(jdk) {
        let run = Workload::new("WallTime").argument(2).record_option("--mode=wall").record(jdk);
        run.assert_exit_code(0);
        let file = run.recording.with_extension("jfr");
        run.tickwalk(&["export", "-o", file.to_str().expect("text")]);
        let print = ["print", "--json", "--stack-depth", "1", "--events", "ExecutionSample"];
        let printed: serde_json::Value = serde_json::from_str(&jfr(jdk, &print, &file)).expect("JSON");
        let mut events: HashMap<(String, String), usize> = HashMap::new();
        for event in printed["recording"]["events"].as_array().expect("events") {
            let values = &event["values"];
            let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
            let key = (text(&values["sampledThread"]["javaName"]), text(&values["state"]));
            *events.entry(key).or_default() += 1;
        }
        for (thread, own, other) in [
            ("burner", "STATE_RUNNABLE", "STATE_SLEEPING"),
            ("sleeper", "STATE_SLEEPING", "STATE_RUNNABLE"),
        ] {
            let [own, other] = [own, other].map(|state| {
                events.get(&(thread.to_owned(), state.to_owned())).copied().unwrap_or_default()
            });
            // A sample every 10 ms yields some 200; the other state can be that of the thread's first and last ones.
            assert!(own >= 20 && own > 4 * other, "{thread}: {own} events of its state, {other} of the other: {events:?}");
        }
    }
}
