//! A table of strings as pprof and OTLP have it: each text once, the empty one first.

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
    /// Position of `text`, a new one if it is new.
    pub fn intern(&mut self, text: &str) -> usize {
        if let Some(&position) = self.by_text.get(text) {
            return position;
        }
        let position = self.texts.len();
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), position);
        position
    }

    /// The texts; the first is empty.
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
