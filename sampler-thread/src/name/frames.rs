//! Ids of frames, and of the labels of native threads.
//!
//! Problem: a warm program repeats the same frames millions of times; reading a name from the VM costs microseconds.
//! Approach: a method is named once per `Method*`, a frame once per (method, bci, kind), native code by
//! [`native_ids`](super::native_ids). What may have been unloaded is forgotten.
//! Invariant: a method that may have been unloaded since the sample is shown as `[unloaded]`, never by the name that
//! its address has by then; `[compiling] Class.method` appears only if the names could be read in full.

use std::sync::Arc;

use proto::v1::FrameKind;
use stackwalk::{
    Blob, CompileLevel, Frame, Group, HotSpot, LoadedBy, Memory, Method, Missing, Place, Symbol,
};

use crate::name::dictionaries::{Dictionaries, Text};
use crate::name::frame_key::FrameKey;
use crate::name::groups::Groups;
use crate::name::native_ids::NativeIds;
use crate::name::shards::{Map, Shards};
use crate::name::shown::Shown;
use crate::native::NativeLibraries;
use crate::process::{ThreadFacts, ThreadKind};
use crate::proof::lifetime::Change;
use crate::walk::routines::Routines;
use crate::walk::vm::Vm;

/// Most cached methods, frames and pcs; about 40 bytes each. Beyond, all are forgotten.
const MAX_CACHED: usize = 1 << 18;

/// Frame in place of a method that the VM may have freed.
const UNLOADED: &str = "[unloaded]";
/// Frame in place of native frames that no unwind table covers.
const NATIVE_MISSING: &str = "[native frames missing]";
/// Frame in place of frames of a virtual thread that are being copied back to its stack.
const THAWING: &str = "[frames being thawed]";

#[derive(Clone, Copy)]
struct MethodId {
    id: u64,
    /// Time stamp from which on this address is this method forever; `None` if its class may be unloaded.
    permanent_since: Option<u64>,
}

/// Ids of everything that was named, and the dictionaries they refer to.
#[derive(Default)]
pub struct FrameNames {
    pub dictionaries: Dictionaries,
    methods: Shards<Method, MethodId>,
    /// Ids of the names of methods. The VM frees a name with the last class that refers to it, so these are as
    /// uncertain as methods.
    symbols: Shards<Symbol, Text>,
    /// Methods named for the current stack, with what keeps them alive.
    pub(super) unproven: Vec<(Method, Option<LoadedBy>)>,
    /// Time stamp of the current stack if its methods may have been unloaded since.
    pub(super) uncertain_at: Option<u64>,
    /// True if bytecode indexes are shown.
    has_positions: bool,
    shown: Shown,
    /// Frames of the current stack that are shown as unloaded.
    pub(super) unloaded: u32,
    frames: Shards<FrameKey, u32>,
    /// The same for all frames of a compiled one.
    groups: Groups,
    /// Routines by the pc of a stub: time stamp from which on one is there, and its id; `None` if there is none.
    stubs: Map<u64, Option<(u64, u64)>>,
    /// Ids of stubs that are in no routine, by the address of their blob's name, which the VM never frees.
    blobs: Map<u64, u64>,
    /// Time stamp of the current stack.
    pub(super) ticks: u64,
    routines: Arc<Routines>,
    /// Their revision when `stubs` was made.
    routines_revision: u64,
    /// Revision, and ids of both labels, by thread id.
    threads: Map<u32, (u32, [u64; 2])>,
    /// Labels of methods being compiled.
    compiling: Map<Method, Option<u64>>,
    native: NativeIds,
}

impl FrameNames {
    pub(super) fn new(has_positions: bool, routines: Arc<Routines>, shown: Shown) -> Self {
        Self { has_positions, routines, shown, ..Self::default() }
    }

    /// Begins a stack: removes unloaded methods, and native frames whose names may have changed.
    pub(super) fn begin(&mut self, change: Change, libraries: &NativeLibraries) {
        let is_full = self.frames.exceeds(MAX_CACHED)
            || self.methods.exceeds(MAX_CACHED)
            || self.symbols.exceeds(MAX_CACHED)
            || self.native.len() > MAX_CACHED
            || self.stubs.len() > MAX_CACHED;
        if is_full {
            self.forget_ids();
        }
        self.forget(change);
        let revision = self.routines.revision();
        if std::mem::replace(&mut self.routines_revision, revision) != revision {
            self.stubs.clear();
        }
        self.native.begin(libraries);
    }

    /// Removes all ids, but not the dictionaries.
    pub fn forget_ids(&mut self) {
        let dictionaries = std::mem::take(&mut self.dictionaries);
        let routines = Arc::clone(&self.routines);
        let (has_positions, shown) = (self.has_positions, self.shown);
        *self = Self { dictionaries, has_positions, shown, routines, ..Self::default() };
    }

