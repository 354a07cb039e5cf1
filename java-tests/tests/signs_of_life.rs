//! On a terminal `record` and `attach` show while they run that samples arrive; in a pipe they do not.
//!
//! `script` (util-linux) is the terminal; without it the tests are skipped.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use java_tests::{Finished, Workload, binaries, create_end_file, on_jdks, run};

/// Runs a command on a terminal, whose output is returned as standard output; `None` without `script`.
fn on_terminal(words: &[&str]) -> Option<Finished> {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        // Written to the file descriptor, because the test runner captures `eprintln!` of passing tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED signs_of_life: there is no command 'script'");
        return None;
    }
    let mut command = Command::new("script");
    command.args(["-qec", &words.join(" "), "/dev/null"]);
    Some(run(command, |_| ()))
}

/// Returns the lines that show signs of life, each as the terminal gets it.
fn signs(text: &str) -> Vec<&str> {
    let parts = text.split(['\r', '\n']).map(|part| part.trim_start_matches("\x1b[K"));
    parts.filter(|part| part.starts_with("tickwalk: ") && part.contains(" samples (")).collect()
}

fn attach_words(folder: &Path, pid: i32) -> Vec<String> {
    let tickwalk = binaries::tickwalk().display().to_string();
    let recording = folder.join("a.tickwalk").display().to_string();
    [&tickwalk, "attach", "--interval", "1ms", "--duration", "5s", "-o", &recording, &pid.to_string()]
        .map(str::to_owned)
        .to_vec()
}

on_jdks! { 17, 25;
    fn attach_rewrites_a_line_on_a_terminal_and_is_quiet_in_a_pipe(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let workload = Workload::burner(0, &end_file);
        let mut is_checked = false;
        let program = workload.run_unprofiled_watched(jdk, |pid, _| {
            if std::mem::replace(&mut is_checked, true) {
                return;
            }
            let words = attach_words(folder.path(), pid);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let Some(shown) = on_terminal(&words) {
                assert_eq!(shown.exit_code(), 0, "{}", shown.stdout);
                let signs = signs(&shown.stdout);
                let last = signs.last().unwrap_or_else(|| panic!("no sign of life: {}", shown.stdout));
                assert!(last.contains("/s), ") && last.contains(" % explained, hottest "), "{signs:?}");
                assert!(last.contains(" % Burner.burn"), "{signs:?}");
                assert!(signs.iter().all(|sign| sign.chars().count() <= 79), "{signs:?}");
                // The line is erased before the report.
                assert!(shown.stdout.contains("\r\x1b[K"));
            }
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            let piped = run(command, |_| ());
            assert_eq!((piped.exit_code(), signs(&piped.stderr)), (0, Vec::new()), "{}", piped.stderr);
            create_end_file(&end_file);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
    }
}

on_jdks! { 11, 25;
    /// `top -p` draws screens until Ctrl-C, and the last one stays; the JVM runs on.
    fn top_shows_a_running_jvm(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let workload = Workload::burner(0, &end_file);
        let mut is_checked = false;
        let program = workload.run_unprofiled_watched(jdk, |pid, _| {
            if std::mem::replace(&mut is_checked, true) {
                return;
            }
            let (tickwalk, pid) = (binaries::tickwalk().display().to_string(), pid.to_string());
            let mut command = Command::new(&tickwalk);
            command.args(["top", "-p", &pid]);
            let refused = run(command, |_| ());
            assert_eq!(refused.exit_code(), 1);
            assert!(refused.stderr.contains("top -p needs a terminal"), "{}", refused.stderr);
            let words = ["timeout", "--preserve-status", "-s", "INT", "8", &tickwalk, "top", "-p", &pid, "--by", "class"];
            if let Some(shown) = on_terminal(&words) {
                assert_eq!(shown.exit_code(), 0, "{}", shown.stdout);
                let (screens, after) = shown.stdout.rsplit_once("\x1b[?1049l").expect("a second screen");
                for text in [screens, after] {
                    assert!(text.contains(&format!("JVM {pid}: Burner 0 ")), "{text}");
                    assert!(text.contains("Hot classes by self CPU time") && !text.contains("incomplete"), "{text}");
                }
            }
            create_end_file(&end_file);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(!program.stderr.contains("tickwalk:"), "{}", program.stderr);
    }
}

on_jdks! { 21;
    /// Beside the output of a program there are whole lines only.
    fn record_shows_lines_beside_the_program(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tickwalk = binaries::tickwalk().display().to_string();
        let recording = folder.path().join("a.tickwalk").display().to_string();
        let printed = Workload::new("Hello").jvm_option("-XshowSettings:properties").run_unprofiled(jdk);
        let path = printed.stderr.lines().find_map(|line| line.trim().strip_prefix("java.class.path = "));
        let java = jdk.java().display().to_string();
        let words = [&tickwalk, "record", "-o", &recording, "--", &java, "-cp", path.expect("a class path"), "Burner", "5"];
        let Some(shown) = on_terminal(&words) else { return };
        assert_eq!(shown.exit_code(), 0, "{}", shown.stdout);
        let signs = signs(&shown.stdout);
        assert!(!signs.is_empty() && signs.iter().all(|sign| sign.contains("hottest")), "{}", shown.stdout);
        assert!(!shown.stdout.contains("\x1b[K"), "{}", shown.stdout);
    }
}
