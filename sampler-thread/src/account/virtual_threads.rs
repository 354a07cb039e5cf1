//! Ids of virtual threads on the wire: one for each virtual thread on each carrier.
//!
//! Problem: a sample belongs to a virtual thread, its CPU time to the clock of a carrier; a program may start a million
//! virtual threads an hour, and every receiver keeps all ids.
//! Approach: an id stands for a pair of both, which its [`Thread`] describes. Beyond [`BURST`] new ids at once and
//! [`REFILL`] a second, samples go to one id per carrier for all further virtual threads. A thread whose name becomes
//! known later is sent again.
//! Invariant: memory is bounded by [`GENERATION`]; the most recently sampled threads are kept.

use std::hash::BuildHasherDefault;

use proto::v1::{Thread, ThreadKind};
use rustc_hash::FxHasher;

use crate::name::dictionaries::Dictionaries;
use crate::process::ThreadFacts;

/// Most new ids at once; with [`GENERATION`] they take about 1 MB.
const BURST: u32 = 16_384;

/// Further new ids each second: 180,000 an hour, at some 30 bytes on the wire.
const REFILL: u32 = 50;

/// Virtual threads per generation. Two are kept; threads that were not sampled during a generation are forgotten.
const GENERATION: usize = 4096;

/// Name of the thread for all virtual threads of a carrier that got no id.
const FURTHER: &str = "[further virtual threads]";

type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Its id on one carrier.
#[derive(Debug, Clone, Copy)]
struct CarrierId {
    carrier: u32,
    id: u32,
    is_sent: bool,
}

#[derive(Debug, Default)]
struct VirtualThread {
    name: Box<str>,
    ids: Vec<CarrierId>,
}

/// The recently sampled virtual threads.
#[derive(Debug)]
pub(crate) struct VirtualThreads {
    young: Map<u64, VirtualThread>,
    old: Map<u64, VirtualThread>,
    /// New ids that are left.
    left: u32,
}

impl Default for VirtualThreads {
    fn default() -> Self {
        Self { young: Map::default(), old: Map::default(), left: BURST }
    }
}

impl VirtualThreads {
    /// Returns the id for a sample of the virtual thread with `java.lang.Thread.tid` `java_id`, and describes it in
    /// `dictionaries`. `next_id` returns an unused id.
    pub fn id(
        &mut self,
        java_id: u64,
        name: Option<String>,
        carrier: &ThreadFacts,
        dictionaries: &mut Dictionaries,
        next_id: impl FnOnce() -> u32,
    ) -> u32 {
        let has_id = |thread: &VirtualThread| thread.ids.iter().any(|id| id.carrier == carrier.id);
        let is_known = [&self.young, &self.old].iter().any(|map| map.get(&java_id).is_some_and(has_id));
        // No virtual thread has the Java id 0; it stands for all that get no id.
        let (java_id, name) = if is_known || self.left > 0 { (java_id, name) } else { (0, None) };
        let thread = self.thread(java_id);
        if let Some(name) = name.filter(|name| **name != *thread.name) {
            thread.name = name.into_boxed_str();
            thread.ids.iter_mut().for_each(|id| id.is_sent = false);
        }
        let mut is_new = false;
        let at = thread.ids.iter().position(|id| id.carrier == carrier.id).unwrap_or_else(|| {
            is_new = java_id != 0;
            thread.ids.push(CarrierId { carrier: carrier.id, id: next_id(), is_sent: false });
            thread.ids.len() - 1
        });
        let Some(carrier_id) = thread.ids.get_mut(at) else { return carrier.id };
        let id = carrier_id.id;
        if !std::mem::replace(&mut carrier_id.is_sent, true) {
            let name = if java_id == 0 { FURTHER.to_owned() } else { thread.name.to_string() };
            dictionaries.thread(Thread {
                id,
                tid: carrier.tid.cast_unsigned(),
                name,
                kind: ThreadKind::Virtual.into(),
                java_id: java_id.cast_signed(),
                carrier: carrier.id,
            });
        }
        self.left = self.left.saturating_sub(u32::from(is_new));
        id
    }

