//! The constant pools of a chunk: values that events refer to by number.
//!
//! A pool holds the values that the events of its chunk use, so each chunk can be read alone. Number 0 is null, but for
//! frame types, which have the JVM's numbers.

use proto::ThreadState;
use proto::v1::{FrameKind, ThreadKind};
use rustc_hash::FxHashMap;

use super::encode::Bytes;
use super::metadata::Id;
use crate::dictionary::frame_parts::{FrameParts, kind_text};
use crate::export::frames::Frames;
use crate::query::process::ProcessProfile;
use crate::session::mode::Mode;

/// Access flag `static`, for symbols, which have no receiver.
const STATIC: u32 = 0x8;

/// One pool: entries by key.
#[derive(Debug)]
struct Pool<K> {
    entries: Bytes,
    numbers: FxHashMap<K, u64>,
}

impl<K> Default for Pool<K> {
    fn default() -> Self {
        Pool { entries: Bytes::default(), numbers: FxHashMap::default() }
    }
}

impl<K: Eq + std::hash::Hash> Pool<K> {
    fn get(&self, key: &K) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    /// Adds an entry for a new key.
    fn add(&mut self, key: K, fields: &Bytes) -> u64 {
        let number = self.numbers.len() as u64 + 1;
        self.add_as(number, key, fields)
    }

    /// Adds an entry for a new key with an unused number.
    fn add_as(&mut self, number: u64, key: K, fields: &Bytes) -> u64 {
        self.entries.number(number);
        self.entries.append(fields);
        self.numbers.insert(key, number);
        number
    }

    /// Returns the number of an entry that consists of a text, and adds it if it is new.
    fn text(&mut self, key: K, text: &str) -> u64 {
        self.get(&key).unwrap_or_else(|| {
            let mut fields = Bytes::default();
            fields.string(Some(text));
            self.add(key, &fields)
        })
    }

    /// Appends the pool to a checkpoint; empty pools are left out, because readers reject them.
    fn section(&self, class: Id) -> Option<Bytes> {
        let mut out = Bytes::default();
        out.number(class as u64);
        out.number(self.numbers.len() as u64);
        out.append(&self.entries);
        (!self.numbers.is_empty()).then_some(out)
    }
}

/// All pools of a chunk.
#[derive(Debug, Default)]
pub struct Pools {
    symbols: Pool<String>,
    packages: Pool<String>,
    classes: Pool<String>,
    methods: Pool<(String, String, String)>,
    frame_types: Pool<&'static str>,
    stacks: Pool<u32>,
    threads: Pool<u32>,
    states: Pool<&'static str>,
}

impl Pools {
    /// Returns the number of a stack.
    pub fn stack(&mut self, frames: &mut Frames, id: u32) -> u64 {
        if let Some(number) = self.stacks.get(&id) {
            return number;
        }
        let leaf_first = frames.stack(id);
        let mut fields = Bytes::default();
        fields.boolean(frames.is_cut(id));
        fields.number(leaf_first.len() as u64);
        for frame in leaf_first {
            let parts = &frames.all()[frame as usize];
            fields.number(self.method(parts));
            fields.number(u64::from(parts.line));
            fields.signed_int(parts.bci);
            fields.number(self.frame_type(parts.kind));
        }
        self.stacks.add(id, &fields)
    }

    /// Returns the number of a thread.
    pub fn thread(&mut self, profile: &ProcessProfile, id: u32) -> u64 {
        if let Some(number) = self.threads.get(&id) {
            return number;
        }
        let mut fields = Bytes::default();
        let known = profile.thread(id);
        let name = profile.thread_name(id);
        let is_virtual = known.is_some_and(|thread| thread.kind() == ThreadKind::Virtual);
        let is_java = is_virtual || known.is_some_and(|thread| thread.kind() == ThreadKind::Java);
        // As in recordings of the JVM, a virtual thread has no OS thread.
        fields.string(Some(if is_virtual { "" } else { name }));
        fields.number(known.filter(|_| !is_virtual).map_or(0, |thread| u64::from(thread.tid)));
        fields.string(is_java.then_some(name));
        fields.signed(known.map_or(0, |thread| thread.java_id));
        fields.boolean(is_virtual);
        self.threads.add(id, &fields)
    }

    /// Returns the number of the state of sampled threads.
    ///
    /// Samples of CPU time have the state by which async-profiler's converter distinguishes CPU profiles from
    /// wall-clock profiles (`JfrConverter.getThreadStates`); those of wall time have the states of such a profile.
    pub fn state(&mut self, mode: Mode, state: Option<ThreadState>) -> u64 {
        let state = match (mode, state) {
            (Mode::CpuTime | Mode::Jvmti, _) => "STATE_DEFAULT",
            (Mode::Wall, Some(ThreadState::Running)) => "STATE_RUNNABLE",
            (Mode::Wall, Some(ThreadState::Waiting)) => "STATE_SLEEPING",
            (Mode::Wall, None) => "STATE_UNKNOWN",
        };
        self.states.text(state, state)
    }

