//! From a stack copy to a stack id: walk, name the frames, intern.
//!
//! Problem: a warm program repeats the same frames millions of times, and reading a name out of the VM costs microseconds.
//! Approach: names are looked up once per `Method*` and frames once per (method, bci, kind); what may be unloaded is
//! forgotten when the VM has unloaded classes (`crate::lifetime`).
//! Invariant: a stack that could not be walked to its root says so in its stop reason, and a method that may have been
//! unloaded is shown as such; nothing is guessed.

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use proto::v1::FrameKind;
use rustc_hash::FxHasher;
use stackwalk::{
    Blob, CompileLevel, Frame, HotSpot, Limits, LoadedBy, Memory, Method, Nearby, ScopeCache, StackCopy,
    Stop, Symbol, Walker,
};

use crate::host::{ThreadFacts, ThreadKind};
use crate::intern::{Dictionaries, MethodText};
use crate::lifetime::{Lifetime, Moved};
use crate::native::frames::NativeFrames;
use crate::probe::Probing;
use crate::self_test::Trust;
use crate::snapshot::Snapshot;
use crate::unloading::Unloading;

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

/// Stands for a method that the VM may have freed in the meantime.
const UNLOADED: &str = "[unloaded]";

/// Libraries that one walk may ask to be loaded; each is asked for once, and a stack rarely crosses ten.
const MAX_LOADS: usize = 32;

/// Stop reason of Java stacks that are not walked because the self-test failed.
pub const STOP_SELF_TEST: &str = "self_test_failed";

/// Stop reason of samples of a thread that is not Java's while the bounds of its stack are not known, so that nothing
/// was copied and only the newest frame is shown.
pub const STOP_NOT_COPIED: &str = "not_copied";
/// Stop reason of later samples of such a thread that could not be walked to its root, whatever stood in the way.
pub const STOP_NATIVE_CUT: &str = "native_cut";

/// Stop reason of samples whose stack was not copied because the snapshot pool was empty, so that only the newest frame
/// is known.
pub const STOP_POOL_EXHAUSTED: &str = "pool_exhausted";

/// A walked and named stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved {
    /// Stack id in the dictionaries.
    pub stack: u64,
    /// Why the walk ended.
    pub stop: &'static str,
    /// Whether nothing is missing: every frame down to the root.
    pub complete: bool,
    /// Frames whose method may have been unloaded since the sample.
    pub unloaded: u32,
    /// Whether it lacks something because the VM may have freed it between the sample and the walk.
    pub is_late: bool,
    /// Whether there is compiled code on the stack, and whether some of it is inlined.
    pub compiled: Option<bool>,
}

impl Resolved {
    fn without_walk(stack: u64, stop: &'static str) -> Self {
        Self { stack, stop, complete: false, unloaded: 0, is_late: false, compiled: None }
    }
}

/// Walks and names; owns the caches.
pub struct Resolver<M: Memory> {
    hotspot: Arc<HotSpot>,
    memory: M,
    scopes: Box<ScopeCache>,
    names: Names,
    lifetime: Lifetime,
    is_refreshed: bool,
    /// The last two drains: when each began, and the generation of code that began with it.
    known_code: [(u64, u32); 2],
    trust: Trust,
    native: NativeFrames,
    frames: Vec<Frame>,
    ids: Vec<u64>,
    compiled: Option<bool>,
    /// Why the last walk ended.
    stop: Stop,
}

/// Id of a method, and how far it can be trusted.
#[derive(Clone, Copy)]
struct Known {
    id: u64,
    /// Ticks from which on this address is this method for ever; `None` if its class may be unloaded.
    permanent_since: Option<u64>,
}

/// Ids of what was named before.
#[derive(Default)]
struct Names {
    methods: Map<Method, Known>,
    /// Methods named during this walk, with who keeps them alive: not proven yet.
    fresh: Vec<(Method, Option<LoadedBy>)>,
    /// Ticks of the sample in hand if its methods may have been unloaded since.
    uncertain: Option<u64>,
    /// Whether bytecode indexes cannot be believed.
    without_positions: bool,
    /// Frames of the sample in hand that were shown as unloaded.
    unloaded: u32,
    frames: Map<(Method, i32, u8), u64>,
    stubs: Map<Blob, u64>,
    threads: Map<u32, (u32, [u64; 2])>,
    compiling: Map<Method, Option<u64>>,
}

