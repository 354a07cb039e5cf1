//! From a stack copy to a stack id: walk, name the frames, intern.
//!
//! Problem: a warm program repeats the same frames millions of times, and reading a name out of the VM costs microseconds.
//! Approach: names are looked up once per `Method*` and frames once per (method, bci, kind).
//! Invariant: a stack that could not be walked to its root says so in its stop reason; nothing is guessed.

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use proto::v1::FrameKind;
use rustc_hash::FxHasher;
use stackwalk::{
    Blob, CompileLevel, Frame, HotSpot, Limits, Memory, Method, ScopeCache, StackCopy, Stop, Symbol, Walker,
};

use crate::host::{ThreadFacts, ThreadKind};
use crate::intern::{Dictionaries, MethodText};
use crate::native::frames::NativeFrames;
use crate::snapshot::Snapshot;

type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Most frames of one stack.
///
/// A thread stack of 1 MiB holds about 10,000 small compiled frames; 2,048 is the depth people know from other
/// profilers, and what fits a screen.
pub const MAX_FRAMES: u32 = 2048;

/// Longest name, in bytes, that is read from the VM; longer ones are cut.
const MAX_NAME: usize = 2048;

/// Cached names and frames before the caches are emptied; about 40 bytes each.
const MAX_CACHED: usize = 1 << 18;

/// Stands for a name that the VM has freed in the meantime.
const UNREADABLE: &str = "[unloaded]";

/// Libraries that one walk may ask to be loaded; each is asked for once, and a stack rarely crosses ten.
const MAX_LOADS: usize = 32;

/// A walked and named stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved {
    /// Stack id in the dictionaries.
    pub stack: u64,
    /// Why the walk ended.
    pub stop: &'static str,
    /// Whether nothing is missing: every frame down to the root.
    pub complete: bool,
}

/// Walks and names; owns the caches.
pub struct Resolver<M: Memory> {
    hotspot: Arc<HotSpot>,
    memory: M,
    scopes: Box<ScopeCache>,
    names: Names,
    native: NativeFrames,
    frames: Vec<Frame>,
    ids: Vec<u64>,
}

/// Ids of what was named before.
#[derive(Default)]
struct Names {
    methods: Map<Method, u64>,
    frames: Map<(Method, i32, u8), u64>,
    stubs: Map<Blob, u64>,
    threads: Map<u32, (u32, [u64; 2])>,
    compiling: Map<Method, Option<u64>>,
}

impl<M: Memory> Resolver<M> {
    /// A resolver with empty caches.
    pub fn new(hotspot: Arc<HotSpot>, memory: M) -> Self {
        let (names, native) = (Names::default(), NativeFrames::default());
        let frames = Vec::with_capacity(MAX_FRAMES as usize);
        let ids = Vec::with_capacity(MAX_FRAMES as usize);
        Self { hotspot, memory, scopes: Box::new(ScopeCache::new()), names, native, frames, ids }
    }

    /// Walks one snapshot and interns the result.
    pub fn resolve(
        &mut self,
        snapshot: &Snapshot<'_>,
        thread: Option<&ThreadFacts>,
        dictionaries: &mut Dictionaries,
    ) -> Resolved {
        self.names.keep_small();
        self.ids.clear();
        let capture = &snapshot.head.capture;
        let stop = self.walk(snapshot);
        let Self { hotspot, memory, names, native, frames, ids, .. } = self;
        for frame in frames.iter() {
            ids.extend(match *frame {
                Frame::Native { place, interrupted } => {
                    Some(native.frame(place, interrupted, memory, dictionaries))
                }
                Frame::Gap { .. } => Some(NativeFrames::gap(dictionaries)),
                _ => names.frame(frame, hotspot, memory, dictionaries),
            });
        }
        if let Some(thread) = thread.filter(|_| capture.thread == 0) {
            if thread.kind == ThreadKind::Compiler {
                let method = native.compiling(
                    thread.tid,
                    &StackCopy::new(capture.stack_low, snapshot.stack),
                    hotspot,
                    memory,
                );
                ids.extend(method.and_then(|method| names.compiling(method, hotspot, memory, dictionaries)));
            }
            ids.extend(names.thread(thread, dictionaries));
        }
        let stack = dictionaries.stack(ids, stop.name());
        Resolved { stack, stop: stop.name(), complete: stop.is_complete() }
    }