    /// Returns the fields of the checkpoint event with all pools.
    pub fn checkpoint(&self, start_ticks: u64) -> Bytes {
        let mut out = Bytes::default();
        out.number(start_ticks);
        out.number(0); // duration
        out.number(0); // no checkpoint before this one
        out.number(0); // written at the end of the chunk, not at a flush
        let pools = [
            self.symbols.section(Id::Symbol),
            self.packages.section(Id::Package),
            self.classes.section(Id::Class),
            self.methods.section(Id::Method),
            self.frame_types.section(Id::FrameType),
            self.stacks.section(Id::StackTrace),
            self.threads.section(Id::Thread),
            self.states.section(Id::ThreadState),
        ];
        out.number(pools.iter().flatten().count() as u64);
        pools.iter().flatten().for_each(|pool| out.append(pool));
        out
    }

    fn symbol(&mut self, text: &str) -> u64 {
        self.symbols.text(text.to_owned(), text)
    }

    fn package(&mut self, class: &str) -> u64 {
        let Some((package, _)) = class.rsplit_once('/') else {
            return 0;
        };
        if let Some(number) = self.packages.get(&package.to_owned()) {
            return number;
        }
        let mut fields = Bytes::default();
        fields.number(self.symbol(package));
        self.packages.add(package.to_owned(), &fields)
    }

    fn class(&mut self, name: &str) -> u64 {
        if let Some(number) = self.classes.get(&name.to_owned()) {
            return number;
        }
        let mut fields = Bytes::default();
        fields.number(0); // the loader is not known
        fields.number(self.symbol(name));
        fields.number(self.package(name));
        fields.number(0); // nor are the modifiers
        fields.boolean(false);
        self.classes.add(name.to_owned(), &fields)
    }

    fn method(&mut self, parts: &FrameParts) -> u64 {
        // Readers require a class and a valid descriptor, so symbols get the kind of code as class, and no parameters.
        // The JDK's tools fail on a class whose name is empty.
        let (class, signature) = if parts.is_java() {
            (parts.class.clone(), parts.signature.as_str())
        } else {
            (kind_text(parts.kind), "()V")
        };
        let is_descriptor = signature.starts_with('(') && signature.contains(')');
        let signature = if is_descriptor { signature } else { "()V" };
        let key = (class, parts.method.clone(), signature.to_owned());
        if let Some(number) = self.methods.get(&key) {
            return number;
        }
        let mut fields = Bytes::default();
        fields.number(self.class(&key.0));
        fields.number(self.symbol(&key.1));
        fields.number(self.symbol(&key.2));
        fields.number(u64::from(if parts.is_java() { parts.modifiers } else { STATIC }));
        fields.boolean(parts.hidden);
        self.methods.add(key, &fields)
    }

    fn frame_type(&mut self, kind: FrameKind) -> u64 {
        let (number, text) = type_of(kind);
        if let Some(number) = self.frame_types.get(&text) {
            return number;
        }
        let mut fields = Bytes::default();
        fields.string(Some(text));
        self.frame_types.add_as(number, text, &fields)
    }
}

/// Returns number and name of a frame's type: those of the JVM, and two that readers of async-profiler's files support.
///
/// Of a frame with the type `C++`, async-profiler's converter (`JfrConverter.isNativeFrame`) shows only the method's
/// name, because its class has no meaning. `Native` is the type of Java's native methods.
/// Source: JDK 25 `jfrStackTrace.hpp` (`JfrStackFrame::FRAME_INTERPRETER` = 0 to `FRAME_NATIVE` = 3), and
/// async-profiler 4.5 `Frame.java`.
fn type_of(kind: FrameKind) -> (u64, &'static str) {
    match kind {
        FrameKind::Interpreted => (0, "Interpreted"),
        // The walk of JVMTI does not say whether a frame is interpreted; readers require a type.
        FrameKind::C2 | FrameKind::Jvmci | FrameKind::Unspecified => (1, "JIT compiled"),
        FrameKind::Inlined => (2, "Inlined"),
        FrameKind::NativeMethod => (3, "Native"),
        FrameKind::C1 => (6, "C1 compiled"),
        FrameKind::Native | FrameKind::Vm | FrameKind::Stub | FrameKind::Marker => (4, "C++"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers take these numbers as known, whatever names the pool has.
    #[test]
    fn frame_types_have_the_numbers_of_the_jvm_and_of_async_profiler() {
        use FrameKind::{C1, C2, Inlined, Interpreted, NativeMethod, Vm};
        let mut pools = Pools::default();
        let numbers = [Interpreted, C2, Inlined, NativeMethod, Vm, C1].map(|kind| pools.frame_type(kind));
        assert_eq!(numbers, [0, 1, 2, 3, 4, 6]);
    }
}
