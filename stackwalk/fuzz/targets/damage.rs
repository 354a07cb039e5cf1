//! Recorded JVMs, damaged as the fuzzer's input determines.

use stackwalk::{Memory, Unreadable};

use crate::fixture::{Fixture, Thread};

/// Loads the fixtures of the pinned JDKs.
pub fn fixtures() -> Vec<Fixture> {
    ["11", "17", "21", "25"]
        .iter()
        .map(|jdk| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");
            Fixture::load(format!("{folder}/jdk{jdk}-x86_64/stacks.bin").as_ref())
        })
        .collect()
}

/// The fuzzer's input, read from the front; zeros after its end.
pub struct Choices<'d>(pub &'d [u8]);

impl Choices<'_> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    pub fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Returns a value for a word: near the old one, a word or address of the stack, a boundary, or any number.
    pub fn value(&mut self, old: u64, thread: &Thread) -> u64 {
        let words = thread.stack.as_chunks::<8>().0;
        match self.byte() % 6 {
            0 => old.wrapping_add(self.number(1) * 8).wrapping_sub(1024),
            1 => old.wrapping_add(self.number(1)).wrapping_sub(128),
            2 => words
                .get(self.number(2) as usize % words.len().max(1))
                .map_or(0, |word| u64::from_ne_bytes(*word)),
            3 => thread.capture.sp.wrapping_add(self.number(2) * 8),
            4 => [0, 1, u64::MAX, u64::MAX - 7, thread.capture.stack_high, thread.capture.pc]
                [self.byte() as usize % 6],
            _ => self.number(8),
        }
    }
}

/// A fixture in which some words have other values or are unreadable.
pub struct Damaged<'f> {
    pub fixture: &'f Fixture,
    words: Vec<(u64, Option<u64>)>,
}

impl<'f> Damaged<'f> {
    pub fn new(fixture: &'f Fixture) -> Self {
        Self { fixture, words: Vec::new() }
    }

    /// Damages a word of a recorded region.
    pub fn damage(&mut self, choices: &mut Choices<'_>, thread: &Thread) {
        let region = choices.number(2) as usize % self.fixture.regions.len();
        let (start, bytes) = self.fixture.regions.iter().nth(region).expect("inside");
        let address = start + choices.number(2) % bytes.len() as u64;
        let old = self.fixture.read_u64(address).unwrap_or(0);
        let new = (choices.byte() % 8 != 0).then(|| choices.value(old, thread));
        self.words.push((address, new));
    }
}

impl Memory for Damaged<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let result = self.fixture.read(address, into);
        if result.is_err() && self.words.is_empty() {
            return result;
        }
        let end = address.saturating_add(into.len() as u64);
        for (word, value) in self.words.iter().filter(|(word, _)| word + 8 > address && *word < end) {
            let Some(value) = value else { return Err(Unreadable(*word)) };
            for (at, byte) in (*word..).zip(value.to_le_bytes()) {
                if let Some(to) = at.checked_sub(address).and_then(|offset| into.get_mut(offset as usize)) {
                    *to = byte;
                }
            }
        }
        result
    }
}
