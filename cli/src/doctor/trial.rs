//! Trial run: starts a JVM with the agent and reports its self-tests and its account of CPU time.

use std::path::Path;

use profile::query::summary::{CpuTime, Summary};
use profile::session::trust::{Outcome, SelfTest};
use profile::text::quantity::duration;

use super::Finding;
use crate::experiment::jvm::{Jvm, Run};

const SUBJECT: &str = "trial run";
/// Arguments of the program: 60 ms of CPU time in each of nine ways, however busy the machine is.
const ARGUMENTS: [&str; 2] = ["waste", "60"];

/// Runs a Java program that burns half a second of CPU time under the agent.
pub(super) fn examine(java: &Path, agent: &Path) -> Vec<Finding> {
    let jvm = Jvm::find(Some(java), agent.to_owned());
    match jvm.and_then(|jvm| jvm.run("interval=10ms", &ARGUMENTS.map(str::to_owned))) {
        Ok(run) => findings(java, &run),
        Err(error) => {
            let fix = "the message names the cause; the agent needs a JDK with the HotSpot VM, 11 or newer";
            vec![Finding::fail(SUBJECT, format!("{error:#}"), fix)]
        }
    }
}

fn findings(java: &Path, run: &Run) -> Vec<Finding> {
    let (summary, messages) = (Summary::new(&run.profile), &run.messages);
    let mut findings = Vec::new();
    let found = format!("{} {} at {}", summary.jvm.name, summary.jvm.version, java.display());
    findings.push(if messages.is_empty() {
        Finding::ok(SUBJECT, found)
    } else {
        Finding::warn(SUBJECT, format!("{found}: {}", messages.join("; ")), "follow the agent's message")
    });
    findings.extend(summary.self_tests.iter().map(self_test));
    findings.extend([sampling(&summary), account(&summary.cpu_ns), requests(&summary)]);
    let detector = &summary.unloading.detector;
    findings.push(match detector.as_str() {
        "unload counters" => Finding::ok("unloading", "the VM counts unloaded classes"),
        "pauses only" => Finding::warn(
            "unloading",
            "no performance counters: each garbage collection can turn some method names into [unloaded]",
            "remove -XX:-UsePerfData from the JVM's options",
        ),
        other => Finding::warn(
            "unloading",
            format!("cannot be detected ({other}): methods that may be unloaded are shown without a name"),
            "remove -XX:-UsePerfData from the JVM's options",
        ),
    });
    findings
}

/// Reports the sampling interval, with a warning if the kernel's tick is longer.
fn sampling(summary: &Summary) -> Finding {
    const SUBJECT: &str = "sampling";
    let sampling = &summary.sampling;
    if sampling.is_below_tick() {
        let fix = "choose an interval that is no shorter than the tick, or accept fewer samples";
        return Finding::warn(SUBJECT, sampling.sentence(), fix);
    }
    Finding::ok(SUBJECT, sampling.sentence())
}

/// Checks that the CPU time of all threads, by the kernel's clocks, is sampled + lost + unfinished.
fn account(cpu: &CpuTime) -> Finding {
    const SUBJECT: &str = "account";
    let accounted = cpu.sampled.saturating_add(cpu.lost_ns()).saturating_add(cpu.unfinished);
    let found = format!(
        "{} of CPU time = {} sampled + {} lost + {} unfinished; {} before the timers ran, {} of the profiler, {} outside the \
         accounts",
        duration(cpu.kernel),
        duration(cpu.sampled),
        duration(cpu.lost_ns()),
        duration(cpu.unfinished),
        duration(cpu.before_timer),
        duration(cpu.profiler),
        duration(cpu.outside),
    );
    match cpu.kernel == accounted {
        true if cpu.sampled > 0 => Finding::ok(SUBJECT, found),
        true => Finding::fail(
            SUBJECT,
            found,
            "report this as a bug: the agent took no sample of a program that burns CPU time",
        ),
        false => Finding::fail(
            SUBJECT,
            found,
            "report this as a bug: the agent's account of CPU time does not add up",
        ),
    }
}

/// Checks that requests = resolved + failed.
fn requests(summary: &Summary) -> Finding {
    const SUBJECT: &str = "requests";
    let failed: u64 = summary.failed.values().sum();
    let found = format!("{} = {} resolved + {failed} failed", summary.requests, summary.resolved);
    match summary.requests == summary.resolved + failed {
        true => Finding::ok(SUBJECT, found),
        false => Finding::fail(
            SUBJECT,
            found,
            "report this as a bug: the agent's account of requests does not add up",
        ),
    }
}

fn self_test(test: &SelfTest) -> Finding {
    let found = format!("{}: {}", test.capability, test.detail);
    match test.outcome {
        Outcome::Passed => Finding::ok("self-test", found),
        Outcome::NotTried => {
            Finding::ok("self-test", format!("{}: not tried ({})", test.capability, test.detail))
        }
        _ => Finding::fail(
            "self-test",
            found,
            "report this JVM build as unsupported; its Java stacks may be wrong",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn an_account_that_does_not_add_up_is_a_failure() {
        let mut cpu = CpuTime::default();
        assert_eq!(account(&cpu).status, Status::Fail, "nothing ran");
        (cpu.kernel, cpu.sampled) = (30_000_000, 20_000_000);
        assert_eq!(account(&cpu).status, Status::Fail);
        cpu.unfinished = 10_000_000;
        let closed = account(&cpu);
        assert_eq!(closed.status, Status::Ok);
        assert!(
            closed
                .found
                .starts_with("30.0 ms of CPU time = 20.0 ms sampled + 0 ms lost + 10.0 ms unfinished;")
        );
    }
}
