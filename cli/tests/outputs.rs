//! Files that commands write: whole or not at all, and never the source itself.

#[path = "../../collector/tests/support/mod.rs"]
#[allow(dead_code, reason = "the recording only")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with a recording of a small session.
struct Folder {
    folder: TempDir,
    recording: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary directory");
        let recording = folder.path().join("small.tickwalk");
        fs::write(&recording, support::small().bytes()).expect("write");
        Folder { folder, recording }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the command in the folder.
    fn tickwalk(&self, arguments: &[&str]) -> Output {
        self.run(Command::new(env!("CARGO_BIN_EXE_tickwalk")).args(arguments))
    }

    fn run(&self, command: &mut Command) -> Output {
        command.current_dir(self.folder.path()).output().expect("the binary runs")
    }

    /// Checks that a command fails with `message`, and changes nothing in the folder.
    #[track_caller]
    fn check_refused(&self, arguments: &[&str], message: &str) {
        let before = content(self.folder.path());
        let output = self.tickwalk(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {complaint}");
        assert!(complaint.contains(message), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(before == content(self.folder.path()), "{arguments:?} changed the folder");
    }
}

/// Names and contents of the files in a folder.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).expect("bytes")))
        .collect();
    files.sort();
    files
}

#[test]
fn a_wrong_source_leaves_the_output_as_it_was_and_is_named() {
    let folder = Folder::new();
    for good in ["good.jfr", "good.html", "good.json", "good.samples.parquet", "good.stacks.parquet"] {
        fs::write(folder.path(good), "good").expect("write");
    }
    let missing = "tickwalk: typo.tickwalk: there is no such file";
    folder.check_refused(&["export", "typo.tickwalk", "-o", "good.jfr"], missing);
    folder.check_refused(&["export", "typo.tickwalk", "-o", "good.parquet"], missing);
    folder.check_refused(&["export", "typo.tickwalk", "--format", "collapsed"], missing);
    folder.check_refused(&["flamegraph", "typo.tickwalk", "-o", "good.html"], missing);
    folder.check_refused(&["query", "methods", "typo.tickwalk", "-o", "good.json"], missing);
    folder.check_refused(&["diff", "typo.tickwalk", "small.tickwalk", "-o", "good.json"], missing);
    folder.check_refused(&["top", "typo.tickwalk", "-o", "good.json"], missing);
    folder.check_refused(&["view", "processes", "typo.tickwalk", "-o", "good.json"], missing);
    folder.check_refused(&["annotate", "typo.tickwalk", "-o", "good.json"], missing);
}

#[test]
fn the_source_is_not_an_output() {
    let folder = Folder::new();
    fs::hard_link(&folder.recording, folder.path("other-name")).expect("a link");
    fs::copy(&folder.recording, folder.path("second.tickwalk")).expect("a copy");
    let source = "small.tickwalk";
    let refused = "small.tickwalk is what this command reads; name another file to write";
    for command in [
        &["export", "--format", "jfr", source, "-o", source][..],
        &["flamegraph", source, "-o", source],
        &["query", "methods", source, "-o", source],
        &["diff", "second.tickwalk", source, "-o", source],
        &["diff", "--fail-above", "5%", "a", "b", "--also-before", source, "-o", source],
        &["top", source, "-o", source],
        &["view", "processes", source, "-o", source],
        &["annotate", source, "-o", source],
        &["export", "--format", "jfr", "other-name", "-o", source],
    ] {
        folder.check_refused(command, refused);
    }
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    folder.check_refused(
        &["export", "small.tickwalk", "--format", "jfr", "-o", "/dev/full"],
        "cannot write /dev/full: No space left on device",
    );
}

/// `cat a.tickwalk b.tickwalk > both.tickwalk`, of which one is of wall time.
#[test]
fn sums_of_several_modes_have_a_warning() {
    let folder = Folder::new();
    let mut wall = support::small();
    wall.rename(0xbee);
    wall.set_mode(proto::v1::Mode::Wall);
    fs::write(folder.path("both.tickwalk"), [support::small().bytes(), wall.bytes()].concat())
        .expect("write");
    let warning = "warning: the sums mix modes whose times differ in meaning (cputime, wall); select one, as with --label";
    for command in [
        &["top", "both.tickwalk"][..],
        &["tree", "both.tickwalk"],
        &["view", "threads", "both.tickwalk"],
        &["flamegraph", "both.tickwalk"],
        &["export", "--format", "collapsed", "both.tickwalk"],
    ] {
        let output = folder.tickwalk(command);
        let all = [&output.stdout[..], &output.stderr].concat();
        let count = String::from_utf8_lossy(&all).matches(warning).count();
        assert_eq!(count, 1, "{command:?}: {}", String::from_utf8_lossy(&all));
        let one = folder.tickwalk(&[command, &["--label", "mode=wall"]].concat());
        assert!(
            !String::from_utf8_lossy(&[one.stdout, one.stderr].concat()).contains("mix modes"),
            "{command:?}"
        );
    }
}

#[test]
fn outputs_replace_what_is_there_and_leave_nothing_beside() {
    let folder = Folder::new();
    fs::write(folder.path("app.collapsed"), "old").expect("write");
    let output = folder.tickwalk(&["export", "small.tickwalk", "-o", "app.collapsed"]);
    assert!(output.status.success(), "{output:?}");
    let names: Vec<_> = content(folder.folder.path()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, [folder.path("app.collapsed"), folder.recording.clone()]);
    let text = fs::read_to_string(folder.path("app.collapsed")).expect("text");
    assert!(text.lines().count() > 0 && text != "old");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_in_one_line() {
    let folder = Folder::new();
    fs::write(folder.path("app.html"), "good").expect("write");
    let before = content(folder.folder.path());
    let export = ["export", "small.tickwalk", "-o", "app.html"];
    let output = folder
        .run(Command::new("prlimit").args(["--fsize=1000", env!("CARGO_BIN_EXE_tickwalk")]).args(export));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), &*complaint),
        (Some(1), "tickwalk: cannot write app.html: File too large (os error 27)\n")
    );
    assert!(before == content(folder.folder.path()));
}
