//! Interned texts, numbered densely in the order of arrival.
//!
//! Hostile agents can invent names, so the overhead per name determines the collector's memory, and allocators do not
//! return millions of small allocations to the system. So all texts are in one string with a list of their ends, and
//! the hash table holds numbers only. The hash has a random seed, because names come from agents.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::text::quantity::table_bytes;

#[derive(Clone, Debug)]
pub struct Texts {
    text: String,
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    seed: u64,
    is_closed: bool,
}

impl Default for Texts {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0);
        Texts { text: String::new(), ends: Vec::new(), numbers: HashTable::new(), seed, is_closed: false }
    }
}

impl Texts {
    #[inline]
    pub fn get(&self, number: u32) -> Option<&str> {
        let number = number as usize;
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    /// Returns the texts from `number` on.
    pub fn since(&self, number: usize) -> impl ExactSizeIterator<Item = &str> {
        (number..self.len()).map(|number| self.get(number as u32).unwrap_or_default())
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of `text`, if it is in the hash table.
    pub fn find(&self, text: &str) -> Option<u32> {
        let is_same = |number: &u32| self.get(*number) == Some(text);
        self.numbers.find(hash(self.seed, text), is_same).copied()
    }

    /// Adds `text`, which must be new, to the texts and the hash table, and returns its number.
    pub fn add(&mut self, text: &str) -> u32 {
        let number = self.len() as u32;
        self.push(Cow::Borrowed(text));
        let (seed, ends, all) = (self.seed, &self.ends, &self.text);
        let hash_of = |&number: &u32| {
            let start = (number as usize).checked_sub(1).map_or(0, |before| ends[before]);
            hash(seed, all.get(start..ends[number as usize]).unwrap_or_default())
        };
        self.numbers.insert_unique(hash(seed, text), number, hash_of);
        number
    }

    /// Adds `text`. [`find`](Self::find) finds it unless the texts are closed or contain it already.
    pub fn append(&mut self, text: Cow<'_, str>) {
        if self.is_closed || self.find(&text).is_some() {
            self.push(text);
        } else {
            self.add(&text);
        }
    }

    /// Adds `text` without an entry in the hash table.
    pub fn push(&mut self, text: Cow<'_, str>) {
        self.text.push_str(&text);
        self.ends.push(self.text.len());
    }

    /// Frees the hash table; [`find`](Self::find) then finds nothing.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.numbers = HashTable::new();
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns the length of all texts together, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the memory in bytes without spare capacity.
    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends) + table_bytes::<u32>(self.numbers.len())
    }
}

fn hash(seed: u64, text: &str) -> u64 {
    xxh3_64_with_seed(text.as_bytes(), seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_until_the_table_is_closed() {
        let mut texts = Texts::default();
        let all: Vec<String> =
            (0..10_000).map(|number| "ä".repeat(number % 7) + &number.to_string()).collect();
        for (number, text) in all.iter().enumerate() {
            assert_eq!(texts.find(text), None);
            assert_eq!(texts.add(text), number as u32);
        }
        assert!(all.iter().enumerate().all(|(number, text)| texts.find(text) == Some(number as u32)));
        texts.push("more".into());
        assert_eq!(texts.find("more"), None);
        let open = texts.bytes();
        texts.close();
        assert!(texts.bytes() < open);
        assert!(texts.since(0).eq(all.iter().map(String::as_str).chain(["more"])));
        assert_eq!((texts.get(10_000), texts.get(10_001)), (Some("more"), None));
        assert_eq!(texts.find("0"), None);
    }
}
