//! `tickwalk gate` and `tickwalk diff --fail-above`: equal programs pass, and a slower one fails.

use std::process::Command;

use java_tests::{Finished, Jdk, binaries, classes, on_jdks, run};

/// Growth that no method of equal runs reaches. Stage C of the slower program takes five sixths of the CPU time in
/// place of a fifth.
const LIMIT: &str = "200%";
const SLOWER: &str = "20";

/// Runs the gate on the workload PlantedRegression; stage C of the second program does `factor` times the work of
/// others.
fn gate(jdk: &Jdk, factor: &str, options: &[&str]) -> Finished {
    let java = jdk.java();
    let mut command = Command::new(binaries::tickwalk());
    command.args(["gate", "--fail-above", LIMIT]).args(options).arg("--");
    let of_java = |command: &mut Command, factor: &str| {
        command.arg(&java).arg("-cp").arg(classes()).args(["PlantedRegression", "0.5", factor]);
    };
    of_java(&mut command, "1");
    of_java(command.arg("---"), factor);
    run(command, |line| assert!(!line.starts_with("truth "), "the program's output: {line}"))
}

on_jdks! {
    concurrent 11, 25;
    fn equal_programs_pass_and_a_slower_one_fails(jdk) {
        let equal = gate(jdk, "1", &[]);
        assert_eq!(equal.exit_code(), 0, "{}{}", equal.stdout, equal.stderr);
        assert!(equal.stdout.contains("No method has grown by more than 200.0 % (5 and 5 runs"), "{}", equal.stdout);

        let kept = tempfile::tempdir().expect("a writable temporary folder");
        let kept = kept.path();
        let grown = gate(jdk, SLOWER, &["--markdown", "--keep", kept.to_str().expect("text")]);
        assert_eq!(grown.exit_code(), 3, "{}{}", grown.stdout, grown.stderr);
        let row = grown.stdout.lines().find(|line| line.contains("| grown |"));
        assert!(row.is_some_and(|row| row.ends_with("`PlantedRegression.stageC` |")), "{}", grown.stdout);

        // The same verdict from the recordings.
        let mut command = Command::new(binaries::tickwalk());
        command.args(["diff", "--fail-above", LIMIT, "--json", "--same-work"]);
        command.arg(kept.join("base-1.tickwalk")).arg(kept.join("head-1.tickwalk"));
        for number in 2..=5 {
            command.arg("--also-before").arg(kept.join(format!("base-{number}.tickwalk")));
            command.arg("--also-after").arg(kept.join(format!("head-{number}.tickwalk")));
        }
        let grown = run(command, |_| ());
        let verdict: serde_json::Value = serde_json::from_str(&grown.stdout).expect("JSON");
        assert_eq!((grown.exit_code(), &verdict["runs"]), (3, &serde_json::json!([5, 5])), "{verdict}");
        let names = verdict["methods"].as_array().expect("methods").iter().filter(|method| method["has_grown"] == true);
        assert!(names.map(|method| &method["name"]).eq(["PlantedRegression.stageC"]), "{verdict}");
        assert_eq!(verdict["program"]["has_grown"], false, "both burn half a second: {verdict}");
    }
}
