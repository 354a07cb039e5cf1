//! From a stack copy to a stack id: walk, name the frames, intern.
//!
//! Problem: a warm program repeats the same frames millions of times, and reading a name out of the VM costs microseconds.
//! A walk that comes after code was freed lacks the rest of its stack; a name that comes too late lacks itself only.
//! Approach: names are looked up once per `Method*` and frames once per (method, bci, kind); what may be unloaded is
//! forgotten when the VM has unloaded classes (`crate::validity::lifetime`). Walking and naming are two steps, so that a group of
//! stacks can be walked before the first is named.
//! Invariant: a stack that could not be walked to its root says so in its stop reason, and a method that may have been
//! unloaded is shown as such; nothing is guessed.

use std::ops::Range;
use std::sync::Arc;

use stackwalk::{Frame, HotSpot, Limits, Memory, Nearby, ScopeCache, StackCopy, Stop, Walker};

use crate::host::{ThreadFacts, ThreadKind};
use crate::name::dictionaries::Dictionaries;
use crate::probe::Probing;
use crate::validity::lifetime::{Lifetime, Moved};
use crate::validity::self_test::Trust;
use crate::validity::unloading::Unloading;
use crate::walk::native::frames::NativeFrames;
use crate::walk::resolve::names::Names;
use crate::walk::snapshot::Snapshot;

mod names;

/// Most frames of one stack.
///
/// A thread stack of 1 MiB holds about 10,000 small compiled frames; 2,048 is the depth people know from other
/// profilers, and what fits a screen.
pub const MAX_FRAMES: u32 = 2048;

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

/// A stack that was walked, and is not named yet.
#[derive(Debug)]
pub struct Walked {
    /// Where its frames are in the resolver.
    frames: Range<usize>,
    stop: Stop,
    /// Whether only code was believed that was known before the sample.
    is_restricted: bool,
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
    /// The frames of a group of stacks, one behind the other.
    frames: Vec<Frame>,
    ids: Vec<u64>,
    compiled: Option<bool>,
}

impl<M: Memory> Resolver<M> {
    /// A resolver with empty caches.
    pub fn new(hotspot: Arc<HotSpot>, memory: M, unloading: Arc<Unloading>, trust: Trust) -> Self {
        Self {
            hotspot,
            memory,
            scopes: Box::new(ScopeCache::new()),
            names: Names::new(trust.positions),
            lifetime: Lifetime::new(unloading),
            is_refreshed: false,
            known_code: [(0, 0); 2],
            trust,
            native: NativeFrames::default(),
            frames: Vec::with_capacity(2 * MAX_FRAMES as usize),
            ids: Vec::with_capacity(MAX_FRAMES as usize),
            compiled: None,
        }
    }

    /// Begins a drain: looks whether the VM has unloaded classes, and notes which code is known by now. Returns whether its
    /// counters say that it has since the last time.
    pub fn begin_drain(&mut self) -> bool {
        let [_, newest] = self.known_code;
        // The time comes before the generation: what is decoded from here on is not proof for samples before.
        self.known_code = [newest, (self.lifetime.now(), self.scopes.next_generation())];
        let moved = self.look_for_unloading();
        self.lifetime.is_counted() && moved != Moved::No
    }

    /// Code that was certainly there at `ticks`, if any code may have been freed since.
    fn restriction(&self, ticks: u64) -> Option<u32> {
        if self.lifetime.is_code_certain(ticks, &self.memory) {
            return None;
        }
        let known = self.known_code.iter().rev().find(|(since, _)| *since <= ticks);
        Some(known.map_or(0, |(_, generation)| *generation))
    }

    fn look_for_unloading(&mut self) -> Moved {
        let moved = self.lifetime.observe(&self.memory);
        self.names.forget(moved);
        moved
    }

    /// Walks one snapshot and interns the result; `ticks` is the time of the sample.
    pub fn resolve(
        &mut self,
        snapshot: &Snapshot<'_>,
        ticks: u64,
        thread: Option<&ThreadFacts>,
        dictionaries: &mut Dictionaries,
    ) -> Resolved {
        self.begin_group();
        let walked = self.walk(snapshot, ticks);
        self.name(&walked, snapshot, ticks, thread, dictionaries)
    }

    /// Forgets the stacks that were walked before.
    pub fn begin_group(&mut self) {
        self.frames.clear();
    }

    /// Whether the next walk would need more room than there is for a group.
    pub(crate) fn is_group_full(&self) -> bool {
        self.frames.len() > MAX_FRAMES as usize
    }

