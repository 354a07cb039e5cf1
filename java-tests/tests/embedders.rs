//! Programs and commands that know async-profiler: its words after `-agentpath`, its launcher, and plug-ins that
//! compare answers and count samples.

use std::path::{Path, PathBuf};
use std::process::Command;

use java_tests::{Finished, Jdk, Stacks, Workload, binaries, create_end_file, on_jdks, run};

/// Attaches as the launcher does, with the text that it sends.
fn attach(jdk: &Jdk, pid: i32, text: &str) -> Finished {
    let mut command = Command::new(jdk.home.join("bin/jcmd"));
    // Without quotes the JVM takes what stands before '=' for the name of an argument.
    let quoted = format!("\"{text}\"");
    command.arg(pid.to_string()).arg("JVMTI.agent_load").arg(binaries::agent()).arg(quoted);
    run(command, |_| ())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

on_jdks! { concurrent 25;
    /// Words for results work after `-agentpath`, and those without effect do not keep the program from being profiled.
    fn words_after_agentpath(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let profiled = |words: &str, name: &str| {
            let file = folder.path().join(name);
            let options = format!("start,{words},interval=1ms,file={}", file.display());
            let finished = Workload::new("TightLoop").argument(0.3).run_with_agent(jdk, &options);
            assert_eq!(finished.exit_code(), 0, "{words}: {}", finished.stderr);
            (read(&file), finished.stderr)
        };
        let (text, messages) = profiled("event=cpu,collapsed,threads,total,quiet,cstack=vm", "a");
        assert_eq!(messages, "");
        let stacks = Stacks::parse_collapsed(&text);
        let below = stacks.below("TightLoop.spin").all;
        assert!(!below.is_empty() && below.iter().all(|stack| stack.frames[0] == "main"), "{below:?}");
        assert!(text.lines().any(|line| line.starts_with("[main tid=")), "{text}");
        let has_native = |stacks: &Stacks| {
            stacks.all.iter().any(|stack| stack.frames.iter().any(|frame| frame.starts_with("start_thread")))
        };
        assert!(has_native(&stacks), "{:?}", stacks.all);
        let (text, messages) = profiled("cpu,cstack=no,title=x,simple,wall=10ms", "b.collapsed");
        assert_eq!(messages, "tickwalk: these words have no effect here: title, simple, wall\n");
        let stacks = Stacks::parse_collapsed(&text);
        assert!(!has_native(&stacks) && !stacks.below("TightLoop.spin").all.is_empty(), "{:?}", stacks.all);
        let (text, _) = profiled("event=cpu,flat=3", "c");
        assert!(text.contains("TightLoop.spin") && text.contains("CPU time explained"), "{text}");
    }
}

on_jdks! { concurrent 11, 25;
    /// The texts that async-profiler's launcher sends: answers are in its file, messages in its log.
    fn requests_of_the_launcher(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end_file = folder.path().join("end-file");
        let file = folder.path().join("asprof.1.2");
        let mut answers: Vec<(Finished, String, String)> = Vec::new();
        let requests = [
            "status", "stop", "start,event=cpu,interval=1ms", "status", "start", "dump,collapsed", "stop,flat=5", "start,interval=x", "resume",
        ];
        let program = Workload::burner(1, &end_file);
        let program = program.run_unprofiled_watched(jdk, |pid, _| {
            let log = PathBuf::from(format!("/tmp/asprof-log.{}.{pid}", std::process::id()));
            let Some(request) = requests.get(answers.len()) else { return create_end_file(&end_file) };
            let (action, more) = request.split_once(',').unwrap_or((request, ""));
            let text = format!("{action},file={},{more},log={}", file.display(), log.display());
            let finished = attach(jdk, pid, &text);
            let shown = |path: &Path| {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                // The launcher removes what it has shown.
                let _ = std::fs::remove_file(path);
                text
            };
            answers.push((finished, shown(&file), shown(&log)));
        });
        assert_eq!(program.exit_code(), 0, "{}", program.stderr);
        let code = |answer: usize| {
            let stdout = &answers[answer].0.stdout;
            stdout.lines().find_map(|line| line.strip_prefix("return code: ")).map(str::to_owned).expect(stdout)
        };
        let [idle, idle_stop, start, status, second, dump, stop, bad, resume] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|n| (code(n), &*answers[n].1, &*answers[n].2));
        assert_eq!(idle, ("0".to_owned(), "Profiler is not active\n", ""));
        assert_eq!((&*idle_stop.0, idle_stop.2), ("200", "tickwalk: Profiler has not started\n"));
        assert_eq!((&*start.0, start.2), ("0", "Profiling started\n"));
        assert!(status.0 == "0" && status.1.starts_with("Profiling is running for "), "{status:?}");
        assert!(second.0 != "0" && second.2 == "tickwalk: Profiler already started\n", "{second:?}");
        assert!(dump.0 == "0" && !Stacks::parse_collapsed(dump.1).below("Burner.burn").all.is_empty(), "{dump:?}");
        assert!(stop.0 == "0" && stop.1.contains("Burner.burn"), "{stop:?}");
        assert!(resume.0 != "0" && resume.2.starts_with("tickwalk: a profile cannot be resumed"), "{resume:?}");
        assert!(bad.0 == "100" && bad.2.contains("option 'interval': 'x' is not a time"), "{bad:?}");
        assert!(!program.stderr.contains("tickwalk:"), "{}", program.stderr);
    }
}

on_jdks! { concurrent 17, 25;
    /// The threads of a filter set the rate on the wall clock, and a sample weighs what it stands for.
    fn a_filter_on_the_wall_clock(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let workload = Workload::new("ChosenThread").argument(folder.path().display());
        let run = workload.run_with_agent(jdk, "start=no");
        assert_eq!(run.exit_code(), 0, "{}\n{}", run.stdout, run.stderr);
        let value = |name: &str| -> u64 {
            let line = run.stdout.lines().find_map(|line| line.strip_prefix(name)).expect(&run.stdout);
            line.trim().parse().expect("a number")
        };
        // Two seconds at 4 ms; threads that wait share neither the rate nor the result.
        let expected = value("filtered millis") / 4;
        let samples = value("filtered samples");
        assert!(samples.abs_diff(expected) <= expected / 4, "{samples} of {expected}");
        assert_eq!(value("filtered others"), 0);
        // Without a filter the period is longer, and each sample stands for several intervals.
        let (weight, millis) = (value("all weight"), value("all millis") / 4);
        assert!(weight.abs_diff(millis) <= millis / 4, "{weight} of {millis}");
        assert!(value("all events") > millis / 2, "flight recordings count events: {}", value("all events"));
    }
}
