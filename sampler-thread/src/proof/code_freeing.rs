//! Detects that the VM may have freed compiled code.
//!
//! Problem: samples from before a garbage collection pause are often walked during or after it, and a pc among them may
//! lie in code that was freed since; but most pauses free none, and cutting all these stacks loses correct ones.
//! Approach: a number that changes before anything is freed is read before the sample and again before the walk.
//! From JDK 20 on code is freed by collections that look at the old generation alone (Serial and Parallel: full
//! ones; G1: full ones and the pause that ends a marking), which the VM counts when they begin.
//!
//! Up to JDK 19 only a sweeper thread frees code, outside of pauses, in numbered rounds (sweeps). The VM turns code
//! into a zombie only when no stack refers to it.
//! - JDK 17 to 19: a sweep frees only what an earlier sweep turned into a zombie. If sweep `n` had ended before the
//!   sample, the code was no zombie after it, so sweep `n + 2` is the first that can free the code. The code is still
//!   there while at most `n + 1` sweeps have begun.
//! - JDK 11: a sweep may turn OSR code into a zombie and free it at once. Each sweep begins in a safepoint that scans
//!   all stacks, and turns only code into a zombie whose mark is smaller than its own number by two or more. The mark
//!   is the number of the last sweep that had begun when the code was made not entrant, or when a scan found it on a
//!   stack. If sweep `n` had begun before the sample, the code was made not entrant later or was on the stack in that
//!   scan, because code that is not entrant is not entered. So its mark is `n` or more, and sweep `n + 2` is the first
//!   that can free it. This does not hold for code that a collection condemns because an object in it died; such
//!   collections look at the old generation.
//!
//! JDK 12 to 16 have not been examined: there a check of unloaded classes proves what a pause condemns, nothing more.
//! Invariant: with any other collector, and without counters, every pause may have freed code.
//! Sources: `gc/{serial,parallel,g1}`, `gc/shared/collectorCounters.hpp`, `code/codeCache.cpp`,
//! `code/nmethod.cpp`, `runtime/{sweeper,safepoint}.cpp`, JDK 11 to 25.

use std::sync::Arc;

use stackwalk::{HotSpot, Memory, PerfCounter};

use crate::native::variables::HiddenSymbols;

/// Counters that together count every unloaded class: ordinary and archived ones.
pub(crate) const CLASS_COUNTERS: [&str; 2] = ["java.cls.unloadedClasses", "java.cls.sharedUnloadedClasses"];

/// First release in which collections free code, and no thread does.
pub(crate) const FIRST_WITHOUT_SWEEPER: u32 = 20;

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

/// Numbers that change before code is freed.
#[derive(Debug, Clone, Default)]
pub struct CodeFreeing {
    /// Counters of collections that free code or condemn it; empty if every pause may do so.
    counters: Vec<PerfCounter>,
    jdk_major: u32,
    /// The VM's counts of the rounds of its sweeper thread.
    symbols: Arc<HiddenSymbols>,
}

impl CodeFreeing {
    /// Finds the counters of an initialised VM.
    pub fn choose(hotspot: &HotSpot, memory: &impl Memory, symbols: Arc<HiddenSymbols>) -> Self {
        let jdk_major = hotspot.jdk_major();
        let counters = if jdk_major == 11 || jdk_major >= FIRST_WITHOUT_SWEEPER {
            old_collections(hotspot, memory)
        } else {
            CLASS_COUNTERS.iter().map(|name| hotspot.perf_counter(memory, name)).collect()
        };
        Self { counters: counters.unwrap_or_default(), jdk_major, symbols }
    }

    /// Returns a number that stays the same while no code is freed in a pause; `None` without counters.
    pub fn mark(&self, memory: &impl Memory) -> Option<u64> {
        if self.counters.is_empty() {
            return None;
        }
        sum(&self.counters, memory)
    }

