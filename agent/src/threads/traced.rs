//! Threads that are sampled by the VM's stack traces instead of timers (`mode=jvmti`).
//!
//! Such a thread has no timer; the next trace claims the CPU time since the last one.
//! Invariant: a trace is passed on before its thread is listed as ended.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_thread::process::ThreadKind;

use super::registry::{Registry, pass_on};
use super::remainder::random_below;

/// Part of the interval that a thread must have used since its last trace, so that idle threads cost little and CPU
/// time limits the number of traces.
const LEAST_PART: u64 = 8;

/// A thread that has used CPU time since its last trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub slot: u32,
    pub id: u32,
    /// Address of its `JavaThread`.
    pub address: u64,
}

impl Registry {
    /// Gives no timers if `is_traced`, for stack traces of the VM instead.
    pub fn traced(mut self, is_traced: bool) -> Self {
        self.is_traced = is_traced;
        self
    }

    /// Returns the time until the next look at all threads: random, so that no program is in phase, and on average an
    /// interval.
    pub fn until_next_look(&self) -> Duration {
        let interval_ns = self.table.lock().aim.interval_ns;
        Duration::from_nanos((interval_ns / 2).saturating_add(random_below(interval_ns)))
    }

    /// Returns the Java threads that have used CPU time since their last trace.
    pub fn due(&self) -> Vec<Due> {
        let mut table = self.table.lock();
        let least_ns = (table.aim.interval_ns / LEAST_PART).cast_signed();
        let mut found = Vec::new();
        for index in 0..table.entries.len() {
            pass_on(&mut table, index);
            if table.stopped {
                return Vec::new();
            }
            let (Some(entry), Some(slot)) = (table.entry(index as u32), self.slot(index as u32)) else {
                continue;
            };
            let facts = &entry.facts;
            let address = slot.java_thread.load(Ordering::Relaxed);
            let is_sampled = facts.kind == ThreadKind::Java
                && facts.ended_ns.is_none()
                && facts.coverage.open_gap().is_none()
                && address != 0;
            if is_sampled
                && let Ok(clock_ns) = self.clock.read(facts.tid)
                && entry.unfinished_at(clock_ns, self.shared, slot) >= least_ns
            {
                found.push(Due { slot: facts.slot, id: facts.id, address });
            }
        }
        found
    }

    /// Claims the CPU time of a thread since its last trace, unless it has ended, and passes it on, in nanoseconds.
    pub fn claim(&self, due: &Due, pass_on: impl FnOnce(u64)) {
        let mut table = self.table.lock();
        let Some(slot) = self.slot(due.slot).filter(|_| !table.stopped) else { return };
        let entry = table.entry(due.slot).filter(|entry| {
            entry.facts.id == due.id
                && entry.facts.ended_ns.is_none()
                && entry.facts.coverage.open_gap().is_none()
                && slot.java_thread.load(Ordering::Relaxed) == due.address
        });
        let Some(entry) = entry else { return };
        let Ok(clock_ns) = self.clock.read(entry.facts.tid) else { return };
        let cpu_ns = entry.unfinished_at(clock_ns, self.shared, slot).max(0).cast_unsigned();
        if cpu_ns > 0 {
            table.add_expired(due.slot, cpu_ns);
            pass_on(cpu_ns);
        }
    }
}
