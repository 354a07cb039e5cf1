//! `tickwalk dump-stacks`: the stacks of all threads of a running JVM, native and Java frames, as text.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use java_tests::{Workload, create_end_file, on_every_jdk, tickwalk};

/// Signals that a process handles, as a mask.
fn handled_signals(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("SigCgt").to_owned()
}

/// Returns the lines of the stack of a thread.
fn stack_of<'d>(dump: &'d str, name: &str) -> Vec<&'d str> {
    let head = format!(" \"{name}\" (");
    let lines = dump.lines().skip_while(|line| !(line.starts_with("Thread ") && line.contains(&head)));
    lines.skip(1).take_while(|line| !line.is_empty()).collect()
}

/// Returns the place of the first line that begins with `frame`.
#[track_caller]
fn place(stack: &[&str], frame: &str) -> usize {
    stack.iter().position(|line| line.starts_with(frame)).unwrap_or_else(|| panic!("no {frame}: {stack:#?}"))
}

/// Asserts that a line is `symbol+0xOFFSET (0xADDRESS [module+0xOFFSET])`, the symbol optional.
#[track_caller]
fn check_native(line: &str) {
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let check = || {
        let (symbol, place) = line.strip_suffix("])")?.rsplit_once('(')?;
        let (address, module) = place.strip_prefix("0x")?.split_once(" [")?;
        let (_, offset) = module.rsplit_once("+0x")?;
        let symbol = symbol.trim_end();
        let is_named = symbol.is_empty() || symbol.rsplit_once("+0x").is_some_and(|(_, offset)| hex(offset));
        (address.len() == 16 && hex(address) && hex(offset) && is_named).then_some(())
    };
    assert!(check().is_some(), "{line}");
}

#[track_caller]
fn check_dump(dump: &str) {
    let main = stack_of(dump, "main");
    // The loop, its caller, and what called Java: the order on the stack.
    let places = ["Burner.burn(Burner.java:", "Burner.main(Burner.java:", "start_thread+0x"]
        .map(|frame| place(&main, frame));
    assert!(places.is_sorted(), "{main:#?}");
    check_native(main[places[2]]);
    // A waiting thread: the C library's wait, the VM, and the Java method that called it.
    let waiting = stack_of(dump, "Reference Handler");
    let java = place(&waiting, "java.lang.ref.Reference.waitForReferencePendingList");
    assert!(java > 2, "native frames lie above: {waiting:#?}");
    waiting[..java].iter().for_each(|line| check_native(line));
    assert!(waiting[..java].iter().any(|line| line.contains("[libjvm.so+0x")), "{waiting:#?}");
    // C++ names are readable.
    let is_readable = |line: &&str| line.starts_with("JavaCalls::call_helper+0x");
    assert!(main.iter().any(is_readable), "{main:#?}");
    // A thread that the VM does not know as a Java thread.
    let native = stack_of(dump, "VM Thread");
    place(&native, "start_thread+0x");
    for thread in [&main, &waiting, &native] {
        assert!(!thread.iter().any(|line| line.contains("partial stack")), "{thread:#?}");
    }
    let last = dump.lines().last().unwrap_or_default();
    assert!(last.contains(" whole stacks, ") && last.contains("longest pause of a thread "), "{last}");
}

on_every_jdk! { concurrent;
    fn stacks_of_a_running_program(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let recording = folder.path().join("a.tickwalk").display().to_string();
        let mut rounds = 0;
        let program = Workload::burner(0, &end_file);
        let program = program.run_unprofiled_watched(jdk, |pid, _| {
            let text = pid.to_string();
            let dump = || {
                let finished = tickwalk(&["dump-stacks", &text]);
                assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
                finished.stdout
            };
            rounds += 1;
            match rounds {
                1 => {
                    let before = handled_signals(pid);
                    check_dump(&dump());
                    assert_eq!(handled_signals(pid), before, "the handler is removed");
                    // As another command does while it dumps.
                    let name = SocketAddr::from_abstract_name(format!("tickwalk-dump-stacks-{pid}")).expect("a name");
                    let _other = UnixListener::bind_addr(&name).expect("free");
                    let refused = tickwalk(&["dump-stacks", &text]);
                    assert_eq!(refused.exit_code(), 1);
                    assert!(refused.stderr.contains("another command is dumping the stacks"), "{}", refused.stderr);
                }
                // Beside a profile.
                2 => assert_eq!(tickwalk(&["start", "-o", &recording, &text]).exit_code(), 0),
                3 => check_dump(&dump()),
                4 => {
                    let process = Pid::from_raw(pid);
                    kill(process, Signal::SIGSTOP).expect("the JVM runs");
                    let stopped = tickwalk(&["dump-stacks", "--timeout", "1s", &text]);
                    kill(process, Signal::SIGCONT).expect("the JVM is stopped");
                    assert_eq!(stopped.exit_code(), 1);
                    assert!(stopped.stderr.contains("did not answer the request within 1s"), "{}", stopped.stderr);
                    assert_eq!(tickwalk(&["stop", &text]).exit_code(), 0);
                    create_end_file(&end_file);
                }
                _ => {}
            }
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(rounds >= 4, "{rounds}");
    }
}

on_every_jdk! { concurrent;
    /// The VM then has no memory for counters, which tell whether classes were unloaded since a stack was copied.
    fn names_without_performance_data(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let program = Workload::burner(0, &end_file);
        let program = program.jvm_option("-XX:-UsePerfData").run_unprofiled_watched(jdk, |pid, _| {
            if end_file.exists() {
                return;
            }
            let dump = tickwalk(&["dump-stacks", &pid.to_string()]);
            assert_eq!(dump.exit_code(), 0, "{}", dump.stderr);
            check_dump(&dump.stdout);
            assert!(!dump.stdout.contains("[unloaded]"), "{}", dump.stdout);
            create_end_file(&end_file);
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        assert!(end_file.exists(), "the stacks were dumped");
    }
}
