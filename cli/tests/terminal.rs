//! Reports in the terminal: callers, call trees, stacks as text, pages that are opened.

#[path = "../../collector/tests/support/mod.rs"]
#[allow(dead_code, reason = "the recording only")]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Returns a folder with a recording of a small session.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("temporary directory");
    fs::write(folder.path().join("recording.tickwalk"), support::small().bytes()).expect("write");
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwalk"));
    command.args(arguments).current_dir(folder);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(folder().path(), arguments).output().expect("the binary runs")
}

#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_call_tree_is_indented_where_it_branches() {
    let expected = "\
Call tree of 160 ms CPU time
   total     self  method
  50.0 %    0.0 %  + com.example.Main.main
  31.2 %    0.0 %    + com.example.Work.run
  31.2 %   31.2 %      java.util.HashMap.get
  18.8 %    0.0 %    + com.example.Work.descend
  18.8 %    0.0 %      com.example.Work.descend
  18.8 %   18.8 %      com.example.Work.descend
  25.0 %   25.0 %  + PhaseIdealLoop::build_and_optimize(LoopOptsMode)
  12.5 %    0.0 %  + [depth_limit]
  12.5 %   12.5 %    com.example.Work.parse
left out: 4 rows with 12.5 % of the time, each below 10.0 % or more than 64 frames deep
";
    assert_eq!(printed(&["tree", "--min-share", "10%"]), expected);
    let shallow = printed(&["tree", "--depth", "1"]);
    assert!(shallow.contains("left out: 8 rows with ") && !shallow.contains("HashMap"), "{shallow}");
}

#[test]
fn callers_have_shares_of_the_time_of_a_method() {
    let expected = "\
com.example.Work.descend
30.0 ms CPU time with callees, 18.8 % of all; 30.0 ms of its own
   share        time  called by
 100.0 %     30.0 ms  + com.example.Main.main
";
    assert_eq!(printed(&["top", "--callers", "Work.descend", "recording.tickwalk"]), expected);
    let output = run(&["top", "--callers", "No.such", "recording.tickwalk"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no sample is in a method \"No.such\""));
}

#[test]
fn traces_are_the_heaviest_stacks() {
    let text = printed(&["export", "--format", "traces", "--limit", "1", "recording.tickwalk"]);
    let block = "\
--- 50000000 ns (31.25%), 5 samples
  [ 0] java.util.HashMap.get
  [ 1] com.example.Work.run
  [ 2] com.example.Main.main

5 further stacks have 110000000 ns (68.75%)
";
    assert!(text.contains(block), "{text}");
}

#[test]
fn written_files_are_named() {
    for arguments in [
        &["export", "recording.tickwalk", "-o", "app.traces"][..],
        &["top", "recording.tickwalk", "-o", "app.traces"],
        &["tree", "-o", "app.traces"],
    ] {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && message.ends_with(" app.traces\n"), "{arguments:?}: {message}");
    }
}

#[test]
fn a_page_is_opened_by_xdg_open() {
    let folder = folder();
    let opener = folder.path().join("xdg-open");
    fs::write(&opener, "#!/bin/sh\necho \"$1\" > opened\n").expect("written");
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).expect("a program");
    let open = |path: &Path| {
        let output = command(folder.path(), &["flamegraph", "--open"]).env("PATH", path).output();
        String::from_utf8(output.expect("the binary runs").stderr).expect("text")
    };
    assert_eq!(open(folder.path()), "flame graph  recording.html\n");
    assert_eq!(fs::read_to_string(folder.path().join("opened")).expect("opened"), "recording.html\n");
    let without = open(Path::new("/nonexistent"));
    let expected = "tickwalk: this machine has no xdg-open, so the page was not opened; open recording.html in a browser\n";
    assert!(without.ends_with(expected), "{without}");
}

#[test]
fn shells_complete_values() {
    let script = printed(&["completions", "bash"]);
    for values in
        ["collapsed traces flamegraph", "java virtual compiler", "cputime wall jvmti", "hot-methods "]
    {
        assert!(script.contains(values), "{values}");
    }
}
