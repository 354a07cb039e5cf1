//! A table of distinct strings for pprof and OTLP; the first one is empty.

use rustc_hash::FxHashMap;

/// Texts by position.
#[derive(Clone, Debug)]
pub struct StringTable {
    texts: Vec<String>,
    by_text: FxHashMap<String, usize>,
}

impl Default for StringTable {
    fn default() -> Self {
        StringTable { texts: vec![String::new()], by_text: [(String::new(), 0)].into_iter().collect() }
    }
}

impl StringTable {
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

    /// Returns the texts; the first is empty.
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