    /// Removes the methods that `change` made uncertain; the dictionaries keep their ids.
    pub(super) fn forget(&mut self, change: Change) {
        let Self { methods, symbols, frames, groups, compiling, .. } = self;
        match change {
            Change::None => return,
            Change::Unloaded => methods.retain(|_, known| known.permanent_since.is_some()),
            Change::Replaced => methods.clear(),
        }
        groups.clear();
        compiling.clear();
        symbols.clear();
        frames.retain(|key, _| methods.contains_key(&key.method()));
    }

    /// Notes that `method` cannot be unloaded from time stamp `since` on.
    pub(super) fn set_permanent(&mut self, method: Method, since: u64) {
        if let Some(known) = self.methods.part(&method).get_mut(&method) {
            known.permanent_since = Some(since);
        }
    }

    /// Returns whether the present name of `method` is the one it had at the time of the sample.
    fn is_certain(&self, method: Method) -> bool {
        let Some(ticks) = self.uncertain_at else { return true };
        let since = self.methods.get(&method).and_then(|known| known.permanent_since);
        since.is_some_and(|since| since <= ticks)
    }

    fn unloaded(&mut self) -> u64 {
        self.unloaded += 1;
        self.dictionaries.symbol_frame(FrameKind::Marker, UNLOADED)
    }

    /// Appends the ids of a group, the newest of `frames`, to `ids`; 0 for frames that are not part of a profile.
    pub(super) fn next_frames<M: Memory>(
        &mut self,
        frames: &[Frame],
        group: Group,
        vm: &Vm<M>,
        libraries: &mut NativeLibraries,
        ids: &mut Vec<u64>,
    ) {
        if self.uncertain_at.is_none()
            && let Some(known) = self.groups.find(group.number)
        {
            ids.extend(known.iter().map(|&id| u64::from(id)));
        } else {
            self.unknown_frames(frames, group, vm, libraries, ids);
        }
    }

    /// Appends the ids of a group that were not noted, or may be those of unloaded methods.
    #[inline(never)]
    fn unknown_frames<M: Memory>(
        &mut self,
        frames: &[Frame],
        group: Group,
        vm: &Vm<M>,
        libraries: &mut NativeLibraries,
        ids: &mut Vec<u64>,
    ) {
        let (begin, unloaded) = (ids.len(), self.unloaded);
        for frame in frames.iter().take(group.frames as usize) {
            ids.push(self.frame(frame, vm, libraries).unwrap_or(0));
        }
        if self.uncertain_at.is_none() && unloaded == self.unloaded {
            self.groups.put(group.number, ids.get(begin..).unwrap_or_default());
        }
    }

    /// Removes the ids of groups.
    pub(super) fn forget_groups(&mut self) {
        self.groups.clear();
    }

    /// Returns the id of a frame; `None` for the VM's entry frames, which are not part of a profile, and for
    /// frames that are not to be shown.
    fn frame<M: Memory>(
        &mut self,
        frame: &Frame,
        vm: &Vm<M>,
        libraries: &mut NativeLibraries,
    ) -> Option<u64> {
        let bci = frame.bci().filter(|_| self.has_positions).map_or(-1, |bci| bci.0);
        Some(match *frame {
            Frame::Interpreted { method, .. } => self.java(method, bci, FrameKind::Interpreted, vm),
            Frame::Compiled { method, level, inlined, .. } => {
                self.java(method, bci, kind_of(level, inlined, &vm.hotspot), vm)
            }
            Frame::NativeMethod { method, .. } => self.java(method, -1, FrameKind::NativeMethod, vm),
            Frame::Stub { .. } if !self.shown.vm => return None,
            Frame::Stub { blob, place } => self.stub(blob, place, vm),
            Frame::Native { .. } if !self.shown.vm && !self.shown.native => return None,
            Frame::Native { place, interrupted } => {
                return Some(self.native(place, interrupted, vm, libraries)).filter(|id| *id != 0);
            }
            Frame::Gap { missing, .. } => {
                let text = match missing {
                    Missing::Native => NATIVE_MISSING,
                    Missing::Thawing => THAWING,
                };
                self.dictionaries.symbol_frame(FrameKind::Marker, text)
            }
            Frame::Entry { .. } => return None,
        })
    }

    /// Returns the id of a frame of the VM's stack trace; `bci` is negative in native methods.
    pub(super) fn traced<M: Memory>(&mut self, method: Method, bci: i32, vm: &Vm<M>) -> u64 {
        match bci {
            ..0 => self.java(method, -1, FrameKind::NativeMethod, vm),
            _ if !self.has_positions => self.java(method, -1, FrameKind::Unspecified, vm),
            _ => self.java(method, bci, FrameKind::Unspecified, vm),
        }
    }

