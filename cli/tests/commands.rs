//! The binary as users meet it: usage errors, reports over a recording, and `record` around other programs.

#[path = "../../collector/tests/support/mod.rs"]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use collector::store::{Retention, Store, is_partition};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use proto::framing::{Checksums, FramedMessage};
use proto::v1::AgentMessage;
use proto::v1::agent_message::Body;
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;

fn tickwalk(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    command().args(arguments).output().expect("the binary runs")
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwalk"));
    for variable in ["TICKWALK_AGENT", "TICKWALK_LOG", "JAVA_TOOL_OPTIONS"] {
        command.env_remove(variable);
    }
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A directory with a recording of a small session.
struct Recorded {
    directory: TempDir,
    recording: PathBuf,
}

impl Recorded {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let recording = directory.path().join("small.tickwalk");
        fs::write(&recording, support::small().bytes()).expect("write");
        Recorded { directory, recording }
    }
}

/// Checks that `arguments` end with `code`, and that standard error contains `message`.
fn check_error(arguments: &[&str], code: i32, message: &str) {
    let output = tickwalk(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_usage_is_exit_code_2() {
    check_error(&["frobnicate"], 2, "frobnicate");
    check_error(&["record"], 2, "COMMAND");
    check_error(&["record", "--interval", "10", "--", "java"], 2, "10ms");
    check_error(&["attach", "--duration", "0s", "1"], 2, "above zero");
    check_error(&["top", "--limit", "0", "x"], 2, "1 to 10000");
    check_error(&["top", "--json", "--format", "text", "x"], 2, "cannot be used with");
    check_error(&["dump", "--format", "jfr", "1"], 2, "--output");
    check_error(&["top"], 2, "RECORDING");
    check_error(&["export", "--unit", "hours", "x"], 2, "samples");
    check_error(&["collect", "--listen", "localhost"], 2, "port");
    check_error(&["experiment", "waste", "--milliseconds", "1"], 2, "10");
    check_error(&["gate"], 2, "BASE... --- HEAD");
    check_error(&["gate", "--confidence", "50%", "--", "a", "---", "b"], 2, "between 80% and 99.9%");
}

/// Process 1 hides its files from other users, and from the superuser of a container.
#[test]
fn a_process_that_is_no_jvm_is_called_so() {
    check_error(&["attach", "--stop", "1"], 1, "tickwalk: process 1 is not a HotSpot JVM: it has no ");
}

#[test]
fn errors_at_run_time_are_exit_code_1_and_one_line() {
    check_error(
        &["top", "/nonexistent"],
        1,
        "tickwalk: /nonexistent: there is no such file; name a recording or the directory of a store\n",
    );
    check_error(&["top", "/bin/sh"], 1, "tickwalk: /bin/sh: not a Tickwalk recording\n");
    check_error(
        &["record", "--agent", "/nonexistent.so", "--", "java"],
        1,
        "does not exist; correct --agent",
    );
    let agent = ["record", "--agent", env!("CARGO_BIN_EXE_tickwalk")];
    check_error(
        &[&agent[..], &["--", "/nonexistent/java"]].concat(),
        127,
        "/nonexistent/java does not exist",
    );
    check_error(&[&agent[..], &["--", "/etc/hostname"]].concat(), 126, "/etc/hostname cannot be run");
    check_error(&["diff", "/etc/hostname", "/etc/../etc/hostname"], 1, "both sides are the same");
    check_error(&["diff", "/etc/hostname", "--thread", "main"], 1, "both sides are the same");
    check_error(&["diff", "a", "b", "--fail-above", "x%"], 2, "expected a percentage between 0% and 1000%");
    check_error(&["diff", "a", "b", "--markdown"], 2, "--fail-above");
    for option in ["-o", "--summary", "--flamegraph"] {
        let command = [option, "/nonexistent/x", "--", "java"];
        check_error(&[&agent[..], &command[..]].concat(), 1, "create the directory /nonexistent first");
    }
    let command = ["-o", "/proc/x.tickwalk", "--", "java"];
    check_error(
        &[&agent[..], &command[..]].concat(),
        1,
        "cannot write /proc/x.tickwalk: /proc is not writable: ",
    );
    // A name that looks like that of another format does not become a recording's.
    let unknown = "unknown format 'x.svg'; the formats are collapsed (.collapsed), ";
    check_error(&[&agent[..], &["-o", "x.svg", "--", "java"]].concat(), 1, unknown);
    for verb in ["attach", "start"] {
        check_error(&[verb, "-o", "x.svg", "999999999"], 1, unknown);
        check_error(&[verb, "-o", "svg", "-f", "x.html", "999999999"], 1, "unknown format 'svg'");
    }
    let suffix = "a JVM writes the format pprof only to a file with the suffix .pb.gz, not to x";
    check_error(&["start", "-o", "pprof", "-f", "x", "999999999"], 1, suffix);
    check_error(&["stop", "-o", "flat", "--format", "jfr", "999999999"], 1, "leave --format out");
    let command = ["-o", "x.jfr", "--summary", "x.jfr", "--", "java"];
    check_error(&[&agent[..], &command[..]].concat(), 1, "x.jfr is named for two files");
    check_error(&["flamegraph", "-o", "x.jfr", "/etc/hostname"], 1, "the name of another format (jfr)");
    check_error(&["diff", "a", "b", "--format", "markdown"], 1, "add --fail-above");
    check_error(
        &["diff", "a", "b", "--fail-above", "5%"],
        1,
        "1 and 1 runs are too few for a verdict by method at 99.0 % confidence",
    );
    check_error(
        &["diff", "a", "b", "--fail-above", "5%", "--also-before", "c"],
        1,
        "it needs 5 runs a side: name them with --also-before and --also-after, or use 'tickwalk gate'",
    );
    let command = ["diff", "/etc/hostname", "b", "--fail-above", "5%", "--also-before=/etc/../etc/hostname"];
    let before = ["--also-before=c", "--also-before=d", "--also-before=e"];
    let after = ["--also-after=f", "--also-after=g", "--also-after=h", "--also-after=i"];
    check_error(
        &[&command[..], &before[..], &after[..]].concat(),
        1,
        "tickwalk: /etc/../etc/hostname is named twice",
    );
    check_error(&["gate", "--", "java", "-version"], 1, "write two commands with --- between them");
    check_error(&["gate", "--", "a", "---", "b", "---", "c"], 1, "write two commands with --- between them");
    check_error(&["gate", "--runs", "3", "--", "a", "---", "b"], 1, "it needs 5 runs a side");
}

#[test]
fn every_verb_has_examples() {
    for verb in ["record", "collect", "top", "flamegraph", "export", "diff", "gate", "doctor", "experiment"] {
        let help = stdout(&tickwalk([verb, "--help"]));
        assert!(help.contains("Examples:"), "{verb}: {help}");
    }
}

#[test]
fn top_shows_tables_or_the_account() {
    let recorded = Recorded::new();
    let text = stdout(&tickwalk([OsStr::new("top"), recorded.recording.as_os_str()]));
    assert!(text.starts_with("10 samples, 160 ms CPU time, 84.2 % of CPU time explained"), "{text}");
    assert!(text.contains("by self") && text.contains("by total"), "{text}");
    let has_details = |text: &str| text.contains("\nrequests  ") && text.contains("\nqueues    ");
    assert!(text.contains("note: 10 samples are too few for shares") && !has_details(&text), "{text}");
    let verbose = ["top", "--verbose"].map(OsStr::new).into_iter();
    let text = stdout(&tickwalk(verbose.chain([recorded.recording.as_os_str()])));
    assert!(has_details(&text), "{text}");

    let arguments = ["top", "--total", "--limit", "1"].map(OsStr::new);
    let text = stdout(&tickwalk(arguments.into_iter().chain([recorded.recording.as_os_str()])));
    assert!(text.ends_with("80.0 ms  com.example.Main.main\n") && !text.contains("by self"), "{text}");

    let text = stdout(&tickwalk([OsStr::new("top"), OsStr::new("--json"), recorded.recording.as_os_str()]));
    let account: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(account["cpu_ns"]["sampled"], 160_000_000);
    let hottest = &account["tables"]["self"][0];
    assert_eq!((&hottest["name"], &hottest["self_samples"]), (&"java.util.HashMap.get".into(), &5.into()));

    let file = recorded.directory.path().join("threads.json");
    let arguments = ["top", "--by", "thread", "--format", "json", "-o"].map(OsStr::new).into_iter();
    let output = tickwalk(arguments.chain([file.as_os_str(), recorded.recording.as_os_str()]));
    assert!(output.stdout.is_empty() && output.status.success(), "{}", stderr(&output));
    let account: serde_json::Value = serde_json::from_slice(&fs::read(file).expect("written")).expect("JSON");
    assert!(account["tables"]["threads"][0]["samples"].is_u64(), "{account}");
}

#[test]
fn parts_of_a_recording_are_counted_from_its_last_sample() {
    let recorded = Recorded::new();
    let recording = recorded.recording.to_str().expect("text");
    let text = stdout(&tickwalk(["top", "--from", "-1s", recording]));
    assert!(text.contains(" CPU time selected of 10 samples, 160 ms CPU time"), "{text}");
    check_error(&["top", "--from", "2000000000", recording], 1, "no process is selected; widen the time");
    check_error(&["top", "--thread", "nobody", recording], 1, "the selection has no samples");
    for command in ["top", "tree", "annotate"] {
        for filter in ["--process", "--thread"] {
            check_error(
                &[command, filter, "nobody", recording],
                1,
                "`tickwalk view processes` list what can be",
            );
        }
    }
    check_error(&["top", "--by", "thread", "--thread", "nobody", recording], 1, "no samples");
}

#[test]
fn parts_of_a_recording_are_counted_from_its_start_and_by_the_clock() {
    let recorded = Recorded::new();
    let recording = recorded.recording.to_str().expect("text");
    let part = "selected of 10 samples, 160 ms CPU time";
    // Its samples are from the first 10 ms after 14:12:25 UTC.
    let in_zone = |zone: &str, arguments: &[&str]| {
        stdout(&command().env("TZ", zone).args(arguments).output().expect("the binary runs"))
    };
    let selected = |arguments: &[&str]| in_zone("UTC", &[&["top"], arguments, &[recording]].concat());
    for time in ["0s", "14:12:25", "2026-09-21T14:12:25", "2026-09-21T14:12:25Z", "1789999945"] {
        let text = selected(&["--from", time]);
        assert!(text.contains(part), "{time}: {text}");
    }
    assert_eq!(selected(&["--from", "0s"]), selected(&["--from", "14:12"]), "all of it");
    assert_eq!(in_zone("EAST-2", &["top", "--from", "16:12:25", recording]), selected(&["--from", "0s"]));
    assert_eq!(selected(&["--to", "10s"]), selected(&["--from", "0s"]));
    assert!(selected(&["--from", "5ms"]).starts_with("5 samples, "), "{}", selected(&["--from", "5ms"]));
    assert_eq!(selected(&["--from", "2026-09-21T14:12:25.005Z"]), selected(&["--from", "1789999945.005"]));
    assert_ne!(selected(&["--from", "2026-09-21T14:12:25.005Z"]), selected(&["--from", "0s"]));
    check_error(&["top", "--from", "1h", recording], 1, "no process is selected; widen the time");
    check_error(&["top", "--from", "25:00", recording], 2, "a local time of day such as 14:03:05");
    check_error(&["top", "--from", "2026-09-31T14:12", recording], 2, "a date such as 2026-11-29T14:03");
    // Clocks are set from 2:00 to 3:00 on 29 March 2026.
    let spring = |time| {
        let arguments = ["top", "--from", time, recording];
        command().env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3").args(arguments).output().expect("the binary runs")
    };
    assert!(stderr(&spring("2026-03-29T02:30")).contains("a date such as 2026-11-29T14:03"));
    assert_eq!(spring("2026-03-29T03:30").status.code(), Some(0));
}

#[test]
fn the_words_of_the_report_select() {
    let recorded = Recorded::new();
    let recording = recorded.recording.to_str().expect("text");
    let report = |arguments: &[&str]| stdout(&tickwalk([&["top"], arguments, &[recording]].concat()));
    assert_eq!(report(&["--thread-kind", "JIT"]), report(&["--thread-kind", "compiler"]));
    assert!(report(&["--thread-kind", "JIT"]).contains("JIT compiler 100.0 %"));
    assert!(report(&["--kind", "Java"]).contains("\nJava 100.0 %\n"), "{}", report(&["--kind", "Java"]));
    check_error(&["top", "--kind", "GC", recording], 1, "JIT and GC are kinds of threads (thread_kind)");
}

#[test]
fn a_pattern_that_finds_nothing_names_the_other_form() {
    let recorded = Recorded::new();
    let recording = recorded.recording.to_str().expect("text");
    let whole = "if the pattern is meant for a part of a frame, write '*HashMap.get*', or use frame";
    let part = "use include in place of frame for the pattern '*HashMap.get'";
    for verb in ["top", "tree", "flamegraph"] {
        check_error(&[verb, "--include", "HashMap.get", recording], 1, whole);
        check_error(&[verb, "--frame", "*HashMap.get", recording], 1, part);
    }
}

#[test]
fn flamegraph_is_put_beside_the_recording() {
    let recorded = Recorded::new();
    let output = tickwalk([OsStr::new("flamegraph"), recorded.recording.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(recorded.directory.path().join("small.html")).expect("page");
    assert!(page.contains("com.example.Work.descend"));
}

#[test]
fn export_goes_to_standard_output_or_a_file() {
    let recorded = Recorded::new();
    let export = ["export", "--format", "collapsed"].map(OsStr::new);
    let text = stdout(&tickwalk(export.into_iter().chain([recorded.recording.as_os_str()])));
    assert!(text.contains("com.example.Main.main;com.example.Work.run;java.util.HashMap.get 5\n"), "{text}");
    let file = recorded.directory.path().join("stacks.txt");
    let to_file = [OsStr::new("-o"), file.as_os_str(), recorded.recording.as_os_str()];
    assert!(tickwalk(export.into_iter().chain(to_file)).stdout.is_empty());
    assert_eq!(fs::read_to_string(file).expect("file"), text);
}

/// `-o -` is standard output where a file is written, and refused where files are written beside it or by a JVM.
#[test]
fn a_dash_is_standard_output() {
    let recorded = Recorded::new();
    let recording = recorded.recording.to_str().expect("text");
    let written = |arguments: &[&str]| {
        let mut command = command();
        command.current_dir(recorded.directory.path()).args(arguments);
        let output = command.output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        output.stdout
    };
    for arguments in [
        &["export", "--format", "collapsed", recording][..],
        &["export", "--format", "jfr", recording],
        &["top", recording],
        &["view", "threads", recording],
        &["query", "methods", recording],
        &["diff", recording, "--before", "thread=worker"],
    ] {
        let (without, with) = (written(arguments), written(&[arguments, &["-o", "-"]].concat()));
        assert!(!without.is_empty() && with == without, "{arguments:?}");
    }
    let page = String::from_utf8(written(&["flamegraph", "-o", "-", recording])).expect("text");
    assert!(page.contains("com.example.Work.descend"));
    let files = fs::read_dir(recorded.directory.path()).expect("a directory").count();
    assert_eq!(files, 1, "files were written");
    let agent = ["--agent", env!("CARGO_BIN_EXE_tickwalk"), "-o", "-"];
    for verb in [&["record", "--"][..], &["attach"], &["start"], &["stop"], &["dump"]] {
        let agent = if ["stop", "dump"].contains(&verb[0]) { &agent[2..] } else { &agent };
        check_error(&[&verb[..1], agent, &verb[1..], &["1"]].concat(), 1, "name a file\n");
    }
    check_error(&["experiment", "queue", "-o", "-"], 1, "name a file\n");
    check_error(&["export", "--format", "parquet", "-o", "-", recording], 1, "-o app.parquet");
    check_error(&["export", "-o", "-", recording], 2, "the formats are");
}

#[test]
fn doctor_reports_every_subject() {
    let output = tickwalk(["doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let subjects: Vec<&str> =
        findings.as_array().expect("list").iter().filter_map(|finding| finding["subject"].as_str()).collect();
    for subject in [
        "timer tick",
        "timers",
        "time stamps",
        "seccomp",
        "memory access",
        "limits",
        "own /tmp",
        "JDK",
        "agent",
    ] {
        assert!(subjects.contains(&subject), "{subjects:?}");
    }
}

#[test]
fn a_profile_over_ssh_shows_what_it_runs_and_leaves_nothing() {
    let agent = env!("CARGO_BIN_EXE_tickwalk");
    let arguments = ["record", "--agent", agent, "--ssh", "web1", "-p", "999999999", "-d", "1s"];
    let shown = stdout(&tickwalk(arguments.into_iter().chain(["--dry-run", "--service", "it's"])));
    assert!(shown.starts_with("{ tar ") && shown.contains("ssh -- web1 "), "{shown}");
    assert!(shown.contains("--duration=1000ms") && shown.contains("service=it"), "{shown}");
    check_error(&["record", "--ssh", "web1", "--", "java"], 2, "--pid");

    // The stand-in for ssh runs the script here, in a directory of its own.
    let machine = script("ssh", "shift 2; exec sh -c \"$1\"");
    let there = machine.path().join("there");
    fs::create_dir(&there).expect("a directory");
    let path = std::env::var("PATH").expect("a path");
    let output = command()
        .args(arguments)
        .env("PATH", format!("{}:{path}", machine.path().display()))
        .env("TMPDIR", &there)
        .current_dir(machine.path())
        .output()
        .expect("the binary runs");
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("there is no process 999999999") && told.contains("nothing was recorded on web1"),
        "{told}"
    );
    assert_eq!(fs::read_dir(&there).expect("a directory").count(), 0, "something was left");
    assert!(!machine.path().join("recording.tickwalk").exists());
}

#[test]
fn completions_and_man_pages_are_made() {
    let completions = stdout(&tickwalk(["completions", "bash"]));
    assert!(completions.contains("--fail-above"));
    let directory = tempfile::tempdir().expect("temporary directory");
    assert!(tickwalk([OsStr::new("man"), directory.path().as_os_str()]).status.success());
    let page = fs::read_to_string(directory.path().join("tickwalk-record.1")).expect("a page");
    assert!(page.contains("JAVA_TOOL_OPTIONS"));
}

#[test]
fn comments_of_the_maven_snippet_have_no_two_dashes() {
    let snippet = include_str!("../packaging/pom.xml");
    let mut comments = snippet.split("<!--").skip(1).peekable();
    assert!(comments.peek().is_some());
    for comment in comments {
        let (text, _) = comment.split_once("-->").expect("the end of a comment");
        assert!(!text.contains("--"), "no XML: {text}");
    }
}

/// A directory with a script named `name`, to be run by `record`.
fn script(name: &str, body: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    directory
}

/// `tickwalk record OPTIONS -- DIRECTORY/NAME a b`, with any file as the agent.
fn record(directory: &Path, name: &str, options: &[&str]) -> Command {
    let mut command = command();
    command.current_dir(directory).args(["record", "--agent", env!("CARGO_BIN_EXE_tickwalk")]).args(options);
    command.arg("--").arg(directory.join(name)).args(["a", "b"]);
    command
}

#[test]
fn a_jvm_that_never_connects_is_explained_and_its_exit_code_kept() {
    let directory = script("java", r#"echo "$@"; cat; exit 7"#);
    let mut child = record(directory.path(), "java", &["--agent-option", "log=debug"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("pipe").write_all(b"typed\n").expect("write");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(7));
    let (shown, explained) = (stdout(&output), stderr(&output));
    assert!(shown.starts_with("-agentpath:") && shown.ends_with(",log=debug a b\ntyped\n"), "{shown}");
    assert!(shown.contains("=mode=cputime,exitwait=10s,abandon=10s,collector=unix:/"), "{shown}");
    assert!(
        explained.contains("ended with exit code 7 before anything was profiled")
            && explained.lines().count() == 1,
        "{explained}"
    );
    assert!(!directory.path().join("recording.tickwalk").exists());
}

#[test]
fn a_gate_without_profiles_has_no_verdict() {
    for (body, code, explained) in [
        ("exit 7", 1, "run 1 of the base program ended with exit code 7, so nothing is judged"),
        ("kill -9 $$", 1, "run 1 of the base program ended with exit code 137, so nothing is judged"),
        ("echo shown", 1, "no JVM of the base program connected to the profiler"),
    ] {
        let directory = script("java", body);
        let program = directory.path().join("java");
        let mut command = command();
        command.args(["gate", "--agent", env!("CARGO_BIN_EXE_tickwalk"), "--"]);
        let output = command.arg(&program).arg("---").arg(&program).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        let last = stderr(&output).lines().last().map(str::to_owned).unwrap_or_default();
        assert!(last.starts_with("tickwalk: ") && last.contains(explained), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "the program's output is discarded");
    }
}

/// The exit code is that of the program, also if its messages are not read (`2>&1 | head`).
#[test]
fn a_closed_standard_error_is_no_failure() {
    let directory = script("java", "exit 7");
    let mut command = record(directory.path(), "java", &[]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(command.stderr(writer).status().expect("the binary runs").code(), Some(7));
}

#[test]
fn other_programs_get_the_agent_in_the_environment() {
    let directory = script("gradlew", r#"echo "$JAVA_TOOL_OPTIONS" "$@""#);
    let output = record(directory.path(), "gradlew", &[])
        .env("JAVA_TOOL_OPTIONS", "-Dset=1")
        .output()
        .expect("the binary runs");
    let shown = stdout(&output);
    assert!(shown.starts_with("-agentpath:") && shown.ends_with(" -Dset=1 a b\n"), "{shown}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_session_is_reported_and_its_files_written() {
    // The stand-in for a JVM prints the collector's address and waits; this test plays the agent.
    let directory = script("java", r#"echo "$1"; read line"#);
    fs::write(directory.path().join("recording.tickwalk"), "an older one").expect("write");
    let mut child =
        record(directory.path(), "java", &["--summary", "out.json", "--top", "3", "-o", "recording.jfr"])
            .envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("pipe")).read_line(&mut line).expect("read");
    let (_, socket) = line.trim().split_once("collector=unix:").expect("address");
    let bytes = support::small().bytes();
    UnixStream::connect(socket).expect("listening").write_all(&bytes).expect("sent");
    child.stdin.take().expect("pipe").write_all(b"end\n").expect("write");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(fs::read(directory.path().join("recording.tickwalk")).expect("recording") == bytes);
    let kept = fs::read_to_string(directory.path().join("recording.tickwalk.1")).expect("kept");
    assert_eq!(kept, "an older one");
    assert!(directory.path().join("recording.html").exists());
    assert!(fs::read(directory.path().join("recording.jfr")).expect("JFR").starts_with(b"FLR\0"));
    let summary = fs::read_to_string(directory.path().join("out.json")).expect("summary");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["complete"], true);
    let report = stderr(&output);
    for part in ["10 samples", "Hot methods by self", "java.util.HashMap.get", "recording.html", "out.json"] {
        assert!(report.contains(part), "{part} is missing: {report}");
    }
    // A profile is private, and belongs to the user who called sudo.
    let own = geteuid();
    let owner = if own.is_root() { 65_534 } else { own.as_raw() };
    for name in ["recording.tickwalk", "recording.html", "recording.jfr", "out.json"] {
        let found = fs::metadata(directory.path().join(name)).expect("a file");
        assert_eq!((found.permissions().mode() & 0o777, found.uid()), (0o600, owner), "{name}");
    }
}

#[test]
fn signals_reach_the_program_and_its_exit_code_shows_the_signal() {
    let directory = script("java", "echo ready; exec cat");
    for (sent, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let record = record(directory.path(), "java", &[]);
        // Whoever runs the tests in the background has them ignore interrupts, which programs inherit.
        let mut child = Command::new("env")
            .arg("--default-signal=INT,TERM")
            .arg(record.get_program())
            .args(record.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("pipe")).read_line(&mut line).expect("read");
        // Waiting closes the child's input, and `cat` could reach its end before the signal does.
        let input = child.stdin.take();
        kill(Pid::from_raw(child.id() as i32), sent).expect("running");
        assert_eq!(child.wait().expect("it ends").code(), Some(code));
        drop(input);
    }
}

/// Starts a collector with its files below `directory`; returns it when it is ready, with its socket and its log.
fn collector(directory: &Path, options: &[&str]) -> (Child, PathBuf, BufReader<ChildStderr>) {
    let socket = directory.join("socket");
    let mut child = command()
        .arg("collect")
        .args(options)
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()))
        .arg("--dir")
        .arg(directory.join("recordings"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut log = BufReader::new(child.stderr.take().expect("pipe"));
    let mut ready = String::new();
    log.read_line(&mut ready).expect("a line");
    assert!(ready.contains("ready"), "{ready}");
    (child, socket, log)
}

#[test]
fn collect_records_until_it_gets_a_signal() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (mut child, socket, _log) = collector(directory.path(), &[]);
    let bytes = support::small().bytes();
    let mut agent = UnixStream::connect(&socket).expect("listening");
    agent.write_all(&bytes).expect("sent");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("running");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let recording = directory.path().join("recordings/4321-0000000000c0ffee.tickwalk");
    assert!(fs::read(recording).expect("recording") == bytes);
    assert!(!socket.exists());
}

/// Not at the first agent, whose samples would be lost.
#[test]
fn a_folder_that_cannot_be_written_is_refused_at_the_start() {
    // Not even root can make files there.
    for folder in ["/proc/self/task", "/sys/kernel"] {
        let arguments = ["collect", "--listen", "127.0.0.1:0", "--dir", folder];
        check_error(&arguments, 1, &format!("cannot write recordings to {folder}; --dir needs a directory"));
    }
}

#[test]
fn files_of_a_collector_are_private_with_any_umask() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (mut child, socket, _log) = collector(directory.path(), &[]);
    let mut agent = UnixStream::connect(&socket).expect("listening");
    agent.write_all(&support::small().bytes()).expect("sent");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("running");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let mode = |path: &str| {
        let path = directory.path().join(path);
        fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
            & 0o777
    };
    assert_eq!(mode("recordings"), 0o700);
    assert_eq!(mode("recordings/4321-0000000000c0ffee.tickwalk"), 0o600);
}

#[test]
fn a_collector_has_as_many_connections_as_the_option_says() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (mut child, socket, _log) = collector(directory.path(), &["--max-connections", "2"]);
    let connect = |session| {
        let mut agent = UnixStream::connect(&socket).expect("listening");
        agent.write_all(&support::Stream::of_session(session).framed()[0]).expect("sent");
        // Far longer than an answer takes; a connection that is served must not hang the test.
        agent.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let mut first = [0];
        agent.read_exact(&mut first).expect("an answer");
        agent
    };
    let [_first, _second, mut third] = [1, 2, 3].map(connect);
    let mut answer = Vec::new();
    third.read_to_end(&mut answer).expect("the collector closes the connection");
    assert!(String::from_utf8_lossy(&answer).contains("maximum of 2 connections"), "{answer:?}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("running");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_collector_without_descriptors_waits_for_one() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let recordings = directory.path().join("recordings");
    let (mut child, socket, log) = collector(directory.path(), &[]);
    let mut log = log.lines().map(|line| line.expect("text"));
    let limit = |descriptors: usize| {
        let limit = format!("--nofile={descriptors}:");
        let pid = child.id().to_string();
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
        assert!(status.expect("util-linux").success());
    };
    // The lowest number that is free is the next to be given out.
    let open = |descriptor: &usize| Path::new(&format!("/proc/{}/fd/{descriptor}", child.id())).is_symlink();
    limit((0..).find(|descriptor| !open(descriptor)).expect("one is free"));
    // Begun before the first attempt: whoever reads late can only see more time between them.
    let begun = Instant::now();
    let mut agent = UnixStream::connect(&socket).expect("listening");
    let mut refusals = log.by_ref().filter(|line| line.contains("could not be accepted"));
    for _ in 0..5 {
        refusals.next().expect("a line");
    }
    assert!(begun.elapsed() > Duration::from_millis(300), "no pause between attempts: {:?}", begun.elapsed());
    limit(256);
    let bytes = support::small().bytes();
    agent.write_all(&bytes).expect("sent");
    agent.shutdown(Shutdown::Write).expect("end of sending");
    let mut answer = Vec::new();
    agent.read_to_end(&mut answer).expect("acknowledged");
    assert!(!answer.is_empty());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("running");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(fs::read(recordings.join("4321-0000000000c0ffee.tickwalk")).expect("recording") == bytes);
}

#[test]
fn every_format_is_written_by_its_suffix() {
    let recorded = Recorded::new();
    let suffixes =
        ["collapsed", "traces", "html", "pb.gz", "jfr", "speedscope.json", "firefox.json", "otlp", "parquet"];
    for suffix in suffixes {
        let file = recorded.directory.path().join(format!("app.{suffix}"));
        let arguments =
            [OsStr::new("export"), recorded.recording.as_os_str(), OsStr::new("-o"), file.as_os_str()];
        let output = tickwalk(arguments);
        assert!(output.status.success() && output.stdout.is_empty(), "{suffix}: {}", stderr(&output));
        let written: Vec<_> = match suffix {
            "parquet" => ["app.samples.parquet", "app.stacks.parquet"]
                .map(|name| recorded.directory.path().join(name))
                .into(),
            _ => vec![file],
        };
        for file in written {
            assert!(fs::metadata(&file).expect("a file").len() > 0, "{}", file.display());
        }
    }
}

#[test]
fn a_format_that_is_not_known_is_answered_with_those_that_are() {
    for arguments in
        [&["export", "--format", "pdf", "x"][..], &["export", "-o", "x.json", "x"], &["export", "x"]]
    {
        check_error(arguments, 2, "the formats are collapsed (.collapsed), ");
        assert_eq!(stderr(&tickwalk(arguments)).lines().count(), 1);
    }
    check_error(&["export", "--from", "soon", "x"], 2, "such as -90s");
    let recorded = Recorded::new();
    let recording = recorded.recording.to_str().expect("text");
    check_error(&["top", "--from", "-1s", "--to", "-2s", recording], 1, "the selected time is empty");
    check_error(&["export", "--format", "parquet", recording], 1, "-o app.parquet");
    check_error(
        &["export", "--format", "collapsed", "--thread", "nobody", recording],
        1,
        "the selection has no samples",
    );
}

#[test]
fn export_of_a_part() {
    let recorded = Recorded::new();
    let recording = recorded.recording.as_os_str();
    let part = ["export", "--format", "collapsed", "--unit", "ns", "--thread", "worker"].map(OsStr::new);
    let text = stdout(&tickwalk(part.into_iter().chain([recording])));
    let total: u64 = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(total, 40_000_000, "{text}");
}

/// Samples that are missing are named for every format, sums of several modes for formats that sum them.
#[test]
fn exports_and_comparisons_warn_of_missing_samples() {
    let recorded = Recorded::new();
    let recording = recorded.recording.as_os_str();
    let mut bytes = fs::read(recording).expect("a recording");
    bytes.pop();
    fs::write(recording, bytes).expect("write");
    let export = |format: &str, source: &OsStr| {
        let output = tickwalk([OsStr::new("export"), OsStr::new("--format"), OsStr::new(format), source]);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    for format in ["collapsed", "pprof", "jfr", "speedscope"] {
        let text = export(format, recording);
        assert!(text.starts_with("warning: the recording is cut off"), "{text}");
    }
    let parquet = recorded.directory.path().join("two.parquet");
    let output = tickwalk([OsStr::new("export"), recording, OsStr::new("-o"), parquet.as_os_str()]);
    assert_eq!(stderr(&output).matches("warning: ").count(), 1, "once for both files: {}", stderr(&output));
    let store = tempfile::tempdir().expect("temporary directory");
    let damaged = fill_damaged_store(store.path());
    for format in ["collapsed", "jfr", "flamegraph"] {
        let text = export(format, store.path().as_os_str());
        assert!(text.contains(&format!("warning: samples of {} are missing", damaged.display())), "{text}");
    }
    let whole = Recorded::new();
    let compared = tickwalk([OsStr::new("diff"), whole.recording.as_os_str(), recording]);
    let expected = format!("warning: {}: the recording is cut off", recorded.recording.display());
    assert!(stderr(&compared).starts_with(&expected), "{}", stderr(&compared));
    // The server stands for a collector whose store is damaged and has two modes.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = BufReader::new(socket.expect("a connection"));
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") && socket.read_line(&mut request).expect("a line") > 0 {}
            let answer = match request.split('?').next() {
                Some("GET /api/v1/export") => "main 1\n",
                Some("GET /api/v1/processes") if !request.contains("process=silent") => {
                    r#"{"warnings":["samples are missing"],"warning_of_sums":"modes are mixed"}"#
                }
                _ => "",
            };
            let (length, socket) = (answer.len(), socket.get_mut());
            write!(
                socket,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
            )
            .expect("written");
        }
    });
    assert_eq!(export("pprof", OsStr::new(&url)), "warning: samples are missing\n");
    let both = "warning: samples are missing\nwarning: modes are mixed\n";
    assert_eq!(export("collapsed", OsStr::new(&url)), both);
    let silent = tickwalk(["export", "--format", "pprof", "--process", "silent", &url]);
    assert_eq!(stderr(&silent), "warning: the collector did not say whether samples are missing\n");
}

/// Fills a store with two sessions, of which the samples of one cannot be read; returns the damaged file.
fn fill_damaged_store(directory: &Path) -> PathBuf {
    let other = tempfile::tempdir().expect("temporary directory");
    fill_store(directory, 1);
    let file = fill_store(other.path(), 2);
    let partition = rusqlite::Connection::open(&file).expect("a partition");
    partition.execute("UPDATE raw SET block = x'00'", []).expect("written");
    drop(partition);
    // The name says that it began long ago, so it is closed.
    let damaged =
        directory.join("000000000001-000").with_extension(file.extension().expect("of a partition"));
    fs::copy(file, &damaged).expect("a file");
    damaged
}

/// Makes a store with a session; returns its file.
fn fill_store(directory: &Path, session: u64) -> PathBuf {
    let store = Store::open(directory, Retention::default()).expect("a new store");
    let mut stream = support::small();
    stream.rename(session);
    let Some(Body::Hello(hello)) = stream.messages()[0].body.clone() else { panic!("hello comes first") };
    let writer = store.session(&hello).expect("open store");
    let framed = |message: &AgentMessage| FramedMessage::encode(message.clone(), Checksums::Optional);
    let messages: Result<Vec<_>, _> = stream.messages().iter().map(framed).collect();
    writer.append(messages.expect("short messages")).expect("stored");
    drop(writer);
    store.close().expect("written");
    let mut files = fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("a file").path());
    files.find(|path| is_partition(path)).expect("a partition")
}

/// Lines stand beside the text of their file; a recording cannot name a file outside of the folders that were given.
#[test]
fn a_method_is_annotated_with_its_source() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (folder, secret) = (directory.path().join("src"), directory.path().join("secret.txt"));
    fs::create_dir_all(folder.join("shop")).expect("folders");
    fs::write(
        folder.join("shop/Cart.java"),
        "package shop;\nclass Cart {\n  int total() {\n    return 1;\n  }\n}\n",
    )
    .expect("a file");
    fs::write(&secret, "secret\n").expect("a file");
    let mut stream = support::Stream::new();
    stream.thread(1, "main", proto::v1::ThreadKind::Java);
    for (method, file, line, times) in
        [("shop/Cart.total", "Cart.java", 4, 3), ("shop/Outside.read", "../../secret.txt", 1, 1)]
    {
        let frame = stream.frame(proto::v1::FrameKind::C2, method);
        stream.line(line);
        stream.source_file(file);
        let stack = stream.stack(&[frame], "end_of_stack");
        (0..times).for_each(|_| stream.sample(1, stack, support::INTERVAL_NS));
    }
    stream.goodbye();
    let recording = directory.path().join("shop.tickwalk");
    fs::write(&recording, stream.bytes()).expect("write");
    let (recording, folder) = (recording.to_str().expect("text"), folder.to_str().expect("text"));
    let annotate = |more: &[&str]| stdout(&tickwalk([&["annotate", recording], more].concat()));
    let text = annotate(&["--source-path", folder]);
    assert!(text.starts_with("shop.Cart.total  (shop/Cart.java)"), "{text}");
    let hot = text.lines().find(|line| line.contains("return 1;")).unwrap_or_else(|| panic!("{text}"));
    assert!(hot.contains("75.0 %") && hot.contains(" 4 "), "{hot}");
    assert!(annotate(&[]).contains("75.0 %"), "lines are shown without text");
    let outside = annotate(&["Outside.read", "--source-path", folder]);
    assert!(outside.contains("25.0 %") && !outside.contains("secret\n"), "{outside}");
    check_error(&["annotate", recording, "no.Such"], 1, "no sample is in a method");
    check_error(
        &["annotate", recording, "--source-path", "/nonexistent"],
        1,
        "name a folder, a .jar or a .zip",
    );
    check_error(
        &["annotate", "http://127.0.0.1:1", "--source-path", folder],
        1,
        "has no effect on a collector",
    );
}

#[test]
fn options_without_effect_are_errors() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().to_str().expect("text");
    for (options, message) in [
        (&["--dir", path, "--http", "127.0.0.1:0"][..], "--http has no effect without --store"),
        (&["--dir", path, "--keep", "7d"], "--keep has no effect without --store"),
        (&["--dir", path, "--keep-hours", "7d"], "--keep-hours has no effect without --store"),
        (&["--dir", path, "--http-insecure"], "--http-insecure has no effect without --store"),
        (&["--store", path, "--forward-every", "5s"], "--forward-every has no effect without --forward"),
        (&["--store", path, "--insecure", "--listen", "unix:/x"], "--insecure has no effect on unix:/x"),
        (
            &["--store", path, "--tls-cert", "a", "--tls-key", "b"],
            "--tls-cert and --tls-key have no effect on",
        ),
        (&["--store", path, "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"], "pass --http-token-file"),
    ] {
        check_error(&[&["collect"], options].concat(), 1, message);
    }
    check_error(&["collect", "--store", path, "--max-connections", "0"], 2, "1..=4096");
}

/// A proxy with TLS in front of a collector, whose certificate the system trusts, gets the headers.
#[test]
fn sources_may_be_encrypted_and_requests_have_headers() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let roots = directory.path().join("roots.pem");
    fs::write(&roots, made.cert.pem()).expect("written");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)
        })
        .expect("a configuration");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://localhost:{}/", listener.local_addr().expect("bound").port());
    let serve = |answer: &str| {
        let (socket, _) = listener.accept().expect("a connection");
        let session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
        let mut stream = rustls::StreamOwned::new(session, socket);
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
            request.push(byte[0]);
        }
        // A client that refuses the certificate is gone.
        let _ = stream.write_all(answer.as_bytes());
        String::from_utf8(request).expect("text")
    };
    let run = |variables: &[(&str, &str)]| {
        let mut command = command();
        command.args([
            "view",
            "threads",
            &url,
            "--header",
            "Authorization: Bearer sesame",
            "--header",
            "X-Tenant: 7",
        ]);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    };
    let trusting = run(&[("SSL_CERT_FILE", roots.to_str().expect("text"))]);
    let request = serve("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nthread\n");
    let output = trusting.wait_with_output().expect("ends");
    assert_eq!(stdout(&output), "thread\n", "{}", stderr(&output));
    assert!(request.starts_with("GET /api/v1/view/threads?limit="), "{request}");
    let request = request.to_ascii_lowercase();
    assert!(
        request.contains("\r\nauthorization: bearer sesame\r\n") && request.contains("\r\nx-tenant: 7\r\n")
    );
    let suspicious = run(&[("SSL_CERT_FILE", "/dev/null")]);
    assert_eq!(serve(""), "", "nothing is sent to a stranger");
    let output = suspicious.wait_with_output().expect("ends");
    assert!(!output.status.success() && stderr(&output).contains("check the address, its certificate"));
    check_error(&["view", "threads", &url, "--header", "nonsense"], 2, "write NAME: VALUE");
}

