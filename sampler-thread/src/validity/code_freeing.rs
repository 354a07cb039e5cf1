//! Detects that the VM may have freed compiled code.
//!
//! Problem: samples from before a garbage collection pause are often walked during or after it, and a pc among them may
//! lie in code that was freed since; but most pauses free none, and cutting all these stacks loses correct ones.
//! Approach: a number that changes before anything is freed is read before the sample and again before the walk.
//! From JDK 20 on code is freed by collections that look at the old generation alone (Serial and Parallel: full
//! ones; G1: full ones and the pause that ends a marking), which the VM counts when they begin.
//! Up to JDK 19 a sweeper thread frees code that no stack has referred to for several rounds; a pause only marks code of
//! classes that it unloads, which the VM counts as well.
//! Invariant: with any other collector, and without counters, every pause may have freed code.
//! Sources: `gc/{serial,parallel,g1}`, `gc/shared/collectorCounters.hpp`, `code/codeCache.cpp`,
//! `runtime/sweeper.cpp`, JDK 11 to 25.

use stackwalk::{HotSpot, Memory, PerfCounter};

/// Counters that together count every unloaded class: ordinary and archived ones.
pub(crate) const CLASS_COUNTERS: [&str; 2] = ["java.cls.unloadedClasses", "java.cls.sharedUnloadedClasses"];

/// First release in which collections free code.
const FIRST_WITHOUT_SWEEPER: u32 = 20;

/// Collectors whose young collections free no code, with the counters of their other collections.
const COLLECTORS: [(&str, &[&str]); 3] = [
    ("UseSerialGC", &["sun.gc.collector.1.invocations"]),
    ("UseParallelGC", &["sun.gc.collector.1.invocations"]),
    ("UseG1GC", &["sun.gc.collector.1.invocations", "sun.gc.collector.2.invocations"]),
];

/// Returns the counters of the collections that look at the old generation; `None` for other collectors than
/// [`COLLECTORS`], and without counters.
pub(crate) fn old_collections(hotspot: &HotSpot, memory: &impl Memory) -> Option<Vec<PerfCounter>> {
    let is_used = |flag| hotspot.bool_flag(memory, flag) == Some(true);
    let (_, names) = COLLECTORS.iter().find(|(flag, _)| is_used(flag))?;
    names.iter().map(|name| hotspot.perf_counter(memory, name)).collect()
}

/// Returns the sum of counters; `None` if one cannot be read.
pub(crate) fn sum(counters: &[PerfCounter], memory: &impl Memory) -> Option<u64> {
    counters.iter().try_fold(0_u64, |sum, counter| Some(sum.wrapping_add(counter.read(memory).ok()?)))
}

/// Counters that change before code is freed; empty if every pause may free code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CodeFreeing(Vec<PerfCounter>);

impl CodeFreeing {
    /// Finds the counters of an initialised VM.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory) -> Self {
        let counters = if hotspot.jdk_major() < FIRST_WITHOUT_SWEEPER {
            CLASS_COUNTERS.iter().map(|name| hotspot.perf_counter(memory, name)).collect()
        } else {
            old_collections(hotspot, memory)
        };
        Self(counters.unwrap_or_default())
    }

    /// Returns whether the VM counts all that may free code in a pause.
    pub fn is_counted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns a number that stays the same while no code is freed; `None` without counters.
    pub fn mark(&self, memory: &impl Memory) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        sum(&self.0, memory)
    }
}

/// The last mark, and since when it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CodeMark {
    mark: Option<u64>,
    since: u64,
}

impl CodeMark {
    /// Records a mark that was read before `ticks`.
    pub fn note(&mut self, mark: Option<u64>, ticks: u64) {
        if mark != self.mark {
            *self = Self { mark, since: ticks };
        }
    }

    /// Returns whether no code was freed from `ticks` until `now` was read.
    pub fn is_same_since(&self, ticks: u64, now: Option<u64>) -> bool {
        now.is_some() && now == self.mark && ticks >= self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::StackCopy;

    #[test]
    fn code_is_the_same_between_two_equal_marks_only() {
        let mut code = CodeMark::default();
        assert!(!code.is_same_since(10, None), "no counters");
        code.note(Some(3), 5);
        assert!(code.is_same_since(5, Some(3)));
        assert!(!code.is_same_since(4, Some(3)), "before the first mark");
        assert!(!code.is_same_since(6, Some(4)), "a collection has begun since");
        code.note(Some(3), 8);
        assert!(code.is_same_since(5, Some(3)), "the same mark again");
        code.note(Some(4), 9);
        assert!(!code.is_same_since(8, Some(4)));
        code.note(None, 11);
        assert!(!code.is_same_since(12, None), "the counters are gone");
    }

    #[test]
    fn without_counters_there_is_no_mark() {
        assert_eq!(CodeFreeing::default().mark(&StackCopy::new(0, &[])), None);
    }
}