    /// Returns the thread with this Java id, which counts as sampled.
    fn thread(&mut self, java_id: u64) -> &mut VirtualThread {
        if self.young.len() >= GENERATION && !self.young.contains_key(&java_id) {
            let kept = self.old.remove(&java_id);
            self.old = std::mem::take(&mut self.young);
            self.young.extend(kept.map(|thread| (java_id, thread)));
        }
        let old = &mut self.old;
        self.young.entry(java_id).or_insert_with(|| old.remove(&java_id).unwrap_or_default())
    }

    /// Allows further ids; to be called once a second.
    pub fn refill(&mut self) {
        self.left = self.left.saturating_add(REFILL).min(BURST);
    }

    /// Sends every thread again with its next sample.
    pub fn forget_sent(&mut self) {
        let all = self.young.values_mut().chain(self.old.values_mut());
        all.flat_map(|thread| &mut thread.ids).for_each(|id| id.is_sent = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Coverage;

    fn carrier(id: u32) -> ThreadFacts {
        ThreadFacts {
            slot: id,
            id,
            revision: 0,
            tid: 1000 + id.cast_signed(),
            name: "ForkJoinPool-1-worker".into(),
            kind: ThreadKind::Java,
            armed_ns: 0,
            carried_ns: 0,
            before_timer_ns: 0,
            coverage: Coverage::default(),
            expired_ns: 0,
            ended_ns: None,
        }
    }

    #[derive(Default)]
    struct Trial {
        threads: VirtualThreads,
        dictionaries: Dictionaries,
        last: u32,
    }

    impl Trial {
        fn id(&mut self, java_id: u64, name: Option<&str>, on: u32) -> u32 {
            let (name, last) = (name.map(str::to_owned), &mut self.last);
            self.threads.id(java_id, name, &carrier(on), &mut self.dictionaries, || {
                *last += 1;
                *last
            })
        }

        fn sent(&mut self) -> Vec<(u32, String, i64, u32)> {
            let threads = self.dictionaries.take_pending().unwrap_or_default().threads;
            threads
                .into_iter()
                .map(|thread| (thread.id, thread.name, thread.java_id, thread.carrier))
                .collect()
        }
    }

    #[test]
    fn each_pair_has_an_id_and_a_late_name_is_sent() {
        let mut trial = Trial::default();
        assert_eq!((trial.id(40, None, 7), trial.id(40, None, 7)), (1, 1));
        assert_eq!(trial.sent(), [(1, String::new(), 40, 7)]);
        assert_eq!(trial.id(40, Some("loader"), 7), 1);
        assert_eq!(trial.id(40, None, 8), 2, "on another carrier");
        assert_eq!(trial.sent(), [(1, "loader".into(), 40, 7), (2, "loader".into(), 40, 8)]);
        assert_eq!(trial.id(40, Some("loader"), 8), 2);
        assert_eq!(trial.sent(), []);
        trial.threads.forget_sent();
        assert_eq!(trial.id(40, None, 8), 2);
        assert_eq!(trial.sent(), [(2, "loader".into(), 40, 8)]);
    }

    #[test]
    fn the_rate_of_new_ids_is_limited() {
        let mut trial = Trial::default();
        for java_id in 1..=u64::from(BURST) {
            trial.id(java_id, None, 7);
        }
        trial.sent();
        let further = trial.id(1 << 40, Some("late"), 7);
        assert_eq!(trial.id(2 << 40, None, 7), further);
        assert_eq!(trial.sent(), [(further, FURTHER.into(), 0, 7)]);
        let known = trial.id(u64::from(BURST), None, 7);
        assert_eq!(known, BURST, "a thread keeps its id");
        trial.threads.refill();
        assert_ne!(trial.id(1 << 40, Some("late"), 7), further);
        assert_eq!(trial.sent().len(), 1);
    }

    #[test]
    fn sampled_threads_are_kept_and_others_forgotten() {
        let mut trial = Trial::default();
        let id = trial.id(1, Some("busy"), 7);
        for java_id in 2..10 * GENERATION as u64 {
            trial.id(java_id, None, 7);
            if java_id.is_multiple_of(1000) {
                assert_eq!(trial.id(1, None, 7), id);
            }
            trial.threads.refill();
        }
        assert!(trial.threads.young.len() + trial.threads.old.len() <= 2 * GENERATION);
    }
}
