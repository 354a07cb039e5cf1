//! Results of the self-test, and the capabilities that it leaves enabled.
//!
//! Problem: the structures of another build of the VM may differ from what its tables describe.
//! Approach: at the start the agent compares walks of parked threads with the VM's own stack traces; later the stop
//! reasons of walks through compiled code, and through C2's, are counted in windows for the life of the profile.
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

/// Returns the result for reads of the VM's memory by loads; `access` is why it is read by system calls.
pub(crate) fn of_access(access: Result<(), &'static str>) -> SelfTest {
    const CAPABILITY: &str = "reads by loads";
    match access {
        Ok(()) => passed(CAPABILITY, "by the VM's SafeFetchN".to_owned()),
        Err(why) => not_tried(CAPABILITY, format!("{why}; memory is read by system calls")),
    }
}

/// Describes the failures among results.
pub fn failures(results: &[SelfTest]) -> String {
    let failures = results.iter().filter(|test| has_failed(test));
    failures.map(|test| format!("{}: {}", test.capability, test.detail)).collect::<Vec<_>>().join("; ")
}

/// Walks of the first window: a second of one busy thread.
const FIRST_WINDOW: u64 = 100;

/// Walks of each later window. They are many, so each decides by more walks.
const LATER_WINDOW: u64 = 1000;

/// Contradictions per hundred walks above which a window fails; JVMs of four releases have at most one.
const MAX_CONTRADICTIONS: u64 = 10;

/// Stop reasons of walks that contradict themselves, as with a wrong layout.
const CONTRADICTIONS: [&str; 4] = ["bad_frame", "unknown_code", "not_progressing", "invalid_method"];

/// The compiled code that a walk goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompiledCode {
    /// True if methods are inlined in it.
    pub is_inlined: bool,
    /// True if some of it is C2's.
    pub is_c2: bool,
}

#[derive(Debug, Default)]
struct Window {
    walks: u64,
    contradictions: u64,
}

/// Counts stop reasons of walks through one kind of compiled code, for the life of the profile.
#[derive(Debug)]
struct Windows {
    capability: &'static str,
    walks: u64,
    inlined: u64,
    contradictions: u64,
    current: Window,
    failed: Option<Window>,
}

impl Windows {
    fn new(capability: &'static str) -> Self {
        Self { capability, walks: 0, inlined: 0, contradictions: 0, current: Window::default(), failed: None }
    }

    /// Counts a walk; warns of the first window that fails.
    fn count(&mut self, stop: &str, is_inlined: bool) {
        let contradiction = u64::from(CONTRADICTIONS.contains(&stop));
        self.walks += 1;
        self.inlined += u64::from(is_inlined);
        self.contradictions += contradiction;
        self.current.walks += 1;
        self.current.contradictions += contradiction;
        let size = if self.walks <= FIRST_WINDOW { FIRST_WINDOW } else { LATER_WINDOW };
        if self.current.walks < size {
            return;
        }
        let window = std::mem::take(&mut self.current);
        if window.contradictions * 100 > MAX_CONTRADICTIONS * window.walks && self.failed.is_none() {
            self.failed = Some(window);
            tracing::warn!(
                "self-test failed ({}: {}); many stacks will be incomplete, and marked as such",
                self.capability,
                self.detail()
            );
        }
    }

    fn detail(&self) -> String {
        let Self { walks, inlined, contradictions, failed, .. } = self;
        let all = format!(
            "{contradictions} contradictions in {walks} walks, {inlined} of them with inlined methods"
        );
        match failed {
            Some(Window { walks, contradictions }) => format!("{all}; once {contradictions} in {walks}"),
            None => all,
        }
    }

    fn result(&self) -> SelfTest {
        match (self.walks, &self.failed) {
            (_, Some(_)) => failed(self.capability, self.detail()),
            (walks, None) if walks < FIRST_WINDOW => {
                not_tried(self.capability, format!("{walks} walks, and a result needs {FIRST_WINDOW}"))
            }
            _ => passed(self.capability, self.detail()),
        }
    }
}

/// Counts stop reasons of walks through compiled code.
#[derive(Debug)]
pub(crate) struct CompiledWalks {
    all: Windows,
    c2: Windows,
}

impl Default for CompiledWalks {
    fn default() -> Self {
        Self { all: Windows::new("compiled code"), c2: Windows::new("C2 code") }
    }
}

impl CompiledWalks {
    /// Counts a walk through compiled code.
    pub fn count(&mut self, stop: &str, code: CompiledCode) {
        self.all.count(stop, code.is_inlined);
        if code.is_c2 {
            self.c2.count(stop, code.is_inlined);
        }
    }

    pub fn results(&self) -> [SelfTest; 2] {
        [self.all.result(), self.c2.result()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C1: CompiledCode = CompiledCode { is_inlined: false, is_c2: false };
    const C2: CompiledCode = CompiledCode { is_inlined: true, is_c2: true };

    fn count(walks: &mut CompiledWalks, (bad, all): (u64, u64), code: CompiledCode) {
        for walk in 0..all {
            walks.count(if walk < bad { "bad_frame" } else { "end_of_stack" }, code);
        }
    }

    fn outcomes(walks: &CompiledWalks) -> [SelfTestOutcome; 2] {
        walks.results().map(|result| result.outcome())
    }

    #[test]
    fn many_contradictions_are_a_failure() {
        let outcome = |bad: u64, all: u64| {
            let mut walks = CompiledWalks::default();
            count(&mut walks, (bad, all), C1);
            let [all, c2] = outcomes(&walks);
            assert_eq!(c2, SelfTestOutcome::NotTried);
            all
        };
        assert_eq!(outcome(3, 99), SelfTestOutcome::NotTried);
        assert_eq!(outcome(3, 100), SelfTestOutcome::Passed);
        assert_eq!(outcome(11, 100), SelfTestOutcome::Failed);
    }

    #[test]
    fn the_test_goes_on_for_the_life_of_a_profile() {
        use SelfTestOutcome::{Failed, NotTried, Passed};
        let mut walks = CompiledWalks::default();
        count(&mut walks, (0, 100), C1);
        assert_eq!(outcomes(&walks), [Passed, NotTried]);
        count(&mut walks, (90, 1000), C2);
        assert_eq!(outcomes(&walks), [Passed, Failed], "C2's first window is its own");
        count(&mut walks, (0, 5000), C1);
        count(&mut walks, (150, 1000), C2);
        assert_eq!(outcomes(&walks), [Failed, Failed]);
        count(&mut walks, (0, 5000), C2);
        assert_eq!(outcomes(&walks), [Failed, Failed], "a failure stays");
    }
}