impl<M: Memory> Resolver<M> {
    /// A resolver with empty caches.
    pub fn new(hotspot: Arc<HotSpot>, memory: M, unloading: Arc<Unloading>, trust: Trust) -> Self {
        Self {
            hotspot,
            memory,
            scopes: Box::new(ScopeCache::new()),
            names: Names { without_positions: !trust.positions, ..Names::default() },
            lifetime: Lifetime::new(unloading),
            is_refreshed: false,
            known_code: [(0, 0); 2],
            trust,
            native: NativeFrames::default(),
            frames: Vec::with_capacity(MAX_FRAMES as usize),
            ids: Vec::with_capacity(MAX_FRAMES as usize),
            compiled: None,
            stop: Stop::NotStarted,
        }
    }

    /// Begins a drain: looks whether the VM has unloaded classes, and notes which code is known by now.
    pub fn begin_drain(&mut self) {
        let [_, newest] = self.known_code;
        // The time comes before the generation: what is decoded from here on is not proof for samples before.
        self.known_code = [newest, (self.lifetime.now(), self.scopes.next_generation())];
        self.look_for_unloading();
    }

    /// Code that was certainly there at `ticks`, if any code may have been freed since.
    fn restriction(&self, ticks: u64) -> Option<u32> {
        if self.lifetime.is_code_certain(ticks, &self.memory) {
            return None;
        }
        let known = self.known_code.iter().rev().find(|(since, _)| *since <= ticks);
        Some(known.map_or(0, |(_, generation)| *generation))
    }

    fn look_for_unloading(&mut self) {
        let moved = self.lifetime.observe(&self.memory);
        self.names.forget(moved);
    }

    /// Walks one snapshot and interns the result; `ticks` is the time of the sample.
    pub fn resolve(
        &mut self,
        snapshot: &Snapshot<'_>,
        ticks: u64,
        thread: Option<&ThreadFacts>,
        dictionaries: &mut Dictionaries,
    ) -> Resolved {
        self.names.keep_small();
        let capture = &snapshot.head.capture;
        if capture.thread != 0 && !self.trust.walks {
            return Resolved::without_walk(dictionaries.stack(&[], STOP_SELF_TEST), STOP_SELF_TEST);
        }
        if !self.lifetime.covers(ticks) {
            self.look_for_unloading();
        }
        self.names.uncertain = (!self.lifetime.is_certain(ticks)).then_some(ticks);
        let restriction = self.restriction(ticks);
        self.scopes.restrict_to_code_before(restriction);
        let mut stop = self.walk(snapshot);
        let mut is_restricted = restriction.is_some();
        if !is_restricted && !self.lifetime.is_code_certain(ticks, &self.memory) {
            // A pause began meanwhile.
            self.scopes.restrict_to_code_before(self.restriction(ticks));
            stop = self.walk(snapshot);
            is_restricted = true;
        }
        self.name(snapshot, thread, dictionaries);
        if !self.names.fresh.is_empty() && !self.prove_fresh() {
            self.names.uncertain = Some(ticks);
            self.name(snapshot, thread, dictionaries);
        }
        self.stop = stop;
        let reason = match capture.thread {
            _ if stop.is_complete() => stop.name(),
            _ if !snapshot.is_copy => STOP_POOL_EXHAUSTED,
            0 if snapshot.stack.is_empty() => STOP_NOT_COPIED,
            0 => STOP_NATIVE_CUT,
            _ => stop.name(),
        };
        let stack = dictionaries.stack(&self.ids, reason);
        let (unloaded, compiled, complete) = (self.names.unloaded, self.compiled, stop.is_complete());
        let is_late = unloaded > 0 || (is_restricted && snapshot.is_copy && !complete);
        Resolved { stack, stop: reason, complete, unloaded, is_late, compiled }
    }

