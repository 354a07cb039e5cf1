//! A run whose collector is killed and started again.

use std::path::Path;

use crate::collector::CollectorProcess;
use crate::jdk::Jdk;
use crate::process::Finished;
use crate::workload::{Workload, create_end_file};

/// Kills the collector that `start` starts after a second of a run, starts it again a second later, and ends the
/// program when its agent has reconnected. Queues that last for seconds exclude other losses. `destination` is the
/// value of the agent's option `collector`, and further options behind a comma.
pub fn run_through_restart(
    jdk: &Jdk,
    destination: &str,
    end_file: &Path,
    start: impl Fn() -> CollectorProcess,
) -> Finished {
    const SECOND: u64 = 1_000_000_000;
    let mut collector = Some(start());
    let mut outage_began = None;
    let options = format!("collector={destination},exitwait=10s,interval=1ms,debug=queue:2048");
    let workload = Workload::burner(3, end_file);
    let run = workload.run_with_agent_watched(jdk, &options, |cpu_ns| match (&collector, outage_began) {
        (Some(first), None) if cpu_ns > SECOND && first.sessions() > 0 => {
            collector.take().expect("running").crash();
            outage_began = Some(cpu_ns);
        }
        (None, Some(began)) if cpu_ns > began + SECOND => collector = Some(start()),
        (Some(second), Some(_)) if second.sessions() > 0 => create_end_file(end_file),
        _ => {}
    });
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    collector.expect("restarted").stop();
    run
}
