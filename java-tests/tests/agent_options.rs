//! Options of the agent that change what is sampled, what is shown, and what is written when.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use java_tests::{Stacks, Workload, on_jdks, span_tolerance_ns, stacks_of, tickwalk};

const INTERVAL_NS: u64 = 1_000_000;

/// Returns the files in a folder, by name.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files
}

on_jdks! { concurrent 11, 25;
    /// Threads by name and kind: those that are left out have no sample, and their CPU time is lost by that cause.
    fn chosen_threads(jdk) {
        let workload = Workload::new("FourThreads").argument(1).record_option("--interval").record_option("1ms");
        let run = workload
            .record_option("--threads")
            .record_option("worker-*:kind=gc")
            .record_option("--skipthreads")
            .record_option("worker-3")
            .record(jdk);
        run.assert_exit_code(0);
        let summary = run.summary();
        summary.assert_account_closes();
        for thread in summary.threads.iter().filter(|thread| thread.samples > 0) {
            let is_worker = ["worker-0", "worker-1", "worker-2"].contains(&&*thread.name);
            assert!(is_worker || thread.kind == "gc", "sampled although left out: {thread:?}");
        }
        assert!(summary.thread("worker-0").samples > 0, "{:?}", summary.thread("worker-0"));
        for left_out in ["worker-3", "main"] {
            let thread = summary.thread(left_out);
            assert_eq!((thread.samples, thread.sampled_ns), (0, 0), "{thread:?}");
        }
        let left_out = summary.thread("worker-3");
        assert_eq!(left_out.lost_ns, left_out.kernel_ns, "{left_out:?}");
        let lost = summary.cpu_ns.lost.get("not_chosen").copied().unwrap_or(0);
        assert!(lost >= left_out.kernel_ns && left_out.kernel_ns > 0, "{:?} and {left_out:?}", summary.cpu_ns);
    }
}

on_jdks! { concurrent 11, 25;
    /// A thread is chosen by the name that it starts with, and listed by its last one.
    fn a_chosen_thread_that_gets_another_name(jdk) {
        let run = Workload::new("RenamedThreads").argument(1).record_to_file(jdk, "interval=1ms,threads=first name");
        run.assert_exit_code(0);
        let stacks = run.stacks_by_thread();
        let itself_ns = stacks.ns_where(|stack| stack.has("renamed by itself"));
        assert!(itself_ns > 0 && itself_ns == stacks.total_ns(), "{:?}", stacks.all);
    }
}

on_jdks! { concurrent 11, 25;
    /// Frames of the VM and of libraries, on and off, and limits by kind.
    fn shown_frames(jdk) {
        let shown = |options: &str| {
            let run = Workload::new("FourThreads").argument(0.4).record_to_file(jdk, &format!("interval=1ms,{options}"));
            run.assert_exit_code(0);
            let stacks = run.stacks();
            assert!(stacks.ns_below("FourThreads.work") > 0, "{options}: {:?}", stacks.all);
            stacks
        };
        // The first is a function of the VM, the second one of the C library.
        let has = |stacks: &Stacks| {
            ["JavaThread::", "start_thread"].map(|name| {
                stacks.all.iter().any(|stack| stack.frames.iter().any(|frame| frame.starts_with(name)))
            })
        };
        assert_eq!(has(&shown("native=yes,vm=yes")), [true, true]);
        assert_eq!(has(&shown("vm=no")), [false, true]);
        assert_eq!(has(&shown("native=no")), [true, false]);
        let limited = shown("depth=20/1");
        let java = |frames: &[String]| frames.iter().filter(|frame| frame.starts_with("FourThreads.")).count();
        // 40 frames of one recursion, and the work below them.
        for stack in limited.below("FourThreads.work").all {
            assert_eq!(java(&stack.frames), 20, "{stack:?}");
            assert_eq!(stack.stop.as_deref(), Some("depth_limit"), "{stack:?}");
        }
    }
}

on_jdks! { concurrent 25;
    /// Each period has a recording of its own, and together they have what ran, but for the starts.
    fn periods(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = format!("interval=1ms,loop=1s,file={}/%t.tickwalk", folder.path().display());
        let finished = Workload::new("TightLoop").argument(3).run_with_agent(jdk, &options);
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        let truth_ns = java_tests::Truth::parse(&finished.stdout).method_cpu_ns("TightLoop.spin");
        let files = files_in(folder.path());
        assert!(files.len() >= 3, "{files:?}");
        let sampled: Vec<u64> = files.iter().map(|file| stacks_of(file).ns_below("TightLoop.spin")).collect();
        let sum: u64 = sampled.iter().sum();
        // Between two profiles nothing is sampled: a start takes some 15 ms, more on a machine that others use as well.
        let periods = files.len() as u64;
        assert!(sum <= truth_ns + periods * span_tolerance_ns(INTERVAL_NS), "sampled {sampled:?}, true {truth_ns}");
        assert!(sum >= truth_ns / 2, "sampled {sampled:?}, true {truth_ns}");
        assert!(sampled.iter().filter(|&&ns| ns > 0).count() >= 3, "{sampled:?}");
    }
}

