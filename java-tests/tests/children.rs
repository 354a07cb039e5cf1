//! `tickwalk record` with a program that starts several JVMs: the busiest one is reported, and the others are listed.

use std::fs;
use std::path::Path;

use java_tests::{Finished, Jdk, Workload, on_jdks, succeed, tickwalk};

/// Runs `tickwalk record OPTIONS -- COMMAND` with the recording `a.tickwalk` in a folder.
fn record(folder: &Path, options: &[&str], command: &[&str]) -> Finished {
    let recording = folder.join("a.tickwalk").display().to_string();
    tickwalk(&[&["record"], options, &["-o", &recording, "--"], command].concat())
}

/// Returns the main class, with its arguments, of a recording.
fn command_of(recording: &Path) -> String {
    let finished = succeed(&["query", "processes", &recording.display().to_string()]);
    let answer: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    answer["processes"][0]["command"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn class_path(jdk: &Jdk) -> String {
    // The folder of the compiled workloads is that of a workload that ran.
    let printed = Workload::new("Hello").jvm_option("-XshowSettings:properties").run_unprofiled(jdk);
    let path = printed.stderr.lines().find_map(|line| line.trim().strip_prefix("java.class.path = "));
    path.expect("a class path").to_owned()
}

on_jdks! { concurrent 11, 25;
    /// A wrapper starts a short JVM first, then a busy one beside one that is less busy.
    fn a_wrapper_with_three_jvms(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = folder.path().join("wrapper.sh");
        let run_class = format!("{} -cp {}", jdk.java().display(), class_path(jdk));
        let text = format!(
            "{run_class} Hello\n{run_class} Burner 2 >/dev/null &\n{run_class} Burner 1 >/dev/null\nwait\nexit 7\n"
        );
        fs::write(&script, text).expect("written");
        let recorded = record(folder.path(), &[], &["sh", &script.display().to_string()]);
        assert_eq!(recorded.exit_code(), 7, "{}", recorded.stderr);
        let lines = |text: &str| -> Vec<String> {
            recorded.stderr.lines().filter(|line| line.starts_with(text)).map(str::to_owned).collect()
        };
        let [busiest] = &lines("busiest JVM  ")[..] else { panic!("{}", recorded.stderr) };
        assert!(busiest.ends_with(": Burner 2") && busiest.contains(" CPU time, pid "), "{busiest}");
        assert_eq!(command_of(&folder.path().join("a.tickwalk")), "Burner 2");
        let further = lines("further JVM  ");
        assert_eq!(further.len(), 2, "{}", recorded.stderr);
        for (line, program) in further.iter().zip(["Burner 1", "Hello"]) {
            let (shown, path) = line.split_once(", in ").expect("a recording");
            assert!(shown.ends_with(&format!(": {program}")), "{line}");
            assert_eq!(command_of(Path::new(path)), program);
        }
        let page = fs::read_to_string(folder.path().join("a.html")).expect("a page");
        assert!(page.contains("Burner"));
    }
}

on_jdks! { concurrent 17, 25;
    /// Without `--follow` only the JVM that the command starts is profiled.
    fn a_jvm_that_starts_a_jvm(jdk) {
        let (java, classes) = (jdk.java().display().to_string(), class_path(jdk));
        let command = [&*java, "-cp", &classes, "StartsJvm", "1"];
        for (options, program) in [(&[][..], "StartsJvm 1"), (&["--follow"][..], "Burner 1")] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let recorded = record(folder.path(), options, &command);
            assert_eq!(recorded.exit_code(), 0, "{}", recorded.stderr);
            assert_eq!(command_of(&folder.path().join("a.tickwalk")), program, "{}", recorded.stderr);
            assert_eq!(recorded.stderr.contains("further JVM  "), !options.is_empty(), "{}", recorded.stderr);
        }
    }
}
