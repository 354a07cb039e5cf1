//! The account of each thread: CPU time by the kernel = sampled + lost by cause + unfinished period.
//!
//! Problem: a reader must be able to see that no CPU time is missing.
//! Approach: expirations lie on a fixed grid of the thread's own CPU clock, so every request stands for whole
//! intervals. The unfinished period of a thread that ends goes to the next new thread, which reaches its first
//! expiration earlier by that time, so that many short threads are sampled as accurately as one long thread.
//! Invariant: over the process, the sum of kernel time = sampled + lost + unfinished, with every term >= 0.

pub(crate) mod accounts;
pub(crate) mod timestamps;
pub(crate) mod virtual_threads;
pub mod waiting;

use proto::v1;
use queue::LostCounters;

use crate::process::{Gap, ThreadFacts};

/// Running totals of one thread.
#[derive(Debug, Clone)]
pub struct Account {
    pub facts: ThreadFacts,
    /// Samples sent.
    pub samples: u64,
    /// CPU time of these samples in nanoseconds.
    pub sampled_ns: u64,
    /// Samples whose newest Java frame is that of a later point.
    biased: u64,
    /// Number and nanoseconds of the gaps without expirations, by cause.
    gaps: [(u64, u64); Gap::ALL.len()],
    /// CPU time of requests that an internal error left without a sample, in nanoseconds.
    abandoned_ns: u64,
    /// Last reading of the CPU clock of the thread, in nanoseconds.
    clock_ns: u64,
    /// Time in which the thread was ready and had no processor, at the last reading; `None` if it is not reported.
    pub run_delay_ns: Option<u64>,
    /// True if the account changed since it was sent.
    pub dirty: bool,
    /// Revision of `facts` that was sent last.
    pub sent_revision: Option<u32>,
    /// Samples when the account was sent last.
    sent_samples: u64,
}

/// Samples after which an account, of some 30 bytes, is sent in brief statistics.
const MIN_SAMPLES: u64 = 10;

impl Account {
    /// Opens the account of a thread whose slot has new counters.
    pub fn open(facts: ThreadFacts) -> Self {
        let clock_ns = facts.armed_ns;
        Self {
            facts,
            samples: 0,
            sampled_ns: 0,
            biased: 0,
            gaps: [(0, 0); Gap::ALL.len()],
            abandoned_ns: 0,
            clock_ns,
            run_delay_ns: None,
            dirty: true,
            sent_revision: None,
            sent_samples: 0,
        }
    }

    /// Returns whether the account has changed and is part of `whole` statistics, or of brief ones; it then counts as
    /// sent.
    pub fn take_due(&mut self, whole: bool) -> bool {
        let due = self.dirty && (whole || self.samples >= self.sent_samples + MIN_SAMPLES);
        if due {
            self.dirty = false;
            self.sent_samples = self.samples;
        }
        due
    }

    pub fn add_sample(&mut self, cpu_ns: u64, is_biased: bool) {
        self.samples += 1;
        self.biased += u64::from(is_biased);
        self.sampled_ns = self.sampled_ns.saturating_add(cpu_ns);
        self.dirty = true;
    }

    /// Returns the last reading of the thread's CPU clock, in nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Records a reading of the thread's CPU clock; returns whether the thread has run since the last one.
    pub fn read_clock(&mut self, clock_ns: u64) -> bool {
        let has_run = clock_ns > self.clock_ns;
        if has_run {
            self.clock_ns = clock_ns;
            self.dirty = true;
        }
        self.gaps = self.facts.coverage.gaps_at(self.clock_ns);
        has_run
    }

    /// Counts requests that will not be sampled as lost, because of an internal error.
    pub fn abandon(&mut self, counters: &LostCounters) {
        self.abandoned_ns = 0;
        let gaps: u64 = self.gaps.iter().map(|(_, ns)| ns).sum();
        let lost: u64 = self.lost(counters).iter().map(|lost| lost.ns).sum();
        let counted = self.sampled_ns.saturating_add(lost.saturating_sub(gaps));
        self.abandoned_ns = self.facts.expired_ns.saturating_sub(counted);
    }

    /// Corrects a clock that is behind, or could not be read at the end: expirations prove the CPU time they stand for.
    pub fn settle(&mut self, counters: &LostCounters) {
        let lost: u64 = self.lost(counters).iter().map(|lost| lost.ns).sum();
        let proven = self.sampled_ns.saturating_add(lost);
        self.clock_ns = self.clock_ns.saturating_add(proven.saturating_sub(self.kernel_ns()));
    }

    /// Returns the CPU time since the timer was armed plus the period taken over, in nanoseconds.
    pub fn kernel_ns(&self) -> u64 {
        self.own_ns().saturating_add(self.facts.carried_ns)
    }

    /// Returns the CPU time since the timer was armed, in nanoseconds.
    pub fn own_ns(&self) -> u64 {
        self.clock_ns.saturating_sub(self.facts.armed_ns)
    }

    /// Returns the losses of this thread by cause.
    pub fn lost(&self, counters: &LostCounters) -> Vec<v1::Lost> {
        let early = counters.snapshot();
        let early = early.iter().map(|lost| (lost.cause.name(), lost.count, lost.nanos));
        let gaps = Gap::ALL.iter().zip(&self.gaps).map(|(cause, gap)| (cause.name(), gap.0, gap.1));
        early
            .chain(gaps)
            .chain([("internal_error", 0, self.abandoned_ns)])
            .filter(|(_, count, ns)| *count > 0 || *ns > 0)
            .map(|(cause, count, ns)| v1::Lost { cause: cause.to_owned(), count, ns })
            .collect()
    }