on_jdks! { concurrent 17, 25;
    /// The agent ends the profile by itself, and writes the format of the file name's ending; the program runs on.
    fn a_page_after_a_time(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let page = folder.path().join("page.html");
        let ended_ns = std::cell::Cell::new(None);
        let options = format!("start,event=cpu,timeout=1,threads,file={}", page.display());
        let finished = Workload::new("Burner").argument(3).run_with_agent_watched(jdk, &options, |cpu_ns| {
            let is_written = std::fs::metadata(&page).is_ok_and(|page| page.len() > 0);
            if is_written && ended_ns.get().is_none() {
                ended_ns.set(Some(cpu_ns));
            }
        });
        assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        let text = std::fs::read_to_string(&page).expect("a page");
        assert!(text.contains("Burner.burn") && text.contains("</html>"), "{} bytes", text.len());
        let ended_ns = ended_ns.get().expect("the page was there before the program ended");
        assert!(ended_ns < 3_000_000_000, "{ended_ns}");
        assert_eq!(files_in(folder.path()), [page], "nothing else is left");
    }
}

on_jdks! { concurrent 25;
    /// Without `duration` the end of the JVM ends the profile; a file that cannot be written is refused at the start.
    fn a_flight_recording_at_the_end(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("end.jfr");
        let workload = Workload::new("TightLoop").argument(0.5);
        let finished = workload.run_with_agent(jdk, &format!("file={}", file.display()));
        assert_eq!((finished.exit_code(), &*finished.stderr), (0, ""));
        assert!(std::fs::read(&file).expect("a file").starts_with(b"FLR\0"));
        let finished = workload.run_with_agent(jdk, "file=/nonexistent/end.jfr");
        assert_eq!(finished.exit_code(), 0);
        let expected = "cannot write /nonexistent/end.jfr: No such file or directory (os error 2); the program runs unprofiled";
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    }
}

on_jdks! { concurrent 25;
    fn record_ends_after_a_time(jdk) {
        let run = Workload::new("TightLoop").argument(3).record_option("-d").record_option("1s").record(jdk);
        run.assert_exit_code(0);
        let (sampled, truth) = (run.stacks().ns_below("TightLoop.spin"), run.truth.method_cpu_ns("TightLoop.spin"));
        assert!(sampled > 0 && sampled < truth * 2 / 3, "sampled {sampled} of {truth}");
    }
}

on_jdks! { concurrent 25;
    /// Files of the agent have names of private programs, so only their owner may read them.
    fn files_are_private(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (stacks, log) = (at("stacks"), at("log"));
        for name in ["recording.tickwalk", "result.collapsed"] {
            let options = format!("file={},dumpcpu=1%/1s,dumpfile={stacks},log=info,logfile={log}", at(name));
            let finished = Workload::new("Burner").argument(2).run_with_agent(jdk, &options);
            assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
        }
        let files = files_in(folder.path());
        assert_eq!(files, ["log", "recording.tickwalk", "result.collapsed", "stacks"].map(|name| folder.path().join(name)));
        for file in files {
            let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }
}

on_jdks! { concurrent 17, 25;
    /// Name and labels of the process select it, and log lines are in their file.
    fn service_labels_and_log_file(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = folder.path().join("log");
        let options = format!("service=shop,label=zone=eu-1,label=tier=web,log=info,logfile={}", log.display());
        let run = Workload::new("Burner").argument(0.2).record_to_file(jdk, &options);
        run.assert_exit_code(0);
        let log = std::fs::read_to_string(&log).expect("the log file");
        assert!(log.contains("profiling every 10ms of CPU time"), "{log}");
        let of = |option: &str| {
            let recording = run.recording.display().to_string();
            // Where no process has the label, the command says so and fails.
            tickwalk(&["export", "--format", "collapsed", "--label", option, &recording]).stdout.contains("Burner.")
        };
        assert!(of("zone=eu-1") && of("tier=web") && !of("zone=eu-2"));
        let processes = run.tickwalk(&["query", "processes"]);
        assert!(processes.contains("shop"), "{processes}");
    }
}
