//! A table of distinct strings, for formats that refer to strings by number.

use rustc_hash::FxHashMap;

/// Texts by position.
#[derive(Clone, Debug, Default)]
pub struct StringTable {
    texts: Vec<String>,
    by_text: FxHashMap<String, usize>,
}

impl StringTable {
    /// Returns a table whose first string is empty, as pprof and OTLP require.
    pub fn with_empty() -> Self {
        let mut table = StringTable::default();
        table.intern("");
        table
    }

    /// Returns the position of `text`, and adds it if it is new.
    pub fn intern(&mut self, text: &str) -> usize {
        if let Some(&position) = self.by_text.get(text) {
            return position;
        }
        let position = self.texts.len();
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), position);
        position
    }

    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
