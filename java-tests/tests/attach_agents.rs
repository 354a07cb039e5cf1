//! A profile and an agent are recognised by what they are: whatever the library's file is called, however many copies
//! are loaded, and in a JVM that hides its files from its own user. A JVM without a thread to spare is not disturbed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use java_tests::reached::{assert_refused, is_allowed, shared_folder, with_burner};
use java_tests::{
    Finished, Workload, binaries, create_end_file, native_library, on_every_jdk, on_jdks, run, succeed,
    tickwalk, visible,
};

fn state(pid: &str) -> String {
    let status: serde_json::Value =
        serde_json::from_str(&succeed(&["status", "--json", pid]).stdout).expect("JSON");
    status["state"].as_str().expect("a state").to_owned()
}

fn row_of(pid: &str) -> serde_json::Value {
    let rows: serde_json::Value = serde_json::from_str(&succeed(&["list", "--json"]).stdout).expect("JSON");
    let pid: i64 = pid.parse().expect("a number");
    rows.as_array().expect("a list").iter().find(|row| row["pid"] == pid).expect("a row").clone()
}

/// Asserts that every command sees the running profile, ends it, and that every command then sees none.
#[track_caller]
fn assert_profile_is_seen_and_ends(pid: &str, folder: &Path) {
    assert_eq!((state(pid).as_str(), row_of(pid)["state"].as_str()), ("running", Some("profiled")));
    let recording = folder.join("attached.tickwalk").display().to_string();
    let attach = ["attach", "--duration", "1s", "-o", &recording, pid];
    assert_refused(&tickwalk(&attach), "is already being profiled");
    succeed(&["stop", pid]);
    assert_refused(&tickwalk(&["stop", pid]), "no profile runs in JVM");
    assert_eq!(row_of(pid)["state"], "idle");
    succeed(&attach);
}

on_jdks! { concurrent 11, 25;
    fn an_agent_is_known_under_every_file_name(jdk) {
        for name in ["a.so", "libasyncProfiler.so"] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let (library, file) = (folder.path().join(name), folder.path().join("a.tickwalk"));
            fs::copy(binaries::agent(), &library).expect("copied");
            let option = format!("-agentpath:{}=file={}", library.display(), file.display());
            with_burner(jdk, &[], &[&option], |jvm, folder| {
                assert_profile_is_seen_and_ends(&jvm.pid.to_string(), folder);
            });
        }
    }
}

on_jdks! { concurrent 17;
    /// One waits for a start, the other one profiles.
    fn the_copy_that_profiles_answers(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let copies = ["a.so", "b.so"].map(|name| folder.path().join(name));
        for copy in &copies {
            fs::copy(binaries::agent(), copy).expect("copied");
        }
        let file = folder.path().join("a.tickwalk");
        let waiting = format!("-agentpath:{}=start=no", copies[0].display());
        let running = format!("-agentpath:{}=file={}", copies[1].display(), file.display());
        with_burner(jdk, &[], &[&waiting, &running], |jvm, folder| {
            assert_profile_is_seen_and_ends(&jvm.pid.to_string(), folder);
        });
    }
}

/// Profiles that begin and end at once.
const CYCLES: usize = 10;

on_every_jdk! { concurrent;
    /// The thread of a profile has the name of its parent until it sets its own.
    fn a_profile_that_has_just_begun_can_be_ended(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (end_file, file) = (folder.path().join("end-file"), folder.path().join("a.tickwalk"));
        let file = file.display().to_string();
        let burner = Workload::burner(0, &end_file);
        let mut cycles = 0;
        let program = burner.run_unprofiled_watched(jdk, |pid, _| {
            let pid = pid.to_string();
            while cycles < CYCLES {
                succeed(&["start", "-o", &file, &pid]);
                assert_eq!(row_of(&pid)["state"], "profiled");
                succeed(&["stop", &pid]);
                assert_eq!(row_of(&pid)["state"], "idle");
                cycles += 1;
            }
            create_end_file(&end_file);
        });
        assert_eq!((program.exit_code(), cycles), (0, CYCLES), "{}", program.stderr);
    }
}

