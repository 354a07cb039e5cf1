//! Dumps of all stacks without a command: when the process dies (`crashstacks=`), at a signal (`dumpsignal=`) and above
//! a use of CPU time (`dumpcpu=`).

use std::fs;
use std::path::Path;

use java_tests::{Jdk, Workload, create_end_file, native_library, on_every_jdk};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Returns the lines of the first stack, that of the thread in which the process dies.
fn first_stack(dump: &str) -> Vec<&str> {
    let lines = dump.lines().skip_while(|line| !line.starts_with("Thread "));
    lines.take_while(|line| !line.is_empty()).collect()
}

/// Asserts that lines begin with these texts, in this order; others may lie between them.
#[track_caller]
fn assert_order(lines: &[&str], expected: &[&str]) {
    let mut rest = lines.iter();
    for text in expected {
        assert!(rest.any(|line| line.starts_with(text)), "no {text} in its place: {lines:#?}");
    }
}

/// Lets a program die with these options of the JVM, and checks that the stack of the thread in which it dies begins
/// with the first of `frames` and has the others in their order; returns what the VM has written about the error.
#[track_caller]
fn die(jdk: &Jdk, how: &str, options: &[&str], frames: &[&str]) -> Option<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [stacks, error] = ["stacks", "hs_err"].map(|name| folder.path().join(name));
    let program = Workload::new("Crash")
        .argument(0)
        .argument(native_library("crash").display())
        .argument(how)
        .jvm_option("-Xmx32m")
        .jvm_option("-XX:+CrashOnOutOfMemoryError")
        .jvm_option(&format!("-XX:ErrorFile={}", error.display()))
        // A core file would take a while, and a place.
        .launcher(&["prlimit", "--core=0"]);
    let program = options.iter().fold(program, |program, option| program.jvm_option(option));
    let finished = program.run_with_agent(jdk, &format!("start=no,crashstacks={}", stacks.display()));
    assert_eq!(finished.exit_code(), 128 + 6, "{}\n{}", finished.stdout, finished.stderr);
    let dump = fs::read_to_string(&stacks).unwrap_or_else(|error| panic!("{error}: {}", finished.stderr));
    let head = dump.lines().next().unwrap_or_default();
    assert!(head.starts_with("Stacks of process ") && head.contains(": SIGABRT in thread "), "{head}");
    let first = first_stack(&dump);
    // Neither the handler's own frames nor abort(3): the first line names the thread.
    let newest = first.get(1).is_some_and(|line| line.starts_with(frames[0]));
    assert!(newest, "{} is not the newest frame: {first:#?}", frames[0]);
    assert_order(&first, frames);
    assert_order(&first, &["Crash.die(Crash.java:", "Crash.main(Crash.java:", "JavaMain+0x"]);
    // Down to the function that the kernel started, whose name a libc without symbols does not have.
    assert!(first.last().is_some_and(|line| line.contains("[libc.so.6+")), "{first:#?}");
    assert!(!first.iter().any(|line| line.contains("partial stack")), "{first:#?}");
    // The other threads of the program. A thread that polls for a safepoint after the VM has replaced its handler of
    // SIGSEGV waits there, with all signals blocked.
    let has = |text: &str| dump.lines().any(|line| line.starts_with(text));
    assert!(has("Crash.waitForEver(Crash.java:"), "{dump}");
    assert!(has("Crash.burnForEver(Crash.java:") || has("[no stack: it blocks signals]"), "{dump}");
    // Names as in Java; the kernel cuts them after 15 bytes, and calls the main thread after the program.
    assert!(first.first().is_some_and(|line| line.ends_with(" \"main\" (Java)")), "{first:#?}");
    assert!(dump.contains(" \"waiting for ever, with a long name\" (Java)"), "{dump}");
    let last = dump.lines().last().unwrap_or_default();
    assert!(last.contains(" whole stacks, "), "{last}");
    fs::read_to_string(error).ok()
}

/// The function that reads address 0, and its callers.
const NULL_POINTER: [&str; 3] = ["read_from+0x", "Java_Crash_dereferenceNull+0x", "Crash.dereferenceNull("];

on_every_jdk! { concurrent;
    /// The VM's own handler of SIGSEGV lies between: its error file is written, and the walk goes through the signal's
    /// frame.
    fn null_pointer_in_native_code(jdk) {
        let error = die(jdk, "null", &[], &NULL_POINTER).expect("hs_err");
        assert!(error.contains("SIGSEGV") && error.contains("read_from+0x"), "{error}");
    }
}

on_every_jdk! { concurrent;
    /// The VM then has no memory for counters, which tell whether classes were unloaded since a stack was copied.
    fn names_without_performance_data(jdk) {
        die(jdk, "null", &["-XX:-UsePerfData"], &NULL_POINTER);
    }
}

on_every_jdk! { concurrent;
    fn abort_in_native_code(jdk) {
        die(jdk, "abort", &[], &["give_up+0x", "Java_Crash_abort+0x", "Crash.abort("]);
    }
}

on_every_jdk! { concurrent;
    /// The VM gives up, without a signal of the kernel.
    fn crash_on_out_of_memory(jdk) {
        let error = die(jdk, "memory", &[], &["os::abort+0x", "Crash.fillMemory(Crash.java:"]).expect("hs_err");
        assert!(error.contains("OutOfMemory"), "{error}");
    }
}

/// The dumps in a file, each from its first line.
fn dumps(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split("Stacks of process ").skip(1).map(str::to_owned).collect()
}

on_every_jdk! { concurrent;
    /// SIGQUIT prints the VM's thread dump as well; CPU time causes one dump, however long it lasts.
    fn a_signal_and_cpu_time(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [end_file, file] = ["end", "stacks"].map(|name| folder.path().join(name));
        let options = format!("start=no,dumpsignal=SIGQUIT,dumpcpu=1%/1s,dumpfile={}", file.display());
        let program = Workload::burner(0, &end_file);
        let mut has_asked = false;
        let is_whole = |dump: &String| dump.contains(" whole stacks, ");
        let finished = program.run_with_agent_watched_by(jdk, &options, |id, _| {
            let whole = dumps(&file).into_iter().filter(is_whole).count();
            // The first one is that of CPU time.
            if whole == 1 && !has_asked {
                has_asked = true;
                kill(Pid::from_raw(id), Signal::SIGQUIT).expect("the JVM runs");
            }
            if whole >= 2 {
                create_end_file(&end_file);
            }
        });
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        let dumps = dumps(&file);
        let [cpu, signal] = &dumps[..] else { panic!("not two dumps: {dumps:#?}") };
        let head = |dump: &str| dump.lines().next().unwrap_or_default().to_owned();
        assert!(head(cpu).contains(" % of a processor over "), "{}", head(cpu));
        assert!(head(signal).ends_with(": signal 3"), "{}", head(signal));
        for dump in [cpu, signal] {
            assert!(dump.lines().any(|line| line.starts_with("Burner.main(Burner.java:")), "{dump}");
        }
        assert!(finished.stdout.contains("Full thread dump"), "the VM's handler: {}", finished.stdout);
    }
}
