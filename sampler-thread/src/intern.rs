//! Dictionary entries, sent once and named by ids derived from their content.
//!
//! Problem: a stack of a hundred frames would cost kilobytes a sample if it were spelt out each time, and equal
//! stacks must be equal across batches, reconnects and runs.
//! Approach: the id of a string is XXH3-64 of its bytes; of a method, frame or stack it is XXH3-64 of the
//! little-endian bytes of its fields in the order of the message (`design/wire-format.md`).
//! 0 means "none", so a hash of 0 becomes 1.
//! Invariant: an entry is in the pending [`Dictionary`] or was sent before any sample that names it.

use std::hash::BuildHasherDefault;

use proto::v1::{Dictionary, Frame, FrameKind, Method, Stack, StringEntry, Thread};
use rustc_hash::FxHasher;
use xxhash_rust::xxh3::Xxh3;

type IdSet = std::collections::HashSet<u64, BuildHasherDefault<FxHasher>>;

/// Ids remembered as sent before they are forgotten and sent again, per kind of entry.
///
/// A million stack ids take about 16 MB; real programs stay below 100,000 distinct stacks.
const MAX_SENT: usize = 1 << 20;

/// Hashes the fields of one entry.
struct IdHash(Xxh3);

impl IdHash {
    fn new(kind: u8) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&[kind]);
        Self(hash)
    }

    fn number(mut self, value: u64) -> Self {
        self.0.update(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, value: &[u8]) -> Self {
        self.0.update(value);
        self
    }

    fn id(self) -> u64 {
        self.0.digest().max(1)
    }
}

/// A Java method in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MethodText {
    /// Internal class name, with slashes.
    pub class_name: String,
    /// Method name.
    pub name: String,
    /// Signature.
    pub signature: String,
    /// Source file, empty if unknown.
    pub source_file: String,
    /// JVM access flags.
    pub modifiers: u32,
    /// Hidden from ordinary stack traces.
    pub hidden: bool,
}

/// Everything that was sent, and what is waiting to be.
#[derive(Debug, Default)]
pub struct Dictionaries {
    strings: IdSet,
    methods: IdSet,
    frames: IdSet,
    stacks: IdSet,
    pending: Dictionary,
    forgotten: bool,
}

impl Dictionaries {
    /// Id of a string; 0 for the empty one.
    pub fn string(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        let id = IdHash::new(1).bytes(text.as_bytes()).id();
        if fresh(&mut self.strings, id) {
            self.pending.strings.push(StringEntry { id, text: text.to_owned() });
        }
        id
    }

    /// Id of a method.
    pub fn method(&mut self, text: &MethodText) -> u64 {
        let class_name = self.string(&text.class_name);
        let name = self.string(&text.name);
        let signature = self.string(&text.signature);
        let source_file = self.string(&text.source_file);
        let id = IdHash::new(2)
            .number(class_name)
            .number(name)
            .number(signature)
            .number(source_file)
            .number(u64::from(text.modifiers))
            .number(u64::from(text.hidden))
            .id();
        if fresh(&mut self.methods, id) {
            let (modifiers, hidden) = (text.modifiers, text.hidden);
            self.pending.methods.push(Method {
                id,
                class_name,
                name,
                signature,
                source_file,
                modifiers,
                hidden,
            });
        }
        id
    }

    /// Id of a frame of Java code.
    pub fn java_frame(&mut self, kind: FrameKind, method: u64, bci: i32, line: u32) -> u64 {
        self.frame(Frame { id: 0, kind: kind.into(), method, bci, line, symbol: 0 })
    }

    /// Id of a frame that is named by a symbol.
    pub fn symbol_frame(&mut self, kind: FrameKind, symbol: &str) -> u64 {
        let symbol = self.string(symbol);
        self.frame(Frame { id: 0, kind: kind.into(), method: 0, bci: -1, line: 0, symbol })
    }

