//! `tickwalk diff --fail-above` as a gate: it passes equal runs and stops a slower one.

use std::path::Path;
use std::process::Command;

use java_tests::{Finished, Jdk, Run, Workload, binaries, on_every_jdk, run};

/// Runs the workload, whose stage C does `factor` times the work of each of the other four.
fn recorded(jdk: &Jdk, factor: u64) -> Run {
    let workload = Workload::new("PlantedRegression").argument(3).argument(factor).argument("/dev/null");
    let run = workload.record_option("--interval=1ms").record(jdk);
    run.assert_exit_code(0);
    run
}

fn diff(before: &Path, after: &Path, options: &[&str]) -> Finished {
    let mut command = Command::new(binaries::tickwalk());
    command.args(["diff", "--fail-above", "5%"]).args(options).args([before, after]);
    run(command, |_| ())
}

on_every_jdk! { concurrent;
    fn equal_runs_pass_and_a_slower_one_fails(jdk) {
        let [first, second, slower] = [1, 1, 4].map(|factor| recorded(jdk, factor));
        let equal = diff(&first.recording, &second.recording, &[]);
        assert_eq!(equal.exit_code(), 0, "{}{}", equal.stdout, equal.stderr);
        assert!(equal.stdout.contains("No method has grown by more than 5.0 %"), "{}", equal.stdout);

        // Stage C takes half of the CPU time in place of a fifth.
        let grown = diff(&first.recording, &slower.recording, &["--markdown"]);
        assert_eq!(grown.exit_code(), 3, "{}{}", grown.stdout, grown.stderr);
        let row = grown.stdout.lines().find(|line| line.contains("| grown |"));
        assert!(row.is_some_and(|row| row.ends_with("`PlantedRegression.stageC` |")), "{}", grown.stdout);

        let second = second.recording.display().to_string();
        let grown = diff(&first.recording, &slower.recording, &["--json", "--also-before", &second]);
        let verdict: serde_json::Value = serde_json::from_str(&grown.stdout).expect("JSON");
        assert_eq!((grown.exit_code(), &verdict["runs"]), (3, &serde_json::json!([2, 1])), "{verdict}");
        assert_eq!(verdict["methods"][0]["name"], "PlantedRegression.stageC", "{verdict}");
    }
}