    /// Names the frames of the walk; the ids are left in `ids`.
    fn name(
        &mut self,
        snapshot: &Snapshot<'_>,
        thread: Option<&ThreadFacts>,
        dictionaries: &mut Dictionaries,
    ) {
        let Self { hotspot, memory, names, native, frames, ids, compiled, .. } = self;
        let capture = &snapshot.head.capture;
        ids.clear();
        *compiled = None;
        names.unloaded = 0;
        let nearby = Nearby::new(memory);
        for frame in frames.iter() {
            if let Frame::Compiled { inlined, .. } = *frame {
                *compiled = Some(inlined || *compiled == Some(true));
            }
            ids.extend(match *frame {
                Frame::Native { place, interrupted } => {
                    Some(native.frame(place, interrupted, memory, dictionaries))
                }
                Frame::Gap { .. } => Some(NativeFrames::gap(dictionaries)),
                _ => names.frame(frame, hotspot, &nearby, dictionaries),
            });
        }
        if let Some(thread) = thread.filter(|_| capture.thread == 0) {
            if thread.kind == ThreadKind::Compiler {
                let stack = StackCopy::new(capture.stack_low, snapshot.stack);
                let method = native.compiling(thread.tid, &stack, hotspot, memory);
                ids.extend(method.and_then(|method| names.compiling(method, hotspot, memory, dictionaries)));
            }
            ids.extend(names.thread(thread, dictionaries));
        }
    }

    /// Keeps the names read during a walk if nothing was unloaded until now; else forgets them.
    fn prove_fresh(&mut self) -> bool {
        let Self { memory, names, lifetime, .. } = self;
        let fresh = std::mem::take(&mut names.fresh);
        let permanent: Vec<bool> =
            fresh.iter().map(|&(_, loaded_by)| lifetime.is_permanent(memory, loaded_by)).collect();
        let moved = lifetime.observe(memory);
        if moved != Moved::No {
            names.forget(moved);
            return false;
        }
        let now = lifetime.now();
        for ((method, _), _) in fresh.iter().zip(permanent).filter(|(_, permanent)| *permanent) {
            if let Some(known) = names.methods.get_mut(method) {
                known.permanent_since = Some(now);
            }
        }
        true
    }

    /// Probes a snapshot that was resolved.
    pub(crate) fn probe(&self, probing: &mut Probing, snapshot: &Snapshot) {
        probing.look(&self.hotspot, &self.memory, snapshot);
    }

    /// The frames of the last walk, without names.
    pub(crate) fn frames(&self) -> (&[Frame], Stop) {
        (&self.frames, self.stop)
    }

    /// Fills `frames`; a walk that met a library for the first time is made again with its tables.
    fn walk(&mut self, snapshot: &Snapshot<'_>) -> Stop {
        let Self { hotspot, memory, scopes, native, frames, .. } = self;
        let mut loads = 0;
        loop {
            frames.clear();
            let limits = Limits { max_frames: MAX_FRAMES };
            let mut libraries = native.reading(memory);
            let mut walker = Walker::new(hotspot, memory, scopes, limits).with_native(&mut libraries);
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
        // Not the first time, which is at the start: programs that print a line end before the second.
        if std::mem::replace(&mut self.is_refreshed, true) {
            self.lifetime.prepare();
        }
    }

    /// Forgets every id, because the dictionaries did.
    pub fn forget(&mut self) {
        self.names = self.names.emptied();
        self.native.forget();
    }
}

impl Names {
    fn keep_small(&mut self) {
        if self.frames.len() > MAX_CACHED || self.methods.len() > MAX_CACHED {
            *self = self.emptied();
        }
    }

    fn emptied(&self) -> Self {
        Self { without_positions: self.without_positions, ..Self::default() }
    }

    /// Forgets the methods that are not certain any more; the dictionaries keep their ids.
    fn forget(&mut self, moved: Moved) {
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
    fn frame<M: Memory>(
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
    fn compiling<M: Memory>(
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
