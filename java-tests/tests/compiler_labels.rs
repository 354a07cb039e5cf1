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

/// Returns the name of a class without the address that a hidden class has behind it.
fn without_address(class: &str) -> &str {
    class.split(['/', '+']).next().unwrap_or(class)
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
            let task = Task {
                method: format!("{}.{name}", without_address(words[0])),
                begin_ms,
                end_ms: f64::INFINITY,
            };
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

/// Returns thread, time in milliseconds since the epoch and label, if it has one, of each sample.
fn samples(profile: &Value) -> Vec<(String, f64, Option<String>)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let start_ms = profile["meta"]["startTime"].as_f64().expect("a time");
    let mut found = Vec::new();
    for thread in list(&profile["threads"]) {
        let index = |table: &Value, at: usize| table[at].as_u64().map(|index| index as usize);
        let (samples, stacks) = (&thread["samples"], &thread["stackTable"]);
        let label = |stack: usize| {
            let name = index(&thread["frameTable"]["func"], index(&stacks["frame"], stack)?)?;
            let name = thread["stringArray"][index(&thread["funcTable"]["name"], name)?].as_str()?;
            let (class, method) = name.strip_prefix("[compiling] ")?.rsplit_once('.')?;
            Some(format!("{}.{method}", without_address(class)))
        };
        let mut time_ms = start_ms;
        for (sample, delta) in list(&samples["timeDeltas"]).iter().enumerate() {
            time_ms += delta.as_f64().expect("a number");
            let frames = std::iter::successors(index(&samples["stack"], sample), |&stack| {
                index(&stacks["prefix"], stack)
            });
            if samples["weight"][sample].as_u64() != Some(0) {
                let tid = thread["tid"].as_str().expect("a tid").to_owned();
                found.push((tid, time_ms, frames.filter_map(label).next()));
            }
        }
    }
    found
}

on_every_jdk! {
    fn labels_agree_with_the_log_of_the_vm(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = folder.path().join("compilations.log");
        // Everything is compiled at its first call, so the labels come early.
        let run = Workload::new("Lambdas")
            .argument(0.5)
            .jvm_option("-Xcomp")
            .jvm_option("-XX:+UnlockDiagnosticVMOptions")
            .jvm_option("-XX:+LogCompilation")
            .jvm_option(&format!("-XX:LogFile={}", log.display()))
            .record_option("--interval=4ms")
            .record(jdk);
        run.assert_exit_code(0);
        let tasks = logged(&log);
        let profile = serde_json::from_str(&run.tickwalk(&["export", "--format", "firefox"])).expect("JSON");
        let samples = samples(&profile);
        let labelled: Vec<_> = samples.iter().filter(|(_, _, label)| label.is_some()).collect();
        let is_right = |(tid, time_ms, label): &(String, f64, Option<String>)| {
            tasks.get(tid).is_some_and(|tasks| {
                tasks.iter().any(|task| {
                    task.begin_ms - ROUNDING_MS <= *time_ms
                        && *time_ms <= task.end_ms + ROUNDING_MS
                        && Some(&task.method) == label.as_ref()
                })
            })
        };
        let wrong: Vec<_> = labelled.iter().filter(|sample| !is_right(sample)).collect();
        for (tid, time_ms, _) in &wrong {
            let near = |task: &&Task| task.begin_ms - 50.0 < *time_ms && *time_ms < task.end_ms + 50.0;
            for task in tasks.get(tid).into_iter().flatten().filter(near) {
                println!("{time_ms}: {} from {} to {}", task.method, task.begin_ms, task.end_ms);
            }
        }
        assert!(!labelled.is_empty() && wrong.is_empty(), "{} of {} labels are wrong: {wrong:?}", wrong.len(), labelled.len());
        // Of the samples that are certainly within a compilation, all but the first few of a thread have a label.
        let is_within = |(tid, time_ms, _): &&(String, f64, Option<String>)| {
            tasks.get(tid).is_some_and(|tasks| {
                let is_in = |task: &Task| task.begin_ms + ROUNDING_MS < *time_ms && *time_ms + ROUNDING_MS < task.end_ms;
                tasks.iter().any(is_in)
            })
        };
        let within: Vec<_> = samples.iter().filter(is_within).collect();
        let without = within.iter().filter(|(_, _, label)| label.is_none()).count();
        assert!(within.len() >= 10 && without * 10 <= within.len(), "{without} of {} samples have no label", within.len());
    }
}
