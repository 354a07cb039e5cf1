//! Ids of what was named before: methods, frames, stubs, threads.
//!
//! Invariant: a method that may have been unloaded since the sample is shown as such, never under a name that its address
//! has now.

use std::hash::BuildHasherDefault;

use proto::v1::FrameKind;
use rustc_hash::FxHasher;
use stackwalk::{Blob, CompileLevel, Frame, HotSpot, LoadedBy, Memory, Method, Symbol};

use crate::host::{ThreadFacts, ThreadKind};
use crate::name::dictionaries::{Dictionaries, MethodText};
use crate::validity::lifetime::Moved;

type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Longest name, in bytes, that is read from the VM; longer ones are cut.
const MAX_NAME: usize = 2048;

/// Cached names and frames before the caches are emptied; about 40 bytes each.
const MAX_CACHED: usize = 1 << 18;

/// Stands for a method that the VM may have freed in the meantime.
const UNLOADED: &str = "[unloaded]";

/// Id of a method, and how far it can be trusted.
#[derive(Clone, Copy)]
pub(super) struct Known {
    id: u64,
    /// Ticks from which on this address is this method for ever; `None` if its class may be unloaded.
    pub(super) permanent_since: Option<u64>,
}

/// Ids of what was named before.
#[derive(Default)]
pub(super) struct Names {
    pub(super) methods: Map<Method, Known>,
    /// Methods named during this walk, with who keeps them alive: not proven yet.
    pub(super) fresh: Vec<(Method, Option<LoadedBy>)>,
    /// Ticks of the sample in hand if its methods may have been unloaded since.
    pub(super) uncertain: Option<u64>,
    /// Whether bytecode indexes cannot be believed.
    without_positions: bool,
    /// Frames of the sample in hand that were shown as unloaded.
    pub(super) unloaded: u32,
    frames: Map<(Method, i32, u8), u64>,
    stubs: Map<Blob, u64>,
    threads: Map<u32, (u32, [u64; 2])>,
    compiling: Map<Method, Option<u64>>,
}

impl Names {
    /// Nothing named yet; `positions` tells whether bytecode indexes can be believed.
    pub(super) fn new(positions: bool) -> Self {
        Self { without_positions: !positions, ..Self::default() }
    }

    pub(super) fn keep_small(&mut self) {
        if self.frames.len() > MAX_CACHED || self.methods.len() > MAX_CACHED {
            *self = self.emptied();
        }
    }

    pub(super) fn emptied(&self) -> Self {
        Self::new(!self.without_positions)
    }

    /// Forgets the methods that are not certain any more; the dictionaries keep their ids.
    pub(super) fn forget(&mut self, moved: Moved) {
        let Self { methods, frames, compiling, .. } = self;
        match moved {
            Moved::No => return,
            Moved::Unloaded => methods.retain(|_, known| known.permanent_since.is_some()),
            Moved::Replaced => methods.clear(),
        }
        compiling.clear();
        frames.retain(|(method, ..), _| methods.contains_key(method));
    }

    /// Whether a name that is known for `method` is the one it had at the time of the sample.
    fn is_trusted(&self, method: Method) -> bool {
        let Some(ticks) = self.uncertain else { return true };
        let since = self.methods.get(&method).and_then(|known| known.permanent_since);
        since.is_some_and(|since| since <= ticks)
    }

    fn unloaded(&mut self, dictionaries: &mut Dictionaries) -> u64 {
        self.unloaded += 1;
        dictionaries.symbol_frame(FrameKind::Marker, UNLOADED)
    }

    /// Id of a frame of the code cache; `None` for the VM's own entry frames, which are no part of a profile.
    pub(super) fn frame<M: Memory>(
        &mut self,
        frame: &Frame,
        hotspot: &HotSpot,
        memory: &M,
        dictionaries: &mut Dictionaries,
    ) -> Option<u64> {
        let bci = frame.bci().filter(|_| !self.without_positions).map_or(-1, |bci| bci.0);
        match *frame {
            Frame::Interpreted { method, .. } => {
                Some(self.java(method, bci, FrameKind::Interpreted, hotspot, memory, dictionaries))
            }
            Frame::Compiled { method, level, inlined, .. } => {
                Some(self.java(method, bci, kind_of(level, inlined), hotspot, memory, dictionaries))
            }
            Frame::NativeMethod { method, .. } => {
                Some(self.java(method, -1, FrameKind::NativeMethod, hotspot, memory, dictionaries))
            }
            Frame::Stub { blob, .. } => Some(*self.stubs.entry(blob).or_insert_with(|| {
                let mut buffer = [0; MAX_NAME];
                let length = hotspot.blob_name(memory, blob, &mut buffer).unwrap_or(0);
                let name = lossy(buffer.get(..length.min(MAX_NAME)).unwrap_or_default());
                dictionaries.symbol_frame(FrameKind::Stub, &name)
            })),
            Frame::Entry { .. } | Frame::Native { .. } | Frame::Gap { .. } => None,
        }
    }

