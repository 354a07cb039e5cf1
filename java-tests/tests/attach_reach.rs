//! `tickwalk attach` reaches JVMs with their own `/tmp`, in other pid namespaces and of other users, and JVMs whose
//! files were replaced; it recognises those that cannot be attached to without disturbing them.
//!
//! The tests make namespaces with `unshare` and other users with `setpriv`; where that is not allowed, they are
//! skipped.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use java_tests::reached::{assert_refused, is_allowed, with_burner};
use java_tests::{Finished, Jdk, binaries, on_every_jdk, on_jdks, run, tickwalk, visible};

/// Most profiles until one has a sample.
const ATTEMPTS: usize = 3;

/// Attaches to a JVM; again if it got no processor while it was profiled.
fn attach(options: &[&str], folder: &Path, pid: i64) -> Finished {
    let attempt = || {
        let recording = folder.join("recording.tickwalk").display().to_string();
        tickwalk(&[&["attach"], options, &["-o", &recording, &pid.to_string()]].concat())
    };
    let has_run = |finished: &Finished| {
        !finished.stderr.contains("note: no samples: the program used almost no CPU time")
    };
    (0..ATTEMPTS).map(|_| attempt()).find(has_run).expect("the JVM gets a processor")
}

const ONE_SECOND: [&str; 2] = ["--duration", "1s"];

fn assert_profiled(attached: &Finished) {
    assert_eq!(attached.exit_code(), 0, "{}", attached.stderr);
    assert!(attached.stderr.contains("Burner.burn"), "{}", attached.stderr);
}

/// Returns the names in a directory that the JVM sees, without those that the JVM itself has made.
fn left_in(pid: i64, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/root{directory}")).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("tickwalk-") || name.contains("attach_pid")).collect()
}

/// Returns the paths of the agents that a process has mapped.
fn agents(pid: i64) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a running process");
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned()));
    let mut found: Vec<String> = paths.filter(|path| path.contains("/libtickwalk")).collect();
    found.sort();
    found.dedup();
    found
}

const PRIVATE_TMP: [&str; 6] =
    ["unshare", "-m", "sh", "-c", r#"mount -t tmpfs none /tmp && exec "$@""#, "sh"];
const PID_NAMESPACE: [&str; 9] = [
    "unshare",
    "-p",
    "-f",
    "-m",
    "--mount-proc",
    "sh",
    "-c",
    r#"mount -t tmpfs none /tmp && exec "$@""#,
    "sh",
];
const OTHER_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

on_every_jdk! { concurrent;
    /// A private `/tmp`, like under systemd with PrivateTmp=yes.
    fn attaches_to_a_jvm_with_its_own_tmp(jdk) {
        if !is_allowed(&PRIVATE_TMP) {
            return;
        }
        with_burner(jdk, &PRIVATE_TMP, &[], |jvm, folder| {
            assert_eq!(jvm.row["state"], "idle", "{}", jvm.row);
            assert!(jvm.row["container"].is_string(), "{}", jvm.row);
            assert!(jvm.row["jdk"].as_str().is_some_and(|text| text.starts_with(&jdk.feature.to_string())), "{}", jvm.row);
            assert_profiled(&attach(&ONE_SECOND, folder, jvm.pid));
            assert_eq!(left_in(jvm.pid, "/tmp"), Vec::<String>::new());
        });
    }
}

on_every_jdk! { concurrent;
    /// Like in a container: the JVM is process 1 for itself.
    fn attaches_to_a_jvm_in_another_pid_namespace(jdk) {
        if !is_allowed(&PID_NAMESPACE) {
            return;
        }
        with_burner(jdk, &PID_NAMESPACE, &[], |jvm, folder| {
            assert!(jvm.pid > 1 && jvm.row["container"].is_string(), "{}", jvm.row);
            assert_profiled(&attach(&ONE_SECOND, folder, jvm.pid));
            assert_eq!(left_in(jvm.pid, "/tmp"), Vec::<String>::new());
        });
    }
}

/// A user who is the superuser for itself only.
const ROOTLESS: [&str; 15] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "unshare",
    "-U",
    "-r",
    "-m",
    "-p",
    "-f",
    "--mount-proc",
    "sh",
    "-c",
    r#"mount -t tmpfs none /tmp && exec "$@""#,
    "sh",
];