    /// Returns the CPU time that neither expirations nor known gaps cover, in nanoseconds; less than a period unless
    /// the signal does not arrive.
    pub fn silent_ns(&self) -> u64 {
        let uncovered = self.facts.coverage.uncovered_at(self.clock_ns);
        self.kernel_ns().saturating_sub(self.facts.expired_ns).saturating_sub(uncovered)
    }

    /// Returns the CPU time that no expiration has covered, in nanoseconds.
    pub fn unfinished_ns(&self, counters: &LostCounters) -> u64 {
        let lost: u64 = self.lost(counters).iter().map(|lost| lost.ns).sum();
        self.kernel_ns().saturating_sub(self.sampled_ns).saturating_sub(lost)
    }

    /// Returns the account as a message; `handed_on_ns` is set if the thread has ended.
    pub fn message(&self, counters: &LostCounters, handed_on_ns: Option<u64>) -> v1::ThreadAccount {
        v1::ThreadAccount {
            thread: self.facts.id,
            kernel_ns: self.kernel_ns(),
            sampled_ns: self.sampled_ns,
            lost: self.lost(counters),
            samples: self.samples,
            carried_ns: self.facts.carried_ns,
            handed_on_ns: handed_on_ns.unwrap_or(0),
            ended: handed_on_ns.is_some(),
            before_timer_ns: self.facts.before_timer_ns,
            expired_ns: self.facts.expired_ns,
            run_delay_ns: self.run_delay_ns,
            biased: self.biased,
        }
    }
}

/// Adds `lost` to the totals by cause.
pub fn add_lost(total: &mut Vec<v1::Lost>, lost: &[v1::Lost]) {
    for item in lost {
        match total.iter_mut().find(|t| t.cause == item.cause) {
            Some(sum) => {
                sum.count += item.count;
                sum.ns += item.ns;
            }
            None => total.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use queue::LostCause;

    use super::*;
    use crate::process::{Coverage, ThreadKind};

    fn facts(armed_ns: u64, carried_ns: u64) -> ThreadFacts {
        ThreadFacts {
            slot: 0,
            id: 1,
            revision: 0,
            tid: 42,
            name: Arc::from("worker"),
            kind: ThreadKind::Java,
            armed_ns,
            carried_ns,
            before_timer_ns: 0,
            coverage: Coverage::default(),
            expired_ns: 0,
            ended_ns: None,
        }
    }

    #[test]
    fn account_closes_with_losses_and_a_carried_period() {
        let counters = LostCounters::new();
        counters.add(LostCause::QueueFull, 500); // of an earlier owner of the slot
        counters.reset();
        let mut account = Account::open(facts(1_000, 3));
        counters.add(LostCause::QueueFull, 20);
        counters.add(LostCause::Stopping, 10);
        account.add_sample(10, false);
        account.add_sample(20, false);
        account.read_clock(1_065);
        let lost: u64 = account.lost(&counters).iter().map(|l| l.ns).sum();
        assert_eq!((account.kernel_ns(), account.sampled_ns, lost), (68, 30, 30));
        assert_eq!(account.unfinished_ns(&counters), 8);
    }

    #[test]
    fn time_without_a_timer_is_lost() {
        let counters = LostCounters::new();
        let mut coverage = Coverage::default();
        coverage.begin_gap(Gap::NoTimer, 100);
        let mut account = Account::open(ThreadFacts { coverage, ..facts(100, 0) });
        account.read_clock(700);
        let lost = account.lost(&counters);
        assert_eq!((lost[0].cause.as_str(), lost[0].ns), ("no_timer", 600));
        assert_eq!(account.unfinished_ns(&counters), 0);
    }

    #[test]
    fn gaps_without_a_timer_add_up() {
        let counters = LostCounters::new();
        let mut coverage = Coverage::default();
        coverage.begin_gap(Gap::NoTimer, 100);
        coverage.end_gap(150);
        coverage.begin_gap(Gap::NoTimer, 210);
        coverage.end_gap(1_000);
        coverage.begin_gap(Gap::NoTimer, 1_030);
        let mut account = Account::open(ThreadFacts { coverage, ..facts(100, 0) });
        account.add_sample(80, false);
        account.read_clock(1_100);
        let lost = account.lost(&counters);
        assert_eq!((lost[0].count, lost[0].ns), (3, 50 + 790 + 70));
        assert_eq!((account.kernel_ns(), account.unfinished_ns(&counters)), (1_000, 10));
    }

    #[test]
    fn expirations_prove_time_without_a_clock_reading() {
        let counters = LostCounters::new();
        let mut account = Account::open(facts(100, 4));
        account.add_sample(50, false);
        counters.add(LostCause::QueueFull, 10);
        account.settle(&counters);
        assert_eq!((account.kernel_ns(), account.unfinished_ns(&counters)), (60, 0));
    }

    #[test]
    fn an_account_is_sent_when_whole_or_with_enough_samples() {
        let mut account = Account::open(facts(100, 0));
        assert!(!account.take_due(false), "no sample yet");
        assert!(account.take_due(true) && !account.take_due(true));
        (0..MIN_SAMPLES - 1).for_each(|_| account.add_sample(1, false));
        assert!(!account.take_due(false));
        account.add_sample(1, false);
        assert!(account.take_due(false) && !account.take_due(false));
    }

    #[test]
    fn a_clock_never_goes_back() {
        let counters = LostCounters::new();
        let mut account = Account::open(facts(100, 0));
        account.read_clock(300);
        account.read_clock(200);
        assert_eq!(account.kernel_ns(), 200);
        assert_eq!(account.unfinished_ns(&counters), 200);
    }
}
