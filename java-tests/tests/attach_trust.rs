//! A command talks to the named process and to no other one, and a process of another user that is no JVM,
//! or pretends to be one, neither stops it nor takes its memory.
//!
//! The tests need the right to make namespaces and to take other users' ids; where that is not allowed, they are
//! skipped.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use java_tests::reached::{assert_refused, is_allowed, shared_folder, with_burner};
use java_tests::{Finished, Jdk, binaries, on_jdks, tickwalk};

fn attach(folder: &Path, pid: &str) -> Finished {
    let recording = folder.join("recording.tickwalk").display().to_string();
    tickwalk(&["attach", "--duration", "1s", "-o", &recording, pid])
}

/// A pid namespace of its own, with the files of this process.
const ONLY_PIDS: [&str; 4] = ["unshare", "-p", "-f", "--mount-proc"];

on_jdks! { concurrent 17, 25;
    /// Two containers with one `/tmp`: each JVM is process 1 for itself, so both have the socket `/tmp/.java_pid1`.
    fn a_jvm_with_the_number_of_another_one_is_refused(jdk) {
        if !is_allowed(&ONLY_PIDS) {
            return;
        }
        // One test at a time makes a process 1 in this /tmp.
        let alone = fs::File::open(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        alone.lock().expect("a lock");
        with_burner(jdk, &ONLY_PIDS, &[], |first, _| {
            let first = first.pid.to_string();
            // A JVM that starts removes a socket of its number, so the first one opens its socket when both run.
            with_burner(jdk, &ONLY_PIDS, &[], |second, folder| {
                let second = second.pid.to_string();
                for _ in 0..2 {
                    let attached = attach(folder, &first);
                    assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
                    let expected = format!("another process ({first}) listens on /tmp/.java_pid1");
                    assert_refused(&attach(folder, &second), &expected);
                    let file = folder.join("started.tickwalk").display().to_string();
                    assert_refused(&tickwalk(&["start", "-o", &file, &second]), &expected);
                    assert_refused(&tickwalk(&["dump-stacks", &second]), &expected);
                    // The mappings tell that it has no agent, so no request is sent.
                    assert_refused(&tickwalk(&["stop", &second]), "no profile runs in JVM");
                }
            });
        });
    }
}

const OTHER_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A program of another user that maps a file named `libjvm.so` and prints a line when it is ready.
struct Pretender {
    child: Child,
    home: PathBuf,
}

/// Takes the other user's ids (the interpreter may be one that this user cannot read), makes the mapping, handles
/// SIGQUIT as a JVM does, and becomes what the mode says: until its input ends it listens on the socket of a JVM and
/// answers in this way, or does nothing.
const PRETEND: &str = r#"
import mmap, os, signal, socket, sys
mode, home = sys.argv[1:3]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
signal.signal(signal.SIGQUIT, lambda *_: None)
file = os.open(home + "/lib/server/libjvm.so", os.O_RDONLY)
mapping = mmap.mmap(file, 4096, prot=mmap.PROT_READ)
path = "/tmp/.java_pid%d" % os.getpid()
listener = socket.socket(socket.AF_UNIX)
if mode == "full":
    listener.bind(path)
    listener.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for one in waiting:
        one.setblocking(False)
        try:
            one.connect(path)
        except BlockingIOError:
            pass
elif mode != "none":
    listener.bind(path)
    listener.listen(5)
print("ready", flush=True)
if mode in ("endless", "escapes"):
    # The first connection may only look who listens.
    peer, _ = listener.accept()
    while not peer.recv(4096):
        peer, _ = listener.accept()
    try:
        if mode == "escapes":
            peer.sendall(b"1\n\x1b]0;title\x07\x1b[31mred\nsecond line")
        while mode == "endless":
            peer.sendall(b"A" * 65536)
    except OSError:
        pass
    peer.close()
sys.stdin.read()
if os.path.exists(path):
    os.unlink(path)
"#;

impl Pretender {
    /// Starts one whose JDK has what `release` makes at the path of the file of that name.
    fn start(mode: &str, folder: &Path, release: impl FnOnce(&Path)) -> Self {
        let home = folder.join("jdk");
        fs::create_dir_all(home.join("lib/server")).expect("own folder");
        fs::write(home.join("lib/server/libjvm.so"), [0; 8192]).expect("own folder");
        release(&home.join("release"));
        let mut command = Command::new("python3");
        command.args(["-c", PRETEND, mode]).arg(&home);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { child, home }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends it.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("a child");
    }
}

/// Calls `check` with a pretender in this mode, if this process may take another user's ids.
fn with_pretender(mode: &str, release: impl FnOnce(&Path), check: impl FnOnce(&Pretender, &Path)) {
    if !is_allowed(&OTHER_USER) {
        return;
    }
    let folder = shared_folder();
    let pretender = Pretender::start(mode, folder.path(), release);
    check(&pretender, folder.path());
    pretender.end();
}

/// Asserts that `tickwalk list` shows the process without a release of its JDK.
fn assert_listed_without_release(pretender: &Pretender) {
    let finished = tickwalk(&["list", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let pid: i64 = pretender.pid().parse().expect("a number");
    let row = rows.as_array().expect("a list").iter().find(|row| row["pid"] == pid).expect("it is listed");
    assert!(row["jdk"].is_null(), "{row}");
    assert!(tickwalk(&["doctor"]).stdout.contains(&pretender.pid()));
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let pipe = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("made");
    with_pretender("none", pipe, |pretender, _| assert_listed_without_release(pretender));
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let link = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).expect("made");
    with_pretender("none", link, |pretender, _| assert_listed_without_release(pretender));
}

/// The version that the file gives reaches a terminal.
#[test]
fn control_characters_in_a_list_are_escaped() {
    let write = |path: &Path| fs::write(path, "JAVA_VERSION=\"17\x1b[31m\"\n").expect("written");
    with_pretender("none", write, |pretender, _| {
        let list = tickwalk(&["list"]).stdout;
        let row = list.lines().find(|line| line.contains(&pretender.pid())).expect("a row");
        assert!(row.contains(r"17\u001b[31m") && !row.contains('\x1b'), "{row}");
        assert!(pretender.home.exists());
    });
}

#[test]
fn an_answer_without_an_end_is_refused() {
    with_pretender(
        "endless",
        |_| (),
        |pretender, folder| {
            assert_refused(&attach(folder, &pretender.pid()), "sent a longer answer than a JVM does");
        },
    );
}

#[test]
fn control_characters_of_an_answer_are_escaped() {
    with_pretender(
        "escapes",
        |_| (),
        |pretender, folder| {
            let expected = r"the JVM refused the agent: \u001b]0;title\u0007\u001b[31mred; second line";
            assert_refused(&attach(folder, &pretender.pid()), expected);
        },
    );
}

/// Connecting to a listener whose queue is full waits as long as the caller allows.
#[test]
fn a_listener_that_accepts_nothing_is_refused() {
    with_pretender(
        "full",
        |_| (),
        |pretender, folder| {
            assert_refused(&attach(folder, &pretender.pid()), "did not answer within");
        },
    );
}

/// Takes the name by which commands exclude each other, until its input ends.
const SQUAT: &str = r#"
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
holder = socket.socket(socket.AF_UNIX)
holder.bind("\0tickwalk-dump-stacks-" + sys.argv[1])
holder.listen(5)
print("ready", flush=True)
sys.stdin.read()
"#;

on_jdks! { concurrent 21;
    /// Dumps of one JVM exclude each other by a name that every user may take.
    fn another_user_cannot_prevent_dumps(jdk) {
        if !is_allowed(&OTHER_USER) {
            return;
        }
        with_burner(jdk, &[], &[], |jvm, _| {
            let pid = jvm.pid.to_string();
            let mut command = Command::new("python3");
            command.args(["-c", SQUAT, &pid]);
            let mut squatter = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
            let mut line = String::new();
            let out = squatter.stdout.take().expect("piped");
            BufReader::new(out).read_line(&mut line).expect("a line");
            let dumped = tickwalk(&["dump-stacks", &pid]);
            assert_eq!(dumped.exit_code(), 0, "{line}{}", dumped.stderr);
            assert!(dumped.stdout.contains("Burner.burn"), "{}", dumped.stdout);
            drop(squatter.stdin.take());
            squatter.wait().expect("a child");
        });
    }
}

const OTHER_USER_WITH_TMP: [&str; 6] = [
    "unshare",
    "-m",
    "sh",
    "-c",
    r#"mount -t tmpfs none /tmp && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@""#,
    "sh",
];

/// Starts `tickwalk attach` with an umask that takes no right away, and returns the modes of its folders in the JVM's
/// `/tmp`.
fn modes_of_private_folders(jdk: &Jdk) -> Vec<u32> {
    let mut modes = Vec::new();
    with_burner(jdk, &OTHER_USER_WITH_TMP, &[], |jvm, folder| {
        let mut command = Command::new("sh");
        command.args(["-c", r#"umask 000; exec "$@""#, "sh"]).arg(binaries::tickwalk());
        command.args(["attach", "-o"]).arg(folder.join("recording.tickwalk")).arg(jvm.pid.to_string());
        let mut attaching = command.stderr(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let log = attaching.stderr.take().expect("piped");
        BufReader::new(log).read_line(&mut line).expect("a line");
        assert!(line.contains("Ctrl-C ends the profile only"), "{line}");
        let root = PathBuf::from(format!("/proc/{}/root", jvm.pid));
        let entries = fs::read_dir(root.join("tmp")).expect("a folder");
        let is_ours = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("tickwalk-");
        let mode = |entry: fs::DirEntry| entry.metadata().expect("a folder").permissions().mode() & 0o777;
        modes = entries.map(|entry| entry.expect("an entry")).filter(is_ours).map(mode).collect();
        let child = nix::unistd::Pid::from_raw(i32::try_from(attaching.id()).expect("an id"));
        nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGINT).expect("it runs");
        assert!(attaching.wait().expect("a child").success());
    });
    modes
}

on_jdks! { concurrent 21;
    /// Otherwise another user could replace the library there before the JVM opens it.
    fn private_folders_are_private_under_every_umask(jdk) {
        if is_allowed(&OTHER_USER_WITH_TMP) {
            assert_eq!(modes_of_private_folders(jdk), [0o700]);
        }
    }
}