    /// Returns the id of a stub. A routine that was generated after the sample is not the one that ran.
    fn stub<M: Memory>(&mut self, blob: Blob, place: Place, vm: &Vm<M>) -> u64 {
        let Self { stubs, blobs, routines, dictionaries, .. } = self;
        let routine = *stubs.entry(place.pc.0).or_insert_with(|| {
            let found = routines.name_at(place.pc.0)?;
            Some((found.since, dictionaries.symbol_frame(FrameKind::Stub, &found.name)))
        });
        match routine {
            Some((since, id)) if since <= self.ticks => id,
            Some(_) => self.unloaded(),
            None => match vm.hotspot.blob_name_address(&vm.memory, blob) {
                Ok(name) => *blobs
                    .entry(name)
                    .or_insert_with(|| dictionaries.symbol_frame(FrameKind::Stub, &vm.stub_name(blob))),
                Err(_) => self.unloaded(),
            },
        }
    }

    fn java<M: Memory>(&mut self, method: Method, bci: i32, kind: FrameKind, vm: &Vm<M>) -> u64 {
        if !self.is_certain(method) {
            return self.unloaded();
        }
        let key = FrameKey::new(method, bci, kind);
        if let Some(&id) = key.and_then(|key| self.frames.get(&key)) {
            return id.into();
        }
        let method_id = match self.methods.get(&method) {
            Some(known) => known.id,
            None => {
                let Some(id) = self.named(method, vm) else { return self.unloaded() };
                self.methods.insert(method, MethodId { id, permanent_since: None });
                let loaded_by = vm.hotspot.loaded_by(&vm.memory, method).unwrap_or_default();
                self.unproven.push((method, loaded_by));
                id
            }
        };
        // The line is read from the method as it is: proven together with the names.
        if bci >= 0 {
            self.unproven.push((method, None));
        }
        let line = (bci >= 0).then(|| vm.hotspot.line(&vm.memory, method, stackwalk::Bci(bci))).flatten();
        let id = self.dictionaries.java_frame(kind, method_id, bci, line.unwrap_or(0).into());
        if let (Some(key), Ok(id)) = (key, u32::try_from(id)) {
            self.frames.insert(key, id);
        }
        id
    }

    /// Reads the names of a method; returns its id, `None` if they are unreadable.
    fn named<M: Memory>(&mut self, method: Method, vm: &Vm<M>) -> Option<u64> {
        let names = vm.hotspot.method(&vm.memory, method).ok()?;
        let Self { symbols, dictionaries, .. } = self;
        let mut id_of = |symbol: Symbol| {
            if let Some(&id) = symbols.get(&symbol) {
                return Some(id);
            }
            let id = dictionaries.string_id(&vm.symbol(symbol)?);
            symbols.insert(symbol, id);
            Some(id)
        };
        let [class, name, signature] = [id_of(names.class)?, id_of(names.name)?, id_of(names.signature)?];
        let source_file = names.source_file.and_then(id_of).unwrap_or_default();
        let strings = [class, name, signature, source_file];
        Some(dictionaries.method_of(strings, names.modifiers.into(), names.hidden))
    }

    /// Returns the id of a native frame; 0 if it is not to be shown.
    fn native<M: Memory>(
        &mut self,
        place: Place,
        interrupted: bool,
        vm: &Vm<M>,
        libraries: &mut NativeLibraries,
    ) -> u64 {
        // A return address may belong to the next function if the call never returns.
        let pc = place.pc.0.wrapping_sub(u64::from(!interrupted));
        self.native.id(pc, &vm.memory, libraries, &mut self.dictionaries, &self.shown)
    }

    /// Returns the label for the method that the thread of the current stack was compiling.
    pub(super) fn compiled_method<M: Memory>(&mut self, vm: &Vm<M>, method: Method) -> Option<u64> {
        // The method was alive while it was compiled: its name is checked like that of a frame.
        if !self.is_certain(method) {
            return None;
        }
        self.unproven.push((method, None));
        if let Some(&label) = self.compiling.get(&method) {
            return label;
        }
        let label = vm.method_text(method).map(|text| {
            let class = text.class_name.replace('/', ".");
            let label = format!("[compiling] {class}.{}", text.name);
            self.dictionaries.symbol_frame(FrameKind::Marker, &label)
        });
        self.compiling.insert(method, label);
        label
    }

    /// Returns the ids of two labels, leaf first: the thread's name without its number, and its kind.
    pub(super) fn thread(&mut self, thread: &ThreadFacts) -> [u64; 2] {
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
        let ids = [family, kind].map(|name| self.dictionaries.symbol_frame(FrameKind::Marker, name));
        if self.threads.len() > MAX_CACHED {
            self.threads.clear();
        }
        self.threads.insert(thread.id, (thread.revision, ids));
        ids
    }
}

fn kind_of(level: CompileLevel, inlined: bool, hotspot: &HotSpot) -> FrameKind {
    match level.is_optimised() {
        _ if inlined => FrameKind::Inlined,
        false => FrameKind::C1,
        true if hotspot.is_c2_replaced() => FrameKind::Jvmci,
        true => FrameKind::C2,
    }
}