on_jdks! { concurrent 11, 21;
    /// Like in a container without the superuser's rights: the JVM is user 0 for itself, and the superuser outside has
    /// no number there.
    fn attaches_to_a_jvm_in_another_user_namespace(jdk) {
        if !is_allowed(&ROOTLESS) {
            return;
        }
        with_burner(jdk, &ROOTLESS, &[], |jvm, folder| {
            assert_eq!(jvm.row["user"], "nobody", "{}", jvm.row);
            assert_profiled(&attach(&ONE_SECOND, folder, jvm.pid));
            assert_eq!(left_in(jvm.pid, "/tmp"), Vec::<String>::new());
        });
    }
}

on_jdks! { concurrent 17;
    /// In a container the library of this command is not in the file system, and its `/tmp` may be mounted noexec.
    fn brings_the_library_to_a_jvm_that_does_not_see_it(jdk) {
        let programs = visible::programs();
        let hides = format!(
            r#"mount -t tmpfs -o noexec none /tmp && mount -t tmpfs none {} && exec "$@""#,
            programs.display()
        );
        let agent = programs.join("libtickwalk.so").display().to_string();
        let launcher = ["unshare", "-m", "sh", "-c", &hides, "sh"];
        if !is_allowed(&launcher) {
            return;
        }
        with_burner(jdk, &launcher, &[], |jvm, folder| {
            for _ in 0..2 {
                assert_profiled(&attach(&["--agent", &agent, "--duration", "1s"], folder, jvm.pid));
            }
            let [agent] = &agents(jvm.pid)[..] else { panic!("{:?}", agents(jvm.pid)) };
            assert!(agent.contains("/libtickwalk-") && agent.ends_with(" (deleted)"), "{agent}");
            for directory in ["/tmp", "/dev/shm", "/var/tmp"] {
                assert_eq!(left_in(jvm.pid, directory), Vec::<String>::new());
            }
        });
    }
}

on_jdks! { concurrent 17;
    /// In a container where no file could be loaded that a command writes, a copy lies at the path of the library.
    fn loads_a_copy_at_the_path_of_the_library(jdk) {
        let programs = visible::programs();
        let (agent_text, folder) = (programs.join("libtickwalk.so").display().to_string(), programs.display());
        let options = ["--agent", &agent_text, "--duration", "1s"];
        let noexec = |place: &str| format!("mount -t tmpfs -o noexec none {place}");
        let noexec = ["/tmp", "/dev/shm"].map(noexec).join(" && ");
        // The test's own folder is there.
        let noexec = format!("{noexec} && mount --bind /var/tmp /var/tmp && mount -o remount,bind,noexec /var/tmp");
        let isolate = |copy: &str| format!(r#"exec 3<{agent_text} && mount -t tmpfs none {folder} && {copy} && exec 3<&- && {noexec} && exec "$@""#);
        let (with, without) = (isolate(&format!("cat <&3 >{agent_text}")), isolate("true"));
        let launcher = |script| ["unshare", "-m", "sh", "-c", script, "sh"];
        if !is_allowed(&launcher(&with)) {
            return;
        }
        with_burner(jdk, &launcher(&with), &[], |jvm, folder| {
            for _ in 0..2 {
                assert_profiled(&attach(&options, folder, jvm.pid));
            }
            assert_eq!(agents(jvm.pid), std::slice::from_ref(&agent_text));
        });
        with_burner(jdk, &launcher(&without), &[], |jvm, folder| {
            assert_refused(&attach(&options, folder, jvm.pid), "pass that path with --agent");
        });
    }
}

on_every_jdk! { concurrent;
    /// The superuser attaches to a JVM of another user, who may not read the library. The copy is loaded once.
    fn attaches_to_a_jvm_of_another_user_who_cannot_read_the_library(jdk) {
        if !is_allowed(&OTHER_USER) {
            return;
        }
        with_burner(jdk, &OTHER_USER, &[], |jvm, folder| {
            assert_eq!(jvm.row["user"], "nobody", "{}", jvm.row);
            let hidden = folder.join("hidden");
            fs::create_dir(&hidden).expect("made");
            fs::set_permissions(&hidden, Permissions::from_mode(0o700)).expect("own folder");
            let library = hidden.join("libtickwalk.so");
            fs::copy(binaries::agent(), &library).expect("copied");
            let library = library.display().to_string();
            for _ in 0..3 {
                let attached = attach(&["--agent", &library, "--duration", "1s"], folder, jvm.pid);
                assert_profiled(&attached);
            }
            let [agent] = &agents(jvm.pid)[..] else { panic!("{:?}", agents(jvm.pid)) };
            assert!(agent.ends_with(" (deleted)"), "{agent}");
            assert!(!Path::new(agent).parent().expect("a folder").exists(), "{agent}");
        });
    }
}

on_jdks! { concurrent 17, 25;
    /// A user without rights gets one line that names the owner.
    fn another_user_is_named(jdk) {
        if !is_allowed(&OTHER_USER) {
            return;
        }
        with_burner(jdk, &[], &[], |jvm, _| {
            let mut command = Command::new(OTHER_USER[0]);
            command.args(&OTHER_USER[1..]).arg(visible::programs().join("tickwalk")).arg("attach").arg("-o");
            command.arg("/var/tmp/never-written.tickwalk").arg(jvm.pid.to_string());
            let refused = run(command, |_| ());
            assert_refused(&refused, "belongs to user root; run tickwalk as that user");
        });
    }
}

on_every_jdk! { concurrent;
    /// The attach mechanism is found to be off before a signal makes the JVM print its threads, wherever the option
    /// stands.
    fn a_jvm_that_disables_attaching_is_not_disturbed(jdk) {
        let option = "-XX:+DisableAttachMechanism";
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), format!("{option}\n")).expect("written");
        let in_file = format!("-XX:VMOptionsFile={}", file.path().display());
        let environment = ["env".to_owned(), format!("JAVA_TOOL_OPTIONS={option}")];
        let environment: Vec<&str> = environment.iter().map(String::as_str).collect();
        let cases: [(&[&str], &[&str]); 5] = [
            (&[], &[option]),
            (&[], &[option, "-XX:-UsePerfData"]),
            (&environment, &[]),
            (&environment, &["-XX:-UsePerfData"]),
            (&[], &[&in_file, "-XX:-UsePerfData"]),
        ];
        for (launcher, options) in cases {
            let program = with_burner(jdk, launcher, options, |jvm, folder| {
                assert_eq!(jvm.row["state"], "attach_disabled", "{}", jvm.row);
                let refused = attach(&ONE_SECOND, folder, jvm.pid);
                assert_refused(&refused, "it runs with -XX:+DisableAttachMechanism");
            });
            assert!(!program.stdout.contains("Full thread dump"), "{launcher:?} {options:?}: {}", program.stdout);
        }
    }
}