    fn java<M: Memory>(
        &mut self,
        method: Method,
        bci: i32,
        kind: FrameKind,
        hotspot: &HotSpot,
        memory: &M,
        dictionaries: &mut Dictionaries,
    ) -> u64 {
        if !self.is_trusted(method) {
            return self.unloaded(dictionaries);
        }
        let key = (method, bci, kind as u8);
        if let Some(&id) = self.frames.get(&key) {
            return id;
        }
        let method_id = match self.methods.get(&method) {
            Some(known) => known.id,
            None => {
                let Some(text) = method_text(method, hotspot, memory) else {
                    return self.unloaded(dictionaries);
                };
                let id = dictionaries.method(&text);
                self.methods.insert(method, Known { id, permanent_since: None });
                self.fresh.push((method, hotspot.loaded_by(memory, method).unwrap_or_default()));
                id
            }
        };
        let line = if bci >= 0 { hotspot.line(memory, method, stackwalk::Bci(bci)).unwrap_or(0) } else { 0 };
        let id = dictionaries.java_frame(kind, method_id, bci, line.into());
        self.frames.insert(key, id);
        id
    }

    /// The label of a compiler thread that compiles `method`; `None` if its names are gone.
    pub(super) fn compiling<M: Memory>(
        &mut self,
        method: Method,
        hotspot: &HotSpot,
        memory: &M,
        dictionaries: &mut Dictionaries,
    ) -> Option<u64> {
        // The method is alive while it is compiled, but the task may be over: its name counts like that of a frame.
        if !self.is_trusted(method) {
            return None;
        }
        if let Some(&known) = self.compiling.get(&method) {
            return known;
        }
        let label = method_text(method, hotspot, memory).map(|text| {
            let class = text.class_name.replace('/', ".");
            dictionaries.symbol_frame(FrameKind::Marker, &format!("[compiling] {class}.{}", text.name))
        });
        self.compiling.insert(method, label);
        // Proven after the walk like the names of frames; if it is not, it is forgotten with them.
        self.fresh.push((method, None));
        label
    }

    /// Two marker frames, leaf first: the thread's name without its number, and its kind.
    pub(super) fn thread(&mut self, thread: &ThreadFacts, dictionaries: &mut Dictionaries) -> [u64; 2] {
        if let Some((revision, ids)) = self.threads.get(&thread.id)
            && *revision == thread.revision
        {
            return *ids;
        }
        let family = thread.name.trim_end_matches(|c: char| c.is_ascii_digit() || "#-_ ".contains(c));
        let kind = match thread.kind {
            ThreadKind::Compiler => "[JIT compiler]",
            ThreadKind::Gc => "[GC]",
            ThreadKind::Vm => "[VM]",
            _ => "[native thread]",
        };
        let ids = [family, kind].map(|name| dictionaries.symbol_frame(FrameKind::Marker, name));
        if self.threads.len() > MAX_CACHED {
            self.threads.clear();
        }
        self.threads.insert(thread.id, (thread.revision, ids));
        ids
    }
}

fn kind_of(level: CompileLevel, inlined: bool) -> FrameKind {
    if inlined {
        FrameKind::Inlined
    } else if level.is_c2() {
        FrameKind::C2
    } else {
        FrameKind::C1
    }
}

/// Reads the names of a method; `None` if they cannot be read any more.
fn method_text<M: Memory>(method: Method, hotspot: &HotSpot, memory: &M) -> Option<MethodText> {
    let names = hotspot.method(memory, method).ok()?;
    let text = |symbol: Symbol| read_symbol(symbol, hotspot, memory);
    Some(MethodText {
        class_name: text(names.class)?,
        name: text(names.name)?,
        signature: text(names.signature)?,
        // Without it a name is still a name.
        source_file: names.source_file.and_then(text).unwrap_or_default(),
        modifiers: u32::from(names.modifiers),
        hidden: names.hidden,
    })
}

fn read_symbol<M: Memory>(symbol: Symbol, hotspot: &HotSpot, memory: &M) -> Option<String> {
    let mut buffer = [0; MAX_NAME];
    let length = hotspot.read_symbol(memory, symbol, &mut buffer).ok()?;
    buffer.get(..length.min(MAX_NAME)).map(lossy)
}

/// Modified UTF-8 differs from UTF-8 in NUL and in characters beyond the BMP, which names hardly ever hold.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
