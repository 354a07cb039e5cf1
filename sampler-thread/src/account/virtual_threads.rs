//! Numbers of virtual threads on the wire: one for each virtual thread on each carrier.
//!
//! Problem: a sample belongs to a virtual thread, its CPU time to the clock of a carrier; a program may start a million
//! virtual threads an hour, each with a sample or none, and every number is remembered by whoever receives it.
//! Approach: a number stands for a pair of both, so a sample names one thread only, and its [`Thread`] tells the rest.
//! New numbers are rationed: beyond [`BURST`] at once and [`REFILL`] a second, samples go to one number for all further
//! virtual threads of their carrier.
//! A name may come later than the number; the thread is then sent again.
//! Invariant: what is remembered is bounded by [`GENERATION`]; whoever was sampled among the last of these is known.

use std::hash::BuildHasherDefault;

use proto::v1::{Thread, ThreadKind};
use rustc_hash::FxHasher;

use crate::host::ThreadFacts;
use crate::name::dictionaries::Dictionaries;

/// Numbers that may be given out at once; with [`GENERATION`] about 1 MB if all of them are.
const BURST: u32 = 16_384;

/// Numbers that come on top each second: 180,000 an hour, at some 30 bytes on the wire.
const REFILL: u32 = 50;

/// Virtual threads that are remembered before those that were not sampled meanwhile are forgotten, twice over.
const GENERATION: usize = 4096;

/// Name of what stands for the virtual threads of a carrier that got no number of their own.
const FURTHER: &str = "[further virtual threads]";

type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Its number on one carrier.
#[derive(Debug, Clone, Copy)]
struct Number {
    carrier: u32,
    id: u32,
    is_sent: bool,
}

/// One virtual thread.
#[derive(Debug, Default)]
struct Known {
    name: Box<str>,
    numbers: Vec<Number>,
}

/// The virtual threads that were sampled lately.
#[derive(Debug)]
pub(crate) struct VirtualThreads {
    young: Map<u64, Known>,
    old: Map<u64, Known>,
    left: u32,
}

/// What a sample tells of its virtual thread.
pub(crate) struct Seen<'a> {
    /// `java.lang.Thread.tid`, not 0.
    pub java_id: u64,
    /// Its name, if the sample has it.
    pub name: Option<String>,
    /// The thread it ran on.
    pub carrier: &'a ThreadFacts,
}

impl Default for VirtualThreads {
    fn default() -> Self {
        Self { young: Map::default(), old: Map::default(), left: BURST }
    }
}

impl VirtualThreads {
    /// The number for a sample's thread; what it stands for is in `dictionaries`. `fresh` makes a new number.
    pub fn number(
        &mut self,
        seen: Seen<'_>,
        dictionaries: &mut Dictionaries,
        fresh: impl FnOnce() -> u32,
    ) -> u32 {
        let Seen { java_id, name, carrier } = seen;
        let has_number = |known: &Known| known.numbers.iter().any(|number| number.carrier == carrier.id);
        let is_known = [&self.young, &self.old].iter().any(|map| map.get(&java_id).is_some_and(has_number));
        // Number 0 is no virtual thread's, and stands for all that are left over.
        let (java_id, name) = if is_known || self.left > 0 { (java_id, name) } else { (0, None) };
        let known = self.known(java_id);
        if let Some(name) = name.filter(|name| **name != *known.name) {
            known.name = name.into_boxed_str();
            known.numbers.iter_mut().for_each(|number| number.is_sent = false);
        }
        let mut is_new = false;
        let at = known.numbers.iter().position(|number| number.carrier == carrier.id).unwrap_or_else(|| {
            is_new = java_id != 0;
            known.numbers.push(Number { carrier: carrier.id, id: fresh(), is_sent: false });
            known.numbers.len() - 1
        });
        let Some(number) = known.numbers.get_mut(at) else { return carrier.id };
        let id = number.id;
        if !std::mem::replace(&mut number.is_sent, true) {
            let name = if java_id == 0 { FURTHER.to_owned() } else { known.name.to_string() };
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

    /// What is remembered of one, moved to the young ones.
    fn known(&mut self, java_id: u64) -> &mut Known {
        if self.young.len() >= GENERATION && !self.young.contains_key(&java_id) {
            let kept = self.old.remove(&java_id);
            self.old = std::mem::take(&mut self.young);
            self.young.extend(kept.map(|known| (java_id, known)));
        }
        let old = &mut self.old;
        self.young.entry(java_id).or_insert_with(|| old.remove(&java_id).unwrap_or_default())
    }

    /// A second has passed.
    pub fn refill(&mut self) {
        self.left = self.left.saturating_add(REFILL).min(BURST);
    }

    /// Everything is sent again when it is met again.
    pub fn forget_sent(&mut self) {
        let all = self.young.values_mut().chain(self.old.values_mut());
        all.flat_map(|known| &mut known.numbers).for_each(|number| number.is_sent = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Coverage;

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
        fn number(&mut self, java_id: u64, name: Option<&str>, on: u32) -> u32 {
            let seen = Seen { java_id, name: name.map(str::to_owned), carrier: &carrier(on) };
            let last = &mut self.last;
            self.threads.number(seen, &mut self.dictionaries, || {
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
    fn a_number_for_each_pair_and_a_name_that_comes_later() {
        let mut trial = Trial::default();
        assert_eq!((trial.number(40, None, 7), trial.number(40, None, 7)), (1, 1));
        assert_eq!(trial.sent(), [(1, String::new(), 40, 7)]);
        assert_eq!(trial.number(40, Some("loader"), 7), 1);
        assert_eq!(trial.number(40, None, 8), 2, "on another carrier");
        assert_eq!(trial.sent(), [(1, "loader".into(), 40, 7), (2, "loader".into(), 40, 8)]);
        assert_eq!(trial.number(40, Some("loader"), 8), 2);
        assert_eq!(trial.sent(), []);
        trial.threads.forget_sent();
        assert_eq!(trial.number(40, None, 8), 2);
        assert_eq!(trial.sent(), [(2, "loader".into(), 40, 8)]);
    }

    #[test]
    fn numbers_are_rationed() {
        let mut trial = Trial::default();
        for java_id in 1..=u64::from(BURST) {
            trial.number(java_id, None, 7);
        }
        trial.sent();
        let further = trial.number(1 << 40, Some("late"), 7);
        assert_eq!(trial.number(2 << 40, None, 7), further);
        assert_eq!(trial.sent(), [(further, FURTHER.into(), 0, 7)]);
        let known = trial.number(u64::from(BURST), None, 7);
        assert_eq!(known, BURST, "one that has a number keeps it");
        trial.threads.refill();
        assert_ne!(trial.number(1 << 40, Some("late"), 7), further);
        assert_eq!(trial.sent().len(), 1);
    }

    #[test]
    fn who_is_sampled_is_remembered_and_the_rest_forgotten() {
        let mut trial = Trial::default();
        let number = trial.number(1, Some("busy"), 7);
        for java_id in 2..10 * GENERATION as u64 {
            trial.number(java_id, None, 7);
            if java_id.is_multiple_of(1000) {
                assert_eq!(trial.number(1, None, 7), number);
            }
            trial.threads.refill();
        }
        assert!(trial.threads.young.len() + trial.threads.old.len() <= 2 * GENERATION);
    }
}