    /// Reads the counts of sweeps; `None` if the VM has no sweeper, or its counts are not known.
    pub(crate) fn sweeps(&self, memory: &impl Memory) -> Option<Sweeps> {
        let (begun, ended) = self.sweep_counts()?;
        // With counts that cannot be read, no sample's code counts as kept.
        let begun = memory.read_u64(begun).unwrap_or(u64::MAX);
        Some(Sweeps { begun, ended: memory.read_u64(ended).unwrap_or(0) })
    }

    /// Reads how near the next sweep is; `None` if sweeps do not come in bursts.
    pub(crate) fn ahead(&self, memory: &impl Memory) -> Option<Ahead> {
        if !(17..FIRST_WITHOUT_SWEEPER).contains(&self.jdk_major) {
            return None;
        }
        let (begun, ended) = self.sweep_counts()?;
        let (begun, ended) = (memory.read_u64(begun).ok()?, memory.read_u64(ended).ok()?);
        let bytes_left = self.symbols.changes().and_then(|(changed, threshold)| {
            Some(memory.read_u64(threshold).ok()?.saturating_sub(memory.read_u64(changed).ok()?))
        });
        Some(Ahead { sweeps: Sweeps { begun, ended }, bytes_left })
    }

    /// Returns where the VM counts sweeps that have begun, and those that have ended.
    fn sweep_counts(&self) -> Option<(u64, u64)> {
        let (begun, ended) = self.symbols.sweeps();
        let begun = begun?;
        match self.jdk_major {
            // The other variable also counts rounds without a sweep. It is not needed: see the head of this file.
            11 => Some((begun, begun)),
            17..FIRST_WITHOUT_SWEEPER => Some((begun, ended?)),
            _ => None,
        }
    }

    /// Returns whether it is certain for samples of any age whether the code they ran in was freed.
    pub fn is_proven(&self) -> bool {
        !self.counters.is_empty() && self.are_sweeps_proven()
    }

    /// Returns whether it is certain which code sweeps have freed.
    fn are_sweeps_proven(&self) -> bool {
        self.jdk_major >= FIRST_WITHOUT_SWEEPER || self.sweep_counts().is_some()
    }
}

/// Rounds of the VM's sweeper thread, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sweeps {
    pub begun: u64,
    /// Rounds that have ended; in JDK 11 again those that have begun.
    pub ended: u64,
}

/// How near the next sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Sweeps so far.
    pub sweeps: Sweeps,
    /// Bytes of code that are still to change before the next one; `None` if that is not known.
    pub bytes_left: Option<u64>,
}

/// The last readings, and since when they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CodeMark {
    mark: Option<u64>,
    since: u64,
    /// The last two different numbers of sweeps that had ended, each with the time since when it is known. No sweep had
    /// ended at the start of the VM. Older numbers are of no use: at most one sweep is running.
    ended: [(u64, u64); 2],
}

impl CodeMark {
    /// Records what was read before `ticks`.
    pub fn note(&mut self, mark: Option<u64>, sweeps: Option<Sweeps>, ticks: u64) {
        if mark != self.mark {
            (self.mark, self.since) = (mark, ticks);
        }
        let [_, newest] = self.ended;
        if let Some(Sweeps { ended, .. }) = sweeps.filter(|sweeps| sweeps.ended != newest.0) {
            self.ended = [newest, (ended, ticks)];
        }
    }

    /// Returns whether no pause freed code from `ticks` until `now` was read.
    pub fn is_same_since(&self, ticks: u64, now: Option<u64>) -> bool {
        now.is_some() && now == self.mark && ticks >= self.since
    }

