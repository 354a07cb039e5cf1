//! A start before, inside or after the initialisation of the VM is a profile or an error.

use std::path::Path;
use std::process::Command;

use java_tests::{Finished, Jdk, Stacks, Workload, binaries, on_every_jdk, on_jdks};

/// Nanoseconds of CPU time that the program burns.
const BURNT_NS: u64 = 1_000_000_000;

/// Makes the jar of a Java agent whose class is on the class path.
fn agent_jar(folder: &Path) -> String {
    const SCRIPT: &str = "import sys, zipfile\n\
                          with zipfile.ZipFile(sys.argv[1], 'w') as jar:\n \
                          jar.writestr('META-INF/MANIFEST.MF', 'Premain-Class: StartsEarly\\n')";
    let jar = folder.join("agent.jar");
    let made = Command::new("python3").args(["-c", SCRIPT]).arg(&jar).status().expect("python3 starts");
    assert!(made.success());
    jar.display().to_string()
}

/// Runs the program with a Java agent that runs this command, and this library.
fn run(jdk: &Jdk, folder: &Path, library: &Path, command: &str, option: Option<&str>) -> Finished {
    let mut workload = Workload::new("StartsEarly")
        .argument(1)
        .jvm_option(&format!("-Dlibrary={}", library.display()))
        .jvm_option(&format!("-javaagent:{}={command}", agent_jar(folder)));
    if let Some(option) = option {
        workload = workload.jvm_option(option);
    }
    let finished = workload.run_unprofiled(jdk);
    assert_eq!(finished.exit_code(), 0, "{}\n{}", finished.stdout, finished.stderr);
    finished
}

#[track_caller]
fn assert_profiled(stacks: &Path) {
    let text = std::fs::read_to_string(stacks).expect("a result");
    let sampled_ns = Stacks::parse_collapsed(&text).ns_below("Burner.burn") * 1_000_000;
    assert!(sampled_ns > BURNT_NS / 2, "{text}");
}

on_every_jdk! { concurrent;
    /// A Java agent starts the profile: the event of the initialisation comes after it.
    fn by_a_java_agent(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let result = folder.path().join("result.collapsed");
        let command = format!("start,event=cpu,interval=1ms,file={}", result.display());
        let finished = run(jdk, folder.path(), binaries::agent().as_path(), &command, None);
        assert!(finished.stdout.contains("premain: Profiling started"), "{}", finished.stdout);
        assert_profiled(&result);
        assert!(!finished.stderr.contains("tickwalk: "), "{}", finished.stderr);
    }
}

on_jdks! { concurrent 11, 25;
    /// The profile of the command line waits for the initialisation: a Java agent can neither start another one nor
    /// end it.
    fn beside_a_profile_of_the_command_line(jdk) {
        for (command, answer) in [("start,event=cpu", "Profiler already started"), ("stop", "Profiler is not active")] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let result = folder.path().join("result.collapsed");
            let option = format!("-agentpath:{}=interval=1ms,file={}", binaries::agent().display(), result.display());
            // The class finds the methods of the library that is loaded already.
            let finished = run(jdk, folder.path(), Path::new(""), command, Some(&option));
            assert!(finished.stdout.contains(answer), "{command}: {}", finished.stdout);
            assert_profiled(&result);
        }
    }
}