    /// Walks one snapshot; `ticks` is the time of the sample.
    pub fn walk(&mut self, snapshot: &Snapshot<'_>, ticks: u64) -> Walked {
        let start = self.frames.len();
        if snapshot.head.capture.thread != 0 && !self.trust.walks {
            return Walked { frames: start..start, stop: Stop::NotStarted, is_restricted: false };
        }
        if !self.lifetime.covers(ticks) {
            self.look_for_unloading();
        }
        let restriction = self.restriction(ticks);
        self.scopes.restrict_to_code_before(restriction);
        let mut stop = self.walk_once(snapshot, start);
        let mut is_restricted = restriction.is_some();
        if !is_restricted && !self.lifetime.is_code_certain(ticks, &self.memory) {
            // A pause began meanwhile.
            self.scopes.restrict_to_code_before(self.restriction(ticks));
            stop = self.walk_once(snapshot, start);
            is_restricted = true;
        }
        Walked { frames: start..self.frames.len(), stop, is_restricted }
    }

    /// Names and interns a stack of this group; the others are as before.
    pub fn name(
        &mut self,
        walked: &Walked,
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
        self.names.uncertain = (!self.lifetime.is_certain(ticks)).then_some(ticks);
        self.name_frames(walked, snapshot, thread, dictionaries);
        if !self.names.fresh.is_empty() && !self.prove_fresh() {
            self.names.uncertain = Some(ticks);
            self.name_frames(walked, snapshot, thread, dictionaries);
        }
        let stop = walked.stop;
        let reason = match capture.thread {
            _ if stop.is_complete() => stop.name(),
            _ if !snapshot.is_copy => STOP_POOL_EXHAUSTED,
            0 if snapshot.stack.is_empty() => STOP_NOT_COPIED,
            0 => STOP_NATIVE_CUT,
            _ => stop.name(),
        };
        let stack = dictionaries.stack(&self.ids, reason);
        let (unloaded, compiled, complete) = (self.names.unloaded, self.compiled, stop.is_complete());
        let is_cut = walked.is_restricted && matches!(stop, Stop::CodeReplaced(_) | Stop::UnknownCode(_));
        Resolved { stack, stop: reason, complete, unloaded, is_late: unloaded > 0 || is_cut, compiled }
    }

    /// Names the frames of a walk; the ids are left in `ids`.
    fn name_frames(
        &mut self,
        walked: &Walked,
        snapshot: &Snapshot<'_>,
        thread: Option<&ThreadFacts>,
        dictionaries: &mut Dictionaries,
    ) {
        let Self { hotspot, memory, names, native, frames, ids, compiled, trust, .. } = self;
        let capture = &snapshot.head.capture;
        ids.clear();
        *compiled = None;
        names.unloaded = 0;
        let nearby = Nearby::new(memory);
        for frame in frames.get(walked.frames.clone()).unwrap_or_default() {
            if let Frame::Compiled { inlined, .. } = *frame {
                *compiled = Some(inlined || *compiled == Some(true));
            }
            ids.extend(match *frame {
                Frame::Native { place, interrupted } => {
                    Some(native.frame(place, interrupted, memory, dictionaries))
                }
                Frame::Gap { missing, .. } => Some(NativeFrames::gap(missing, dictionaries)),
                _ => names.frame(frame, hotspot, &nearby, dictionaries),
            });
        }
        if let Some(thread) = thread.filter(|_| capture.thread == 0) {
            // The label is a name read from the VM's structures, like those of Java frames.
            if thread.kind == ThreadKind::Compiler && trust.walks {
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
    pub(crate) fn probe(&mut self, probing: &mut Probing, snapshot: &Snapshot) {
        probing.look(&self.hotspot, &self.memory, &mut self.native.reading(&self.memory), snapshot);
    }

    /// The frames of a walk of this group, without names.
    pub(crate) fn frames(&self, walked: &Walked) -> (&[Frame], Stop) {
        (self.frames.get(walked.frames.clone()).unwrap_or_default(), walked.stop)
    }

    /// Fills `frames` from `start` on; a walk that met a library for the first time is made again with its tables.
    fn walk_once(&mut self, snapshot: &Snapshot<'_>, start: usize) -> Stop {
        let Self { hotspot, memory, scopes, native, frames, .. } = self;
        let mut loads = 0;
        loop {
            frames.truncate(start);
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