/// The agent's options are the agent's own definitions; a mistake ends the command before the program starts.
#[test]
fn options_are_checked_before_the_program_starts() {
    let directory = script("java", "echo started");
    for (options, message) in [
        (&["--mode", "alloc"][..], "'alloc' is not 'cputime'"),
        (&["-e", "alloc"], "option 'event': 'alloc' is not sampled"),
        (&["--agent-option", "intervall=1ms"], "unknown option 'intervall'; did you mean interval?"),
        (&["--agent-option", "depth=1"], "option 'depth': '1' is not"),
        (&["--mode=wall", "--budget=1%"], "option 'budget=1%' has no effect with mode=wall"),
        (&["-d", "100ms"], "option 'duration'"),
        (&["-i", "1ns"], "option 'interval': '1ns' is not"),
    ] {
        let output = record(directory.path(), "java", options).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(message), "{options:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{options:?}: the program ran");
    }
    let output = record(directory.path(), "java", &[]).env("TICKWALK_DEPTH", "1").output();
    let output = output.expect("the binary runs");
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("option 'depth'"),
        "{}",
        stderr(&output)
    );
    // No JVM is looked for either: there is no process of this number.
    for verb in [&["attach"][..], &["start"], &["record", "-p"]] {
        let arguments = [&verb[..1], &["--agent-option", "colour=red"], &verb[1..], &["999999999"]].concat();
        check_error(&arguments, 2, "unknown option 'colour'");
    }
    check_error(&["start", "-o", "a.parquet", "999999999"], 2, "tickwalk export -o a.parquet");
    check_error(&["top", "-p", "999999999", "--mode", "api2"], 2, "'api2' is not 'cputime'");
}

#[test]
fn a_jvm_can_be_named_by_its_command() {
    for verb in [&["attach"][..], &["start"], &["stop"], &["dump"], &["status"], &["record", "-p"]] {
        check_error(&[verb, &["no-such-program"]].concat(), 1, "no JVM has 'no-such-program' in its command");
    }
    check_error(&["record", "--ssh", "web1", "-p", "app.jar", "-d", "1s"], 1, "write the process id");
}

#[test]
fn a_page_of_the_usual_recording() {
    let recorded = Recorded::new();
    let directory = recorded.directory.path();
    fs::rename(&recorded.recording, directory.join("recording.tickwalk")).expect("renamed");
    let output = command().current_dir(directory).arg("flamegraph").output().expect("the binary runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(directory.join("recording.html").exists(), "{}", stderr(&output));
}
