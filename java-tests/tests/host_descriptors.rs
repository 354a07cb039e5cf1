//! A program closes all descriptors and opens its own files under their numbers: nothing of the profiler gets into
//! them, and they stay open.

use std::fs;
use std::path::{Path, PathBuf};

use java_tests::collector::{CollectorProcess, recordings, summary_of};
use java_tests::{Finished, Jdk, Workload, binaries, native_library, on_jdks};
use tempfile::TempDir;

/// More than the numbers that perf events leave free for others.
const OPENED: usize = 1_200;
/// Clock ticks of the kernel a second, in which it states the CPU time of threads.
const TICKS_PER_SECOND: u64 = 100;

/// A run of the workload.
struct Closing {
    folder: TempDir,
    finished: Finished,
    /// CPU time of the thread that sends to the collector when it was last seen, in ticks.
    sender_ticks: u64,
}

impl Closing {
    /// Runs the workload with these options of the agent, which may name files in the folder as `FOLDER`.
    fn run(jdk: &Jdk, folder: TempDir, options: &str, opened: usize) -> Self {
        let options = options.replace("FOLDER", &folder.path().display().to_string());
        let workload = Workload::new("ClosesDescriptors")
            .argument(4)
            .argument(native_library("descriptors").display())
            .argument(folder.path().join("of-the-program").display())
            .argument(opened)
            .jvm_option(&format!("-agentpath:{}=interval=1ms,{options}", binaries::agent().display()));
        let mut sender_ticks = 0;
        let finished = workload.run_unprofiled_watched(jdk, |pid, _| {
            sender_ticks = thread_ticks(pid, "tickwalk-send").unwrap_or(sender_ticks);
        });
        assert_eq!(finished.exit_code(), 0, "{}\n{}", finished.stdout, finished.stderr);
        Self { folder, finished, sender_ticks }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Asserts that the program's file is empty, and that all its descriptors are open and append to it.
    #[track_caller]
    fn assert_program_is_unharmed(&self) {
        assert_eq!(fs::read(self.path("of-the-program")).expect("the program's file"), b"");
        for count in ["opened", "intact"] {
            let line = format!("{count} {OPENED}\n");
            assert!(self.finished.stdout.contains(&line), "no {line}: {}", self.finished.stdout);
        }
    }

    #[track_caller]
    fn assert_one_line(&self, text: &str, part: &str) {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("tickwalk: ")).collect();
        let [line] = lines[..] else { panic!("not one line: {text}") };
        assert!(line.contains(part), "{line}");
    }
}

/// Returns the CPU time of the thread of this name, in ticks.
fn thread_ticks(pid: i32, name: &str) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let read = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let task = tasks.map(|task| task.path()).find(|folder| read(folder, "comm").trim() == name)?;
    let stat = read(&task, "stat");
    // Times in user mode and in the kernel follow the name and eleven fields.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

on_jdks! { concurrent 11, 25;
    /// The recording ends with one line, and what was recorded before is readable.
    fn a_recording(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = Closing::run(jdk, folder, "file=FOLDER/recording.tickwalk", OPENED);
        run.assert_program_is_unharmed();
        run.assert_one_line(&run.finished.stderr, "closed a descriptor that is not its own; no destination is left");
        let summary = summary_of(&run.path("recording.tickwalk"), &run.finished.starvation);
        assert!(summary.samples > 100, "{summary:?}");
    }
}

on_jdks! { concurrent 17, 25;
    /// A log file is opened again, because it only grows; it gets its number again if the program opens nothing.
    fn a_log_file(jdk) {
        for opened in [0, OPENED] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let run = Closing::run(jdk, folder, "file=FOLDER/recording.tickwalk,logfile=FOLDER/log", opened);
            if opened > 0 {
                run.assert_program_is_unharmed();
            }
            let log = fs::read_to_string(run.path("log")).expect("a log file");
            run.assert_one_line(&log, "no destination is left");
            assert!(!run.finished.stderr.contains("tickwalk:"), "{}", run.finished.stderr);
        }
    }
}

on_jdks! { concurrent 11, 25;
    /// A connection is made again, and the thread that sends rests.
    fn a_connection(jdk) {
        for opened in [0, OPENED] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let stored = folder.path().join("stored");
            fs::create_dir(&stored).expect("a folder");
            let address = format!("unix:{}", folder.path().join("socket").display());
            let collector = CollectorProcess::start(&address, &stored, &[]);
            let run = Closing::run(jdk, folder, &format!("collector={address},exitwait=10s"), opened);
            if opened > 0 {
                run.assert_program_is_unharmed();
            }
            collector.stop();
            let [recording] = &recordings(&stored)[..] else { panic!("not one recording") };
            let summary = summary_of(recording, &run.finished.starvation);
            assert!(summary.complete, "{}", run.finished.stderr);
            assert_eq!(summary.delivery.connections, 2, "{:?}", summary.delivery);
            let truth_ns = 4_000_000_000_i64;
            assert!(summary.cpu_ns.sampled > truth_ns * 9 / 10, "{:?}", summary.cpu_ns);
            // Spinning takes more than a second of the program's three.
            assert!(run.sender_ticks < TICKS_PER_SECOND / 4, "{} ticks", run.sender_ticks);
        }
    }
}

on_jdks! { concurrent 17, 25;
    /// Perf events end with their descriptors, and so does the profile.
    fn perf_events(jdk) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = Closing::run(jdk, folder, "clock=perf,collector=unix:FOLDER/nobody,abandon=60s", OPENED);
        if run.finished.stderr.contains("the kernel refuses perf events") {
            eprintln!("SKIPPED: perf events are not permitted here; set kernel.perf_event_paranoid=1");
            return;
        }
        run.assert_program_is_unharmed();
        let stderr = &run.finished.stderr;
        assert!(stderr.contains("the program has closed descriptors that are not its own"), "{stderr}");
    }
}
