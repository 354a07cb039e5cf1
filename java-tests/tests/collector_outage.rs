//! A collector that is killed, restarted, late, or protected: no CPU time is lost and none counted twice.

use java_tests::collector::{CollectorProcess, recordings, summary_of};
use java_tests::{Workload, on_every_jdk, on_jdks};

const SECOND: u64 = 1_000_000_000;

on_every_jdk! {
    /// Killed with SIGKILL in the middle of a run and started anew: the agent repeats what was not acknowledged.
    ///
    /// The outage lasts a second, so the agent's next attempt comes less than 1.6 seconds after it, well before the end.
    fn killed_and_restarted(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let start = || CollectorProcess::start(&address, directory.path(), &[]);
        let mut collector = Some(start());
        let (mut killed, mut restarted) = (false, false);
        let options = format!("collector={address},interval=1ms");
        let run = Workload::new("Killed").argument(5).run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > SECOND && !killed {
                collector.take().expect("running").crash();
                killed = true;
            }
            if cpu_ns > 2 * SECOND && !restarted {
                collector = Some(start());
                restarted = true;
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(killed && restarted);
        assert!(run.stderr.contains("lost collector="), "{}", run.stderr);
        collector.expect("restarted").stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        let summary = summary_of(recording);
        assert!(summary.complete);
        assert_eq!(summary.delivery.connections, 2, "{:?}", summary.delivery);
        assert_eq!(summary.cpu_ns.lost_total(), 0, "{:?}", summary.cpu_ns);
        for thread in &summary.threads {
            assert_eq!(thread.gap_ns(), 0, "{thread:?}");
        }
        assert!(summary.cpu_ns.sampled > 49 * (SECOND as i64) / 10, "{:?}", summary.cpu_ns);
    }
}

on_jdks! { 17;
    /// The window is as small as it may be and nobody reads it: samples are merged, their time is whole.
    fn late_collector_with_a_small_window(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let mut collector = None;
        let options = format!("collector={address},interval=1ms,window=16k");
        let run = Workload::new("Killed").argument(6).run_with_agent_watched(jdk, &options, |cpu_ns| {
            if cpu_ns > 5 * SECOND && collector.is_none() {
                collector = Some(CollectorProcess::start(&address, directory.path(), &[]));
            }
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "one line for the outage: {}", run.stderr);
        collector.expect("started").stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        let summary = summary_of(recording);
        assert!(summary.complete);
        assert!(summary.delivery.merged_samples > 100, "{:?}", summary.delivery);
        assert_eq!(summary.delivery.unnamed_ns, 0);
        assert_eq!(summary.cpu_ns.lost_total(), 0, "{:?}", summary.cpu_ns);
        assert!(summary.cpu_ns.sampled > 59 * (SECOND as i64) / 10, "{:?}", summary.cpu_ns);
    }
}

on_jdks! { 17;
    /// An agent without the token is told so in one line, and its program runs.
    fn wrong_token(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let token = directory.path().join("token");
        std::fs::write(&token, "sesame\n").expect("a token");
        let token = token.display().to_string();
        let collector = CollectorProcess::start(&address, directory.path(), &["--token-file", &token]);
        let run = |options: &str| {
            Workload::new("TightLoop").argument(1).run_with_agent(jdk, &format!("collector={address}{options}"))
        };
        let refused = run(",token=guess");
        assert_eq!(refused.exit_code(), 0);
        assert!(refused.stderr.contains("the token is missing or wrong"), "{}", refused.stderr);
        assert_eq!(recordings(directory.path()).len(), 0);
        let admitted = run(&format!(",tokenfile={token}"));
        assert_eq!((admitted.exit_code(), admitted.stderr.as_str()), (0, ""));
        collector.stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        assert!(summary_of(recording).complete);
    }
}