const OTHER_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Runs a command of Tickwalk as the user of [`OTHER_USER`].
fn tickwalk_as_other_user(arguments: &[&str]) -> Finished {
    let mut command = Command::new(OTHER_USER[0]);
    command.args(&OTHER_USER[1..]).arg(visible::programs().join("tickwalk")).args(arguments);
    run(command, |_| ())
}

on_jdks! { concurrent 17, 25;
    /// Its files below `/proc` belong to the superuser.
    fn a_jvm_that_hides_from_its_own_user_is_profiled(jdk) {
        if !is_allowed(&OTHER_USER) {
            return;
        }
        let folder = shared_folder();
        let library = folder.path().join("libundumpable.so");
        fs::copy(native_library("undumpable"), &library).expect("copied");
        // The JVM's user must be able to read it.
        fs::set_permissions(&library, Permissions::from_mode(0o755)).expect("own file");
        let option = format!("-agentpath:{}", library.display());
        with_burner(jdk, &OTHER_USER, &[&option], |jvm, folder| {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("own folder");
            assert_hidden_jvm_is_profiled(jvm.pid, folder);
        });
    }
}

fn assert_hidden_jvm_is_profiled(id: i64, folder: &Path) {
    let pid = id.to_string();
    let at = |name: &str| folder.join(name).display().to_string();
    let (attached, started) = (at("attached.tickwalk"), at("started.tickwalk"));
    let list: serde_json::Value =
        serde_json::from_str(&tickwalk_as_other_user(&["list", "--json"]).stdout).expect("JSON");
    let row = list.as_array().expect("a list").iter().find(|row| row["pid"] == id).expect("a row");
    assert_eq!(row["state"], "undumpable", "{row}");
    let succeed = |arguments: &[&str]| {
        let finished = tickwalk_as_other_user(arguments);
        assert_eq!(finished.exit_code(), 0, "{arguments:?}: {}", finished.stderr);
        finished
    };
    let report = succeed(&["attach", "--duration", "1s", "-o", &attached, &pid]);
    assert!(report.stderr.contains("Burner.burn"), "{}", report.stderr);
    succeed(&["start", "-o", &started, &pid]);
    assert!(succeed(&["status", &pid]).stdout.contains("running for"));
    assert_refused(&tickwalk_as_other_user(&["start", "-o", &started, &pid]), "is already being profiled");
    succeed(&["stop", &pid]);
    // The superuser sees all of it.
    assert_eq!(row_of(&pid)["state"], "idle");
}

/// Number of threads that are free in each round; the first ones are too few for a profile.
const FREE_THREADS: [(usize, bool); 4] = [(0, false), (1, false), (3, false), (40, true)];

on_jdks! { concurrent 11, 25;
    /// HotSpot ends when it cannot start the thread for attachments.
    fn a_jvm_without_a_free_thread_is_not_asked(jdk) {
        // A user of its own, whose threads are those of the JVM.
        let user = (54_000 + jdk.feature).to_string();
        let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
        let launcher = ["setpriv", &uid, &gid, "--clear-groups"];
        if !is_allowed(&launcher) {
            return;
        }
        let options = ["-XX:+UseSerialGC", "-XX:-UseDynamicNumberOfCompilerThreads"];
        let options = if jdk.feature > 11 { &options[..] } else { &options[..1] };
        let program = with_burner(jdk, &launcher, options, |jvm, folder| {
            let pid = jvm.pid.to_string();
            let recording = folder.join("recording.tickwalk").display().to_string();
            for (free, is_enough) in FREE_THREADS {
                let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process").count();
                let limit = format!("--nproc={}:", threads + free);
                // Each user may lower the limits of its own processes.
                let mut command = Command::new(launcher[0]);
                command.args(&launcher[1..]).args(["prlimit", "--pid", &pid, &limit]);
                let limited = command.status();
                assert!(limited.expect("prlimit").success());
                let attached = tickwalk(&["attach", "--duration", "1s", "-o", &recording, &pid]);
                match is_enough {
                    true => assert_eq!(attached.exit_code(), 0, "{}", attached.stderr),
                    false => assert_refused(&attached, &format!("user {user} may have {} in all", threads + free)),
                }
            }
        });
        assert!(!program.stdout.contains("Full thread dump"), "{}", program.stdout);
    }
}
