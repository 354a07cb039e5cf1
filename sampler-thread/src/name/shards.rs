//! A hash map in parts.
//!
//! Problem: a hash map that grows moves to a new block of twice the size, all of whose pages are touched for the first
//! time, which costs more than the look-ups for which it grows; meanwhile it has three times its memory.
//! Approach: sixteen maps, chosen by bits of the hash that they do not use themselves. One grows at a time, and the
//! block that it leaves is used for the next ones, because it is small enough for malloc to keep.

use std::hash::{BuildHasher, BuildHasherDefault, Hash};

use rustc_hash::FxHasher;

type Hasher = BuildHasherDefault<FxHasher>;
pub(super) type Map<K, V> = std::collections::HashMap<K, V, Hasher>;

pub(super) const PARTS: usize = 16;

/// Returns the part of a hash. hashbrown takes the lowest bits for the place and the highest 7 for its tags.
pub(super) fn part_of(hash: u64) -> usize {
    (hash >> 48) as usize % PARTS
}

#[derive(Debug)]
pub(super) struct Shards<K, V>([Map<K, V>; PARTS]);

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<K: Hash + Eq, V> Shards<K, V> {
    fn part_of(key: &K) -> usize {
        part_of(Hasher::default().hash_one(key))
    }

    /// Returns the part that has `key`, if any has it.
    pub(super) fn part(&mut self, key: &K) -> &mut Map<K, V> {
        &mut self.0[Self::part_of(key)]
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0[Self::part_of(key)].get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.part(&key).insert(key, value);
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&K, &mut V) -> bool) {
        self.0.iter_mut().for_each(|part| part.retain(&mut keeps));
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(Map::clear);
    }

    /// Returns whether there are more than about `most` entries, by the number in one part.
    pub(super) fn exceeds(&self, most: usize) -> bool {
        self.0[0].len() > most / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_in_parts_of_similar_size() {
        let mut shards = Shards::default();
        // Addresses of methods.
        let key = |number: u64| 0x7f12_3400_0000 + 104 * number;
        (0..16_000).for_each(|number| shards.insert(key(number), number));
        assert!((0..16_000).all(|number| shards.get(&key(number)) == Some(&number)));
        assert!(!shards.contains_key(&key(16_000)));
        assert!(shards.0.iter().all(|part| (800..1_200).contains(&part.len())));
        assert!(shards.exceeds(12_000) && !shards.exceeds(20_000));
        shards.retain(|_, number| *number % 2 == 0);
        assert_eq!((shards.get(&key(2)), shards.get(&key(3))), (Some(&2), None));
        *shards.part(&key(3)).entry(key(3)).or_insert(7) += 1;
        assert_eq!(shards.get(&key(3)), Some(&8));
        shards.clear();
        assert!((0..16_000).all(|number| !shards.contains_key(&key(number))));
    }
}