    fn frame(&mut self, mut frame: Frame) -> u64 {
        frame.id = IdHash::new(3)
            .number(u64::from(frame.kind.cast_unsigned()))
            .number(frame.method)
            .number(u64::from(frame.bci.cast_unsigned()))
            .number(u64::from(frame.line))
            .number(frame.symbol)
            .id();
        if fresh(&mut self.frames, frame.id) {
            self.pending.frames.push(frame);
        }
        frame.id
    }

    /// Id of a stack: frame ids, leaf first, and why the walk ended.
    pub fn stack(&mut self, frames: &[u64], stop: &str) -> u64 {
        let mut hash = IdHash::new(4);
        for &frame in frames {
            hash = hash.number(frame);
        }
        let id = hash.bytes(stop.as_bytes()).id();
        if fresh(&mut self.stacks, id) {
            self.pending.stacks.push(Stack { id, frames: frames.to_vec(), stop: stop.to_owned() });
        }
        id
    }

    /// Adds the description of a thread.
    pub fn thread(&mut self, thread: Thread) {
        self.pending.threads.push(thread);
    }

    /// Entries that wait, if there are any.
    pub fn take_pending(&mut self) -> Option<Dictionary> {
        let pending = std::mem::take(&mut self.pending);
        let empty = pending.strings.is_empty()
            && pending.methods.is_empty()
            && pending.frames.is_empty()
            && pending.stacks.is_empty()
            && pending.threads.is_empty();
        (!empty).then_some(pending)
    }

    /// Rough count of waiting entries, to keep messages below the size limit.
    pub fn pending_len(&self) -> usize {
        let stack_frames: usize = self.pending.stacks.iter().map(|stack| stack.frames.len()).sum();
        self.pending.strings.len() + self.pending.methods.len() + self.pending.frames.len() + stack_frames
    }

    /// Forgets what was sent; it is then sent again when it is used again.
    pub fn forget(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        *self = Self { pending, forgotten: true, ..Self::default() };
    }

    /// Whether what was sent has been forgotten since the last call, by [`forget`](Self::forget) or because too much
    /// was remembered; callers that keep ids of their own must then forget them too.
    pub fn take_forgotten(&mut self) -> bool {
        if [&self.strings, &self.methods, &self.frames, &self.stacks].iter().any(|set| set.len() > MAX_SENT) {
            self.forget();
        }
        std::mem::take(&mut self.forgotten)
    }
}

fn fresh(sent: &mut IdSet, id: u64) -> bool {
    sent.insert(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method() -> MethodText {
        MethodText {
            class_name: "a/B".into(),
            name: "run".into(),
            signature: "()V".into(),
            ..MethodText::default()
        }
    }

    #[test]
    fn equal_stacks_are_one_entry() {
        let mut dictionaries = Dictionaries::default();
        let mut ids = Vec::new();
        for _ in 0..100 {
            let method = dictionaries.method(&method());
            let frame = dictionaries.java_frame(FrameKind::C2, method, 7, 12);
            ids.push(dictionaries.stack(&[frame], "end_of_stack"));
        }
        let pending = dictionaries.take_pending().expect("entries");
        assert_eq!(
            (pending.strings.len(), pending.methods.len(), pending.frames.len(), pending.stacks.len()),
            (3, 1, 1, 1)
        );
        assert!(ids.iter().all(|id| *id == ids[0]));
        assert!(dictionaries.take_pending().is_none());
    }

    #[test]
    fn ids_depend_on_content_alone() {
        // These numbers are part of the wire format: another implementation must arrive at them too.
        let mut dictionaries = Dictionaries::default();
        let text = dictionaries.string("a/B");
        let mut hash = Xxh3::new();
        hash.update(b"\x01a/B");
        assert_eq!(text, hash.digest());
        let mut other = Dictionaries::default();
        other.string("something before");
        assert_eq!(other.string("a/B"), text);
    }

    #[test]
    fn the_stop_reason_is_part_of_a_stack() {
        let mut dictionaries = Dictionaries::default();
        let whole = dictionaries.stack(&[5, 6], "end_of_stack");
        let cut = dictionaries.stack(&[5, 6], "copy_end");
        assert_ne!(whole, cut);
    }
}
