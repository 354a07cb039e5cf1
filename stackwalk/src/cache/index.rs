//! From the hash of a key to a number, in buckets of one cache line.
//!
//! Approach: each slot holds a number and a few bits of the hash, so that a lookup reads one line and seldom compares a
//! key in vain. The user keeps the keys and compares them. The buckets in use double as entries are added.
//! Invariant: nothing is allocated after [`Index::new`], and no entry is displaced before a bucket is full.

use alloc::boxed::Box;
use alloc::vec;

/// Slots of a bucket: 64 bytes.
const WAYS: usize = 16;
/// Buckets in use at the start: 4 KiB.
const FIRST_BUCKETS: usize = 64;
/// Bits of a slot for the number; 0 is an empty slot.
const NUMBER_BITS: u32 = 20;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;

pub(crate) fn hash(key: u64) -> u64 {
    // Fibonacci hashing: the golden ratio times 2^64 spreads neighbouring addresses.
    (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Debug)]
pub(crate) struct Index {
    slots: Box<[u32]>,
    buckets: usize,
    entries: usize,
}

impl Index {
    /// An index that grows up to `slots` slots, a power of two.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: vec![0; slots].into_boxed_slice(),
            buckets: FIRST_BUCKETS.min(slots / WAYS),
            entries: 0,
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        let end = self.buckets * WAYS;
        self.slots.iter_mut().take(end).for_each(|slot| *slot = 0);
        self.entries = 0;
    }

    fn bucket(&self, hash: u64) -> core::ops::Range<usize> {
        let bucket = (hash >> 40) as usize & (self.buckets - 1);
        bucket * WAYS..(bucket + 1) * WAYS
    }

    fn slot(hash: u64, number: u32) -> u32 {
        ((hash >> 28) as u32) << NUMBER_BITS | (number + 1)
    }

    /// The number with this hash that `fits` accepts.
    pub(crate) fn find(&self, hash: u64, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = Self::slot(hash, 0) & !NUMBER;
        let bucket = self.slots.get(self.bucket(hash))?;
        bucket.iter().take_while(|&&slot| slot != 0).find_map(|&slot| {
            let number = (slot & NUMBER).checked_sub(1)?;
            (slot & !NUMBER == tag && fits(number)).then_some(number)
        })
    }

    /// Adds a number; returns the one it displaces.
    pub(crate) fn insert(&mut self, hash: u64, number: u32) -> Option<u32> {
        let range = self.bucket(hash);
        let bucket = self.slots.get_mut(range)?;
        // A full bucket gives up the entry at a random place.
        let free = bucket.iter().position(|&slot| slot == 0);
        let slot = bucket.get_mut(free.unwrap_or(number as usize % WAYS))?;
        let displaced = (*slot & NUMBER).checked_sub(1);
        *slot = Self::slot(hash, number);
        self.entries += usize::from(free.is_some());
        displaced
    }

    /// Removes a number, if it is there.
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let (range, wanted) = (self.bucket(hash), Self::slot(hash, number));
        let Some(bucket) = self.slots.get_mut(range) else { return };
        let Some(found) = bucket.iter().position(|&slot| slot == wanted) else { return };
        // Used slots come first.
        let last = bucket.iter().rposition(|&slot| slot != 0).unwrap_or(found);
        bucket.swap(found, last);
        if let Some(slot) = bucket.get_mut(last) {
            *slot = 0;
            self.entries -= 1;
        }
    }

    /// Replaces a number, if it is there.
    pub(crate) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let (range, wanted) = (self.bucket(hash), Self::slot(hash, old));
        if let Some(slot) = self.slots.get_mut(range).into_iter().flatten().find(|slot| **slot == wanted) {
            *slot = Self::slot(hash, new);
        }
    }

    /// Doubles the buckets in use if they are half full; returns whether all entries have to be inserted again.
    pub(crate) fn grow(&mut self) -> bool {
        let crowded = self.entries > self.buckets * WAYS / 2 && self.buckets * WAYS < self.slots.len();
        if crowded {
            self.clear();
            self.buckets *= 2;
        }
        crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_replaced_and_removed() {
        let mut index = Index::new(1 << 12);
        let key = |number: u32| hash(0x7f00_0000_0000 + u64::from(number) * 16);
        for number in 0..1200 {
            assert_eq!(index.insert(key(number), number), None);
            if index.grow() {
                (0..=number).for_each(|number| assert_eq!(index.insert(key(number), number), None));
            }
        }
        assert_eq!(index.buckets, 256);
        for number in 0..1200 {
            assert_eq!(index.find(key(number), |found| found == number), Some(number));
            assert_eq!(index.find(key(number), |_| false), None);
            index.replace(key(number), number, number + 5000);
            assert_eq!(index.find(key(number), |found| found == number + 5000), Some(number + 5000));
            index.remove(key(number), number + 5000);
            assert_eq!(index.find(key(number), |found| found == number + 5000), None);
        }
        assert_eq!(index.entries, 0);
        assert!(index.slots.iter().all(|&slot| slot == 0));
    }

    #[test]
    fn a_full_bucket_gives_up_one_entry() {
        let mut index = Index::new(WAYS);
        let displaced = (0..100).filter_map(|number| index.insert(hash(u64::from(number)), number)).count();
        assert_eq!((displaced, index.entries), (100 - WAYS, WAYS));
        assert!(!index.grow(), "it cannot grow");
    }
}
