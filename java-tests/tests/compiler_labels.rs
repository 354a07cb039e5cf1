//! The label of a compiler thread names the method that was compiled, by the VM's own log of compilations.

use std::collections::HashMap;
use std::path::Path;

use java_tests::{Workload, on_every_jdk};
use serde_json::Value;

/// A compilation by the log; times in milliseconds since the epoch.
struct Task {
    method: String,
    begin_ms: f64,
    end_ms: f64,
}

/// Difference of times that counts as none, in milliseconds: each of three is rounded to one.
const ROUNDING_MS: f64 = 3.0;

/// Returns the value of an attribute of an element of the log.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    element.split_once(&format!(" {name}='"))?.1.split_once('\'').map(|(value, _)| value)
}

/// Returns the compilations of each thread.
fn logged(path: &Path) -> HashMap<String, Vec<Task>> {
    // The log has parts of other threads' texts that are no UTF-8.
    let log = String::from_utf8_lossy(&std::fs::read(path).expect("a log of compilations")).into_owned();
    let start_ms: f64 = attribute(&log, "time_ms").and_then(|ms| ms.parse().ok()).expect("time of the start");
    let stamp = |element: &str| {
        attribute(element, "stamp")?.parse::<f64>().ok().map(|seconds| start_ms + seconds * 1e3)
    };
    let (mut tasks, mut thread) = (HashMap::<String, Vec<Task>>::new(), String::new());
    for line in log.lines() {
        if line.starts_with("<compilation_log ") {
            attribute(line, "thread").expect("a thread").clone_into(&mut thread);
        } else if line.starts_with("<task ")
            && let (Some(method), Some(begin_ms)) = (attribute(line, "method"), stamp(line))
        {
            // Class, name and descriptor.
            let words: Vec<&str> = method.split(' ').collect();
            let name = words[1].replace("&lt;", "<").replace("&gt;", ">");
            let task = Task { method: format!("{}.{name}", words[0]), begin_ms, end_ms: f64::INFINITY };
            tasks.entry(thread.clone()).or_default().push(task);
        } else if line.starts_with("<task_done ")
            && let (Some(task), Some(end_ms)) =
                (tasks.get_mut(&thread).and_then(|tasks| tasks.last_mut()), stamp(line))
        {
            task.end_ms = end_ms;
        }
    }
    tasks
}

/// Returns thread, time in milliseconds since the epoch and label of each sample that has a label.
fn labelled(profile: &Value) -> Vec<(String, f64, String)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let start_ms = profile["meta"]["startTime"].as_f64().expect("a time");
    let mut found = Vec::new();
    for thread in list(&profile["threads"]) {
        let index = |table: &Value, at: usize| table[at].as_u64().map(|index| index as usize);
        let (samples, stacks) = (&thread["samples"], &thread["stackTable"]);
        let label = |stack: usize| {
            let name = index(&thread["frameTable"]["func"], index(&stacks["frame"], stack)?)?;
            let name = thread["stringArray"][index(&thread["funcTable"]["name"], name)?].as_str()?;
            name.strip_prefix("[compiling] ").map(str::to_owned)
        };
        let mut time_ms = start_ms;
        for (sample, delta) in list(&samples["timeDeltas"]).iter().enumerate() {
            time_ms += delta.as_f64().expect("a number");
            let frames = std::iter::successors(index(&samples["stack"], sample), |&stack| {
                index(&stacks["prefix"], stack)
            });
            if samples["weight"][sample].as_u64() != Some(0)
                && let Some(label) = frames.filter_map(label).next()
            {
                found.push((thread["tid"].as_str().expect("a tid").to_owned(), time_ms, label));
            }
        }
    }
    found
}

on_every_jdk! {
    /// Nearly all compilations are shorter than the time between two drains, so most samples have no label.
    fn labels_agree_with_the_log_of_the_vm(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = folder.path().join("compilations.log");
        // Everything is compiled at its first call, so the labels come early.
        let run = Workload::new("Lambdas")
            .argument(0.5)
            .jvm_option("-Xcomp")
            // C2 takes long enough for some labels.
            .jvm_option("-XX:-TieredCompilation")
            .jvm_option("-XX:+UnlockDiagnosticVMOptions")
            .jvm_option("-XX:+LogCompilation")
            .jvm_option(&format!("-XX:LogFile={}", log.display()))
            .record_option("--interval=4ms")
            .record(jdk);
        run.assert_exit_code(0);
        let tasks = logged(&log);
        let profile = serde_json::from_str(&run.tickwalk(&["export", "--format", "firefox"])).expect("JSON");
        let labelled = labelled(&profile);
        let is_right = |(tid, time_ms, label): &&(String, f64, String)| {
            tasks.get(tid).is_some_and(|tasks| {
                tasks.iter().any(|task| {
                    task.begin_ms - ROUNDING_MS <= *time_ms && *time_ms <= task.end_ms + ROUNDING_MS && task.method == *label
                })
            })
        };
        let wrong: Vec<_> = labelled.iter().filter(|sample| !is_right(sample)).collect();
        assert!(!labelled.is_empty() && wrong.is_empty(), "{} of {} labels are wrong: {wrong:?}", wrong.len(), labelled.len());
    }
}
