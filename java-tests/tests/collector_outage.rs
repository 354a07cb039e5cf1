//! The collector is killed, restarted, started late or protected by a token: no CPU time is lost or counted twice.

use java_tests::collector::{CollectorProcess, recordings, summary_of};
use java_tests::{
    Finished, TICK_NS, Truth, Workload, create_end_file, on_jdks, run_through_restart, span_tolerance_ns,
};

const SECOND: u64 = 1_000_000_000;

/// Asserts that `sampled` nanoseconds hold all CPU time that the workload used.
#[track_caller]
fn assert_all_is_sampled(run: &Finished, sampled: i64) {
    let truth = Truth::parse(&run.stdout).method_cpu_ns("Burner.burn");
    assert!(sampled.cast_unsigned() + span_tolerance_ns(TICK_NS) >= truth, "sampled {sampled} of {truth}");
}

on_jdks! { concurrent 11, 25;
    /// The collector is killed with SIGKILL during a run and restarted: the agent resends what was not acknowledged.
    fn resends_after_a_restart(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let start = || CollectorProcess::start(&address, directory.path(), &[]);
        let end_file = directory.path().join("end-file");
        let run = run_through_restart(jdk, &address, &end_file, start);
        assert!(run.stderr.contains("lost the connection to collector="), "{}", run.stderr);
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        let summary = summary_of(recording, &run.starvation);
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
    /// The window has its smallest size and no collector reads it: samples are merged and their CPU time is complete.
    fn merges_samples_while_the_collector_is_late(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let end_file = directory.path().join("end-file");
        let mut collector: Option<CollectorProcess> = None;
        let options = format!("collector={address},exitwait=10s,interval=1ms,window=16k,debug=queue:2048");
        let workload = Workload::burner(5, &end_file);
        let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match &collector {
            None if cpu_ns > 5 * SECOND => {
                collector = Some(CollectorProcess::start(&address, directory.path(), &[]));
            }
            Some(late) if late.sessions() > 0 => create_end_file(&end_file),
            _ => {}
        });
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "one line for the outage: {}", run.stderr);
        collector.expect("started").stop();
        let [recording] = &recordings(directory.path())[..] else { panic!("not one recording") };
        let summary = summary_of(recording, &run.starvation);
        assert!(summary.complete);
        assert!(summary.delivery.merged_samples > 100, "{:?}", summary.delivery);
        assert_eq!(summary.delivery.unnamed_ns, 0);
        assert_eq!(summary.cpu_ns.lost_before_end(), 0, "{:?}", summary.cpu_ns);
        assert_all_is_sampled(&run, summary.cpu_ns.sampled);
    }
}

on_jdks! { concurrent 17;
    /// An agent with a wrong token prints one line, and its program runs.
    fn refuses_a_wrong_token(jdk) {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let address = format!("unix:{}", directory.path().join("socket").display());
        let token = directory.path().join("token");
        std::fs::write(&token, "sesame\n").expect("a token");
        let token = token.display().to_string();
        let collector = CollectorProcess::start(&address, directory.path(), &["--token-file", &token]);
        // Each program runs until the collector has logged its decision.
        let run = |options: &str, answer: &str| {
            let end_file = directory.path().join(format!("end-file {answer}"));
            let workload = Workload::burner(1, &end_file);
            workload.run_with_agent_watched(jdk, &format!("collector={address},exitwait=10s{options}"), |_| {
                if collector.log().contains(answer) {
                    create_end_file(&end_file);
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
        assert!(summary_of(recording, &admitted.starvation).complete);
    }
}
