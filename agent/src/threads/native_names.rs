//! Names of native threads, which may change while they run.
//!
//! Problem: a native thread has its creator's name until it sets its own, and pools rename their threads, without an
//! event.
//! Approach: once a second, the kernel's names are read of native threads that have been sampled since, and of those
//! that are left out because of their names. Cut names stay cut.
//! Invariant: at most [`MOST_READ`] names are read at once, each from a file.

use std::mem;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use sampler_thread::pacing::Pacer;
use sampler_thread::process::{Gap, ThreadKind};

use super::kernel;
use super::registry::{Registry, pass_on};
use super::table::{Entry, Identity};

/// Time between two readings.
const PERIOD: Duration = Duration::from_secs(1);
/// Most names that are read at once; about 5 us each.
const MOST_READ: usize = 500;

impl Registry {
    pub(super) fn follow_native_names_if_due(&self) {
        let now = Instant::now();
        let is_due = {
            let mut table = self.table.lock();
            let last = &mut table.name_reading.last;
            let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= PERIOD);
            if is_due {
                *last = Some(now);
            }
            is_due
        };
        if is_due {
            self.follow_native_names(kernel::name_of);
        }
    }

    /// Gives native threads that were sampled since the last call the names that `name_of` returns.
    pub(super) fn follow_native_names(&self, name_of: impl Fn(i32) -> Option<String>) {
        let candidates = self.candidates();
        let mut pacer = Pacer::start();
        // Without the lock, because of a file for each thread.
        let mut names = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            pacer.rest_if_due();
            names.extend(name_of(candidate.tid).map(|name| (candidate, name)));
        }
        let mut table = self.table.lock();
        for (thread, name) in names {
            MutexGuard::bump(&mut table);
            let is_same = table.same(thread).is_some_and(|entry| is_native(entry));
            if !is_same || table.rename(thread.tid, &name).is_none() {
                continue;
            }
            if let Some(entry) = table.entry_mut(thread.slot) {
                // A thread of the VM is found before it has its name.
                entry.facts.kind = kernel::kind_of(&name);
            }
            self.choose(&mut table, thread.slot);
        }
    }

    /// Returns the native threads whose names are to be read.
    fn candidates(&self) -> Vec<Identity> {
        let mut table = self.table.lock();
        let slots = table.entries.len();
        let first = table.name_reading.first;
        let before = mem::take(&mut table.name_reading.sampled_ns);
        let mut candidates = Vec::new();
        for index in 0..slots {
            pass_on(&mut table, index);
            let slot = ((first + index) % slots) as u32;
            let Some(known) = self.slot(slot) else { continue };
            let Some(entry) = table.entry(slot).filter(|entry| is_native(entry)) else { continue };
            let (id, identity) = (entry.facts.id, entry.identity());
            let sampled_ns = entry.expired_ns(self.shared, known);
            let is_sampled = before.get(&id).copied().unwrap_or(0) != sampled_ns;
            let is_left_out = matches!(entry.facts.coverage.open_gap(), Some((Gap::NotChosen, _)));
            if !is_sampled && !is_left_out || candidates.len() < MOST_READ {
                table.name_reading.sampled_ns.insert(id, sampled_ns);
            }
            if (is_sampled || is_left_out) && candidates.len() < MOST_READ {
                candidates.push(identity);
                table.name_reading.first = slot as usize + 1;
            }
        }
        candidates
    }
}

fn is_native(entry: &Entry) -> bool {
    entry.facts.kind == ThreadKind::Native && entry.facts.ended_ns.is_none()
}
