//! What is known about the truth of walks: results of comparisons, and what may be shown because of them.
//!
//! Problem: a VM of another build may keep its structures differently than its tables lead us to believe.
//! Approach: at start the agent compares walks of parked threads with the VM's own answer; here the ends of walks
//! through compiled code are counted until there are enough of them.
//! A walk that contradicts itself is cut and marked, never guessed, so the second test switches nothing off.

pub use proto::v1::{SelfTest, SelfTestOutcome};

/// What may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// Java stacks.
    pub walks: bool,
    /// Bytecode indexes and lines.
    pub positions: bool,
}

impl Trust {
    /// Everything.
    pub const ALL: Self = Self { walks: true, positions: true };

    /// Trust after tests, by the names of the capabilities that walks and positions rest on.
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

/// A comparison that came out equal.
pub fn passed(capability: &str, detail: String) -> SelfTest {
    result(capability, SelfTestOutcome::Passed, detail)
}

/// A comparison that did not.
pub fn failed(capability: &str, detail: String) -> SelfTest {
    result(capability, SelfTestOutcome::Failed, detail)
}

/// A comparison that could not be made.
pub fn not_tried(capability: &str, detail: String) -> SelfTest {
    result(capability, SelfTestOutcome::NotTried, detail)
}

fn result(capability: &str, outcome: SelfTestOutcome, detail: String) -> SelfTest {
    SelfTest { capability: capability.to_owned(), outcome: outcome.into(), detail }
}

/// The failures among results, in words.
pub fn failures(results: &[SelfTest]) -> String {
    let failures = results.iter().filter(|test| has_failed(test));
    failures.map(|test| format!("{}: {}", test.capability, test.detail)).collect::<Vec<_>>().join("; ")
}

/// Walks through compiled code that are enough to judge; a second of one busy thread.
const ENOUGH: u64 = 100;

/// Contradictions among them above which something is wrong, per hundred.
///
/// Real JVMs of four releases show at most one (`design/hotspot.md`, "Proof").
const TOO_MANY: u64 = 10;

/// Stop reasons of walks that contradict themselves, as a wrong layout makes them.
const CONTRADICTIONS: [&str; 4] = ["bad_frame", "unknown_code", "not_progressing", "invalid_method"];

/// Watches how walks through compiled code end.
#[derive(Debug, Default)]
pub(crate) struct CompiledWalks {
    walks: u64,
    inlined: u64,
    contradictions: u64,
    warned: bool,
}

impl CompiledWalks {
    /// Counts a walk that met compiled code, which may have had others inlined.
    pub fn count(&mut self, stop: &str, inlined: bool) {
        if self.walks >= ENOUGH {
            return;
        }
        self.walks += 1;
        self.inlined += u64::from(inlined);
        self.contradictions += u64::from(CONTRADICTIONS.contains(&stop));
        if self.walks == ENOUGH && self.is_bad() && !self.warned {
            self.warned = true;
            tracing::warn!(
                "self-test failed (compiled code: {}): many stacks will be cut, and marked as such",
                self.detail()
            );
        }
    }

    fn is_bad(&self) -> bool {
        self.contradictions * 100 > TOO_MANY * self.walks
    }

    fn detail(&self) -> String {
        let Self { walks, inlined, contradictions, .. } = self;
        format!("{contradictions} contradictions in {walks} walks, {inlined} of them with inlined methods")
    }

    /// The result so far.
    pub fn result(&self) -> SelfTest {
        const CAPABILITY: &str = "compiled code";
        match self.walks {
            walks if walks < ENOUGH => not_tried(CAPABILITY, format!("{} so far", self.detail())),
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
