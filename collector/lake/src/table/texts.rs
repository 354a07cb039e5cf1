//! Texts of a table, each once.

use parquet::data_type::ByteArray;
use rustc_hash::FxHashMap;

/// Texts by number.
#[derive(Debug, Default)]
pub struct Texts {
    texts: Vec<ByteArray>,
    numbers: FxHashMap<Vec<u8>, u32>,
}

impl Texts {
    /// Returns the number of a text.
    pub fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(ByteArray::from(text.to_vec()));
        self.numbers.insert(text.to_vec(), number);
        number
    }

    /// Returns all texts, by number.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().map(ByteArray::data)
    }

    /// Returns a text; empty for an unknown number.
    pub fn get(&self, number: u32) -> ByteArray {
        self.texts.get(number as usize).cloned().unwrap_or_else(|| ByteArray::from(Vec::new()))
    }

    /// Returns a text as a string; invalid letters are replaced.
    pub fn string(&self, number: u32) -> String {
        self.texts.get(number as usize).map(super::columns::text).unwrap_or_default()
    }
}
