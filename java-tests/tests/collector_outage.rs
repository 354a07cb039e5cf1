//! A collector that is killed, restarted, late, or protected: no CPU time is lost and none counted twice.

use std::path::Path;

use java_tests::collector::{CollectorProcess, recordings, summary_of};
use java_tests::{Finished, TICK_NS, Truth, Workload, on_every_jdk, on_jdks, stretch_tolerance_ns};

const SECOND: u64 = 1_000_000_000;

/// Asserts that all of what the workload burnt until it ended is among the samples.
#[track_caller]
fn assert_all_is_sampled(run: &Finished, sampled: i64) {
    let truth = Truth::parse(&run.stdout).method_cpu_ns("Killed.burn");
    assert!(sampled.cast_unsigned() + stretch_tolerance_ns(TICK_NS) >= truth, "sampled {sampled} of {truth}");
}

/// Lets a workload end that waits for this file.
fn create(enough: &Path) {
    std::fs::write(enough, "").expect("a writable folder");
}

on_every_jdk! {
    /// Killed with SIGKILL in the middle of a run and started anew: the agent repeats what was not acknowledged.
    ///
    /// The program goes on until the agent is back. Queues for seconds: how late the sampler may be is another test's
    /// business.
    fn killed_and_restarted(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let start = || CollectorProcess::start(&address, directory.path(), &[]);
        let mut collector = Some(start());
        let enough = directory.path().join("enough");
        let mut outage_began = None;
        let options = format!("collector={address},interval=1ms,debug=queue:2048");
        let workload = Workload::new("Killed").argument(4).argument(enough.display());
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match (&collector, outage_began) {
            (Some(first), None) if cpu_ns > SECOND && first.sessions() > 0 => {
                collector.take().expect("running").crash();
                outage_began = Some(cpu_ns);
            }
            (None, Some(began)) if cpu_ns > began + SECOND => collector = Some(start()),
            (Some(second), Some(_)) if second.sessions() > 0 => create(&enough),
            _ => {}
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(run.stderr.contains("lost collector="), "{}", run.stderr);
        collector.expect("restarted").stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        let summary = summary_of(recording, &run.starved);
        assert!(summary.complete);
        assert_eq!(summary.delivery.connections, 2, "{:?}", summary.delivery);
        assert_eq!(summary.cpu_ns.lost_before_end(), 0, "{:?}", summary.cpu_ns);
        for thread in &summary.threads {
            assert_eq!(thread.gap_ns(), 0, "{thread:?}");
        }
        assert_all_is_sampled(&run, summary.cpu_ns.sampled);
    }
}

on_jdks! { 17;
    /// The window is as small as it may be and nobody reads it: samples are merged, their time is whole.
    fn late_collector_with_a_small_window(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let enough = directory.path().join("enough");
        let mut collector: Option<CollectorProcess> = None;
        let options = format!("collector={address},interval=1ms,window=16k,debug=queue:2048");
        let workload = Workload::new("Killed").argument(5).argument(enough.display());
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match &collector {
            None if cpu_ns > 5 * SECOND => {
                collector = Some(CollectorProcess::start(&address, directory.path(), &[]));
            }
            Some(late) if late.sessions() > 0 => create(&enough),
            _ => {}
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "one line for the outage: {}", run.stderr);
        collector.expect("started").stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        let summary = summary_of(recording, &run.starved);
        assert!(summary.complete);
        assert!(summary.delivery.merged_samples > 100, "{:?}", summary.delivery);
        assert_eq!(summary.delivery.unnamed_ns, 0);
        assert_eq!(summary.cpu_ns.lost_before_end(), 0, "{:?}", summary.cpu_ns);
        assert_all_is_sampled(&run, summary.cpu_ns.sampled);
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
        // Each runs until the collector has said what it thinks of it.
        let run = |options: &str, answer: &str| {
            let enough = directory.path().join(format!("enough {answer}"));
            let workload = Workload::new("Killed").argument(1).argument(enough.display());
            workload.run_with_agent_watched(jdk, &format!("collector={address}{options}"), |_| {
                if collector.said().contains(answer) {
                    create(&enough);
                }
            })
        };
        let refused = run(",token=guess", "the token is missing or wrong");
        assert_eq!(refused.exit_code(), 0);
        assert!(refused.stderr.contains("the token is missing or wrong"), "{}", refused.stderr);
        assert_eq!(recordings(directory.path()).len(), 0);
        let admitted = run(&format!(",tokenfile={token}"), "session began");
        assert_eq!((admitted.exit_code(), admitted.stderr.as_str()), (0, ""));
        collector.stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        assert!(summary_of(recording, &admitted.starved).complete);
    }
}