on_jdks! { concurrent 17, 25;
    /// A library that was replaced after the JVM loaded it: the new one is loaded beside the old one.
    fn attaches_after_the_agent_was_upgraded(jdk) {
        with_burner(jdk, &[], &[], |jvm, folder| {
            let library = folder.join("libtickwalk.so");
            let library_text = library.display().to_string();
            let options = ["--agent", &library_text, "--duration", "1s"];
            fs::copy(binaries::agent(), &library).expect("copied");
            assert_profiled(&attach(&options, folder, jvm.pid));
            fs::remove_file(&library).expect("removed");
            fs::copy(binaries::agent(), &library).expect("copied");
            for _ in 0..2 {
                assert_profiled(&attach(&options, folder, jvm.pid));
            }
            let loaded = agents(jvm.pid);
            assert_eq!(loaded.len(), 2, "{loaded:?}");
            assert!(loaded.iter().any(|path| *path == format!("{library_text} (deleted)")), "{loaded:?}");
        });
    }
}

on_jdks! { concurrent 11, 25;
    /// A JDK that was removed while the JVM runs, as an upgrade does.
    fn attaches_after_the_jdk_was_removed(jdk) {
        // Links to files need the same file system.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable folder");
        let home: PathBuf = folder.path().join("jdk");
        let copied = Command::new("cp").arg("-al").arg(fs::canonicalize(&jdk.home).expect("a JDK")).arg(&home).status();
        if !copied.is_ok_and(|status| status.success()) {
            let _ = fs::remove_dir_all(&home);
            let copied = Command::new("cp").arg("-r").arg(&jdk.home).arg(&home).status().expect("cp");
            assert!(copied.success());
        }
        let linked = Jdk { home: home.clone(), ..jdk.clone() };
        with_burner(&linked, &[], &[], |jvm, folder| {
            fs::remove_dir_all(&home).expect("removed");
            let maps = fs::read_to_string(format!("/proc/{}/maps", jvm.pid)).expect("a process");
            assert!(maps.contains("/libjvm.so (deleted)"));
            assert_profiled(&attach(&ONE_SECOND, folder, jvm.pid));
        });
    }
}