    /// Fills `frames`; a walk that met a library for the first time is made again with its tables.
    fn walk(&mut self, snapshot: &Snapshot<'_>) -> Stop {
        let Self { hotspot, memory, scopes, native, frames, .. } = self;
        let mut loads = 0;
        loop {
            frames.clear();
            let limits = Limits { max_frames: MAX_FRAMES };
            let mut walker = Walker::new(hotspot, memory, scopes, limits).with_native(native.libraries());
            let mut walk = walker.frames_with(&snapshot.head.capture, snapshot.stack, snapshot.frozen);
            frames.extend(walk.by_ref());
            let stop = walk.stop();
            loads += 1;
            if loads > MAX_LOADS || !native.prepare(memory) {
                return stop;
            }
        }
    }

    /// Follows libraries that were loaded or unloaded; called a few times a second, outside of a walk.
    pub fn refresh(&mut self) {
        self.native.refresh();
    }

    /// Forgets every id, because the dictionaries did.
    pub fn forget(&mut self) {
        self.names = Names::default();
        self.native.forget();
    }
}

impl Names {
    fn keep_small(&mut self) {
        if self.frames.len() > MAX_CACHED || self.methods.len() > MAX_CACHED {
            *self = Self::default();
        }
    }

    /// Id of a frame of the code cache; `None` for the VM's own entry frames, which are no part of a profile.
    fn frame<M: Memory>(
        &mut self,
        frame: &Frame,
        hotspot: &HotSpot,
        memory: &M,
        dictionaries: &mut Dictionaries,
    ) -> Option<u64> {
        let bci = frame.bci().map_or(-1, |bci| bci.0);
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
        let key = (method, bci, kind as u8);
        if let Some(&id) = self.frames.get(&key) {
            return id;
        }
        let method_id = *self
            .methods
            .entry(method)
            .or_insert_with(|| dictionaries.method(&method_text(method, hotspot, memory)));
        let line = if bci >= 0 { hotspot.line(memory, method, stackwalk::Bci(bci)).unwrap_or(0) } else { 0 };
        let id = dictionaries.java_frame(kind, method_id, bci, line.into());
        self.frames.insert(key, id);
        id
    }

    /// The label of a compiler thread that compiles `method`; `None` if its names are gone.
    fn compiling<M: Memory>(
        &mut self,
        method: Method,
        hotspot: &HotSpot,
        memory: &M,
        dictionaries: &mut Dictionaries,
    ) -> Option<u64> {
        *self.compiling.entry(method).or_insert_with(|| {
            hotspot.method(memory, method).ok()?;
            let text = method_text(method, hotspot, memory);
            let class = text.class_name.replace('/', ".");
            let label = format!("[compiling] {class}.{}", text.name);
            Some(dictionaries.symbol_frame(FrameKind::Marker, &label))
        })
    }

    /// Two marker frames, leaf first: the thread's name without its number, and its kind.
    fn thread(&mut self, thread: &ThreadFacts, dictionaries: &mut Dictionaries) -> [u64; 2] {
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

/// Reads the names of a method; what cannot be read any more is named as such.
fn method_text<M: Memory>(method: Method, hotspot: &HotSpot, memory: &M) -> MethodText {
    let Ok(names) = hotspot.method(memory, method) else {
        return MethodText {
            class_name: UNREADABLE.to_owned(),
            name: UNREADABLE.to_owned(),
            ..MethodText::default()
        };
    };
    let text = |symbol: Symbol| read_symbol(symbol, hotspot, memory);
    MethodText {
        class_name: text(names.class),
        name: text(names.name),
        signature: text(names.signature),
        source_file: names.source_file.map(text).unwrap_or_default(),
        modifiers: u32::from(names.modifiers),
        hidden: names.hidden,
    }
}

fn read_symbol<M: Memory>(symbol: Symbol, hotspot: &HotSpot, memory: &M) -> String {
    let mut buffer = [0; MAX_NAME];
    match hotspot.read_symbol(memory, symbol, &mut buffer) {
        Ok(length) => lossy(buffer.get(..length.min(MAX_NAME)).unwrap_or_default()),
        Err(_) => UNREADABLE.to_owned(),
    }
}

/// Modified UTF-8 differs from UTF-8 in NUL and in characters beyond the BMP, which names hardly ever hold.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
