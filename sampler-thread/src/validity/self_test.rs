//! Results of the self-test, and the capabilities that it leaves enabled.
//!
//! Problem: the structures of another build of the VM may differ from what its tables describe.
//! Approach: at the start the agent compares walks of parked threads with the VM's own stack traces; later the stop
//! reasons of the first walks through compiled code are counted.
//! A walk that contradicts itself is cut and marked, so that the second test switches nothing off.

pub use proto::v1::{SelfTest, SelfTestOutcome};

/// Capabilities that the self-test leaves enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Java stacks.
    pub walks: bool,
    /// Bytecode indexes and lines.
    pub positions: bool,
}

impl Capabilities {
    /// All capabilities.
    pub const ALL: Self = Self { walks: true, positions: true };

    /// Returns the capabilities left enabled; `walks` and `positions` name the tests that each requires.
    pub fn of(results: &[SelfTest], walks: &[&str], positions: &[&str]) -> Self {
        let holds = |names: &[&str]| {
            !results.iter().any(|test| has_failed(test) && names.contains(&test.capability.as_str()))
        };
        Self { walks: holds(walks), positions: holds(positions) }
    }
}

fn has_failed(test: &SelfTest) -> bool {
    test.outcome() == SelfTestOutcome::Failed
}

/// Returns the result of a comparison without differences.
pub fn passed(capability: &str, detail: String) -> SelfTest {
    result(capability, SelfTestOutcome::Passed, detail)
}

/// Returns the result of a comparison with differences.
pub fn failed(capability: &str, detail: String) -> SelfTest {
    result(capability, SelfTestOutcome::Failed, detail)
}

/// Returns the result of a comparison that was impossible.
pub fn not_tried(capability: &str, detail: String) -> SelfTest {
    result(capability, SelfTestOutcome::NotTried, detail)
}

fn result(capability: &str, outcome: SelfTestOutcome, detail: String) -> SelfTest {
    SelfTest { capability: capability.to_owned(), outcome: outcome.into(), detail }
}

/// Describes the failures among results.
pub fn failures(results: &[SelfTest]) -> String {
    let failures = results.iter().filter(|test| has_failed(test));
    failures.map(|test| format!("{}: {}", test.capability, test.detail)).collect::<Vec<_>>().join("; ")
}

/// Walks through compiled code that are counted; a second of one busy thread.
const MAX_WALKS: u64 = 100;

/// Contradictions per hundred walks above which the test fails; JVMs of four releases have at most one.
const MAX_CONTRADICTIONS: u64 = 10;

/// Stop reasons of walks that contradict themselves, as with a wrong layout.
const CONTRADICTIONS: [&str; 4] = ["bad_frame", "unknown_code", "not_progressing", "invalid_method"];

/// Counts stop reasons of walks through compiled code.
#[derive(Debug, Default)]
pub(crate) struct CompiledWalks {
    walks: u64,
    inlined: u64,
    contradictions: u64,
    warned: bool,
}

impl CompiledWalks {
    /// Counts a walk through compiled code; `inlined` is whether it has inlined frames.
    pub fn count(&mut self, stop: &str, inlined: bool) {
        if self.walks >= MAX_WALKS {
            return;
        }
        self.walks += 1;
        self.inlined += u64::from(inlined);
        self.contradictions += u64::from(CONTRADICTIONS.contains(&stop));
        if self.walks == MAX_WALKS && self.is_bad() && !self.warned {
            self.warned = true;
            tracing::warn!(
                "self-test failed (compiled code: {}); many stacks will be incomplete, and marked as such",
                self.detail()
            );
        }
    }

    fn is_bad(&self) -> bool {
        self.contradictions * 100 > MAX_CONTRADICTIONS * self.walks
    }

    fn detail(&self) -> String {
        let Self { walks, inlined, contradictions, .. } = self;
        format!("{contradictions} contradictions in {walks} walks, {inlined} of them with inlined methods")
    }

    /// Returns the result so far.
    pub fn result(&self) -> SelfTest {
        const CAPABILITY: &str = "compiled code";
        match self.walks {
            walks if walks < MAX_WALKS => not_tried(CAPABILITY, format!("{} so far", self.detail())),
            _ if self.is_bad() => failed(CAPABILITY, self.detail()),
            _ => passed(CAPABILITY, self.detail()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_contradictions_are_a_failure() {
        let outcome = |bad: u64, all: u64| {
            let mut walks = CompiledWalks::default();
            for walk in 0..all {
                walks.count(if walk < bad { "bad_frame" } else { "end_of_stack" }, walk % 2 == 0);
            }
            walks.result().outcome()
        };
        assert_eq!(outcome(3, 99), SelfTestOutcome::NotTried);
        assert_eq!(outcome(3, 100), SelfTestOutcome::Passed);
        assert_eq!(outcome(11, 100), SelfTestOutcome::Failed);
    }
}