    /// Returns whether no sweep freed code that ran at `ticks` until `now` was read; true if nothing is known of
    /// sweeps.
    pub fn is_kept_since(&self, ticks: u64, now: Option<Sweeps>) -> bool {
        let Some(Sweeps { begun, .. }) = now else { return true };
        self.ended.iter().any(|&(ended, since)| ticks >= since && begun <= ended.saturating_add(1))
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
        code.note(Some(3), None, 5);
        assert!(code.is_same_since(5, Some(3)));
        assert!(!code.is_same_since(4, Some(3)), "before the first mark");
        assert!(!code.is_same_since(6, Some(4)), "a collection has begun since");
        code.note(Some(3), None, 8);
        assert!(code.is_same_since(5, Some(3)), "the same mark again");
        code.note(Some(4), None, 9);
        assert!(!code.is_same_since(8, Some(4)));
        code.note(None, None, 11);
        assert!(!code.is_same_since(12, None), "the counters are gone");
    }

    #[test]
    fn code_outlives_the_first_sweep_that_begins_after_it_ran() {
        let sweeps = |begun, ended| Some(Sweeps { begun, ended });
        let mut code = CodeMark::default();
        assert!(code.is_kept_since(0, None), "without a sweeper");
        assert!(code.is_kept_since(0, sweeps(1, 0)) && !code.is_kept_since(0, sweeps(2, 1)));
        code.note(None, sweeps(4, 3), 10);
        assert!(code.is_kept_since(10, sweeps(4, 3)), "in the sweep that was running");
        assert!(!code.is_kept_since(9, sweeps(4, 3)), "before it was known how many had ended");
        assert!(!code.is_kept_since(10, sweeps(5, 4)), "the sweep that was running may have condemned it");
        code.note(None, sweeps(4, 4), 20);
        assert!(code.is_kept_since(10, sweeps(4, 4)), "the number that was known at its time");
        assert!(code.is_kept_since(20, sweeps(5, 4)) && !code.is_kept_since(19, sweeps(5, 4)));
        code.note(None, sweeps(5, 4), 30);
        assert!(code.is_kept_since(20, sweeps(5, 4)), "the same number again");
        code.note(None, sweeps(5, 5), 40);
        assert!(code.is_kept_since(20, sweeps(5, 5)) && !code.is_kept_since(20, sweeps(6, 5)));
        assert!(code.is_kept_since(40, sweeps(6, 5)));
    }

    /// Counts of sweeps at 0x1000 and 0x1008.
    fn swept(jdk_major: u32) -> CodeFreeing {
        let symbols = Arc::new(HiddenSymbols::with_sweeps_at(0x1000, 0x1008));
        CodeFreeing { jdk_major, symbols, ..CodeFreeing::default() }
    }

    #[test]
    fn sweeps_are_read_where_their_rules_are_known() {
        let counts = [5_u64, 4].map(u64::to_le_bytes).concat();
        let memory = StackCopy::new(0x1000, &counts);
        assert_eq!(swept(11).sweeps(&memory), Some(Sweeps { begun: 5, ended: 5 }));
        for jdk_major in [17, 19] {
            assert_eq!(swept(jdk_major).sweeps(&memory), Some(Sweeps { begun: 5, ended: 4 }));
        }
        for jdk_major in [12, 16, 20, 25] {
            assert_eq!(swept(jdk_major).sweeps(&memory), None);
        }
        let unreadable = swept(17).sweeps(&StackCopy::new(0, &[]));
        assert!(!CodeMark::default().is_kept_since(0, unreadable));
    }

    #[test]
    fn sweeps_are_proven_where_they_are_counted() {
        let unlocated = |jdk_major| CodeFreeing { jdk_major, ..CodeFreeing::default() };
        for jdk_major in [11, 17, 19] {
            assert!(swept(jdk_major).are_sweeps_proven() && !unlocated(jdk_major).are_sweeps_proven());
            assert!(!swept(jdk_major).is_proven(), "without the VM's counters");
        }
        assert!(!swept(12).are_sweeps_proven(), "unexamined");
        assert!(unlocated(20).are_sweeps_proven(), "without a sweeper");
    }

    #[test]
    fn without_counters_there_is_no_mark() {
        assert_eq!(CodeFreeing::default().mark(&StackCopy::new(0, &[])), None);
    }
}
