//! Walks copied stacks.
//!
//! Problem: code on a stack may have been freed between the sample and the walk, and other code may lie there since.
//! Approach: a stack is walked with all code while no pause and no sweep may have freed code; otherwise only code
//! counts that was decoded before the sample. Stacks of a group are kept side by side, so that all of them are walked
//! before the first is named: a late walk lacks the rest of the stack, a late name only itself.
//! Invariant: a walk that did not reach the root has a stop reason; no frame is guessed.

use std::ops::Range;
use std::sync::Arc;

use stackwalk::{Frame, Group, Limits, Memory, ScopeCache, Stop, Walker};

use crate::native::NativeLibraries;
use crate::proof::lifetime::{Change, Lifetime};
use crate::proof::unloading::Unloading;
use crate::walk::routines::Routines;
use crate::walk::snapshot::Snapshot;
use crate::walk::vm::Vm;

mod comparison;

use comparison::Comparison;

/// Frames for which memory is reserved from the start. Deeper stacks are rare; the memory grows when one is met.
pub const USUAL_FRAMES: usize = 2048;

/// Differences between walks that are logged; further ones are only counted.
const MAX_LOGGED: u64 = 20;

/// Libraries that one walk may load; a stack rarely crosses ten.
const MAX_LOADS: usize = 32;

/// A walked stack that is not named yet.
#[derive(Debug)]
pub struct Walk {
    /// Position of its frames in the walker.
    frames: Range<usize>,
    /// The same of its groups.
    groups: Range<usize>,
    /// Time stamp of the sample.
    pub ticks: u64,
    /// Why the walk ended.
    pub stop: Stop,
    /// True if only code counted that was decoded before the sample.
    pub is_restricted: bool,
}

impl Walk {
    /// Returns whether the walk ended early at something that it might have found in place a little sooner.
    pub(crate) fn may_be_late(&self) -> bool {
        let may_be_freed = matches!(
            self.stop,
            Stop::CodeReplaced(_) | Stop::UnknownCode(_) | Stop::InvalidMethod(_) | Stop::Unreadable(_)
        );
        may_be_freed || self.is_restricted && !self.stop.is_complete()
    }
}

/// Walks stacks; owns the caches that walks need.
pub struct StackWalker {
    scopes: Box<ScopeCache>,
    /// Native code of the process.
    pub libraries: NativeLibraries,
    /// Certainty about what is still loaded.
    pub lifetime: Lifetime,
    /// The last two drains: time stamp of each, and the generation of code that began with it.
    generations: [(u64, u32); 2],
    /// The routines that the VM has reported, and their revision when the places of stubs were taken from there.
    routines: Arc<Routines>,
    routines_revision: u64,
    /// True if stacks of Java threads are walked.
    walks_java: bool,
    limits: Limits,
    /// False while a walk is repeated for a comparison.
    uses_known_steps: bool,
    /// The frames of a group of stacks, one after the other.
    frames: Vec<Frame>,
    /// How they lie together.
    groups: Vec<Group>,
    /// Frames of all stacks so far.
    pub walked_frames: u64,
    /// Comparison of walks by known steps with walks without.
    pub(crate) comparison: Option<Comparison>,
    /// Calls of [`StackWalker::refresh`].
    refreshes: u32,
}

impl StackWalker {
    /// A walker with empty caches; it leaves out Java threads unless `walks_java`, and frames beyond `max_frames`.
    pub fn new(
        unloading: Arc<Unloading>,
        routines: Arc<Routines>,
        walks_java: bool,
        max_frames: u32,
    ) -> Self {
        Self {
            scopes: Box::new(ScopeCache::new()),
            libraries: NativeLibraries::default(),
            lifetime: Lifetime::new(unloading),
            generations: [(0, 0); 2],
            routines,
            routines_revision: 0,
            walks_java,
            limits: Limits { max_frames },
            uses_known_steps: true,
            frames: Vec::with_capacity(2 * USUAL_FRAMES),
            groups: Vec::with_capacity(2 * USUAL_FRAMES),
            walked_frames: 0,
            comparison: None,
            refreshes: 0,
        }
    }

    /// Begins a drain; returns whether the VM's counters show that it unloaded classes since the last drain.
    pub fn begin_drain<M: Memory>(&mut self, vm: &Vm<M>) -> bool {
        let [_, newest] = self.generations;
        // The time is read before the generation: code decoded later proves nothing for earlier samples.
        self.generations = [newest, (self.lifetime.now(), self.scopes.next_generation())];
        self.lifetime.begin_drain(&vm.memory)
    }

    /// Returns whether classes were redefined since the last call.
    pub fn take_redefined<M: Memory>(&mut self, vm: &Vm<M>) -> bool {
        self.lifetime.take_redefined(&vm.memory)
    }

    /// Drops the frames of all stacks walked before.
    pub fn begin_group(&mut self) {
        self.frames.clear();
        self.groups.clear();
        let revision = self.routines.revision();
        if std::mem::replace(&mut self.routines_revision, revision) != revision {
            self.scopes.set_stub_places(self.routines.stub_places());
        }
    }

    /// Returns whether the buffer of frames may be too small for another stack of usual depth.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() > USUAL_FRAMES
    }

    pub fn frames(&self, walk: &Walk) -> &[Frame] {
        self.frames.get(walk.frames.clone()).unwrap_or_default()
    }

    pub(crate) fn groups(&self, walk: &Walk) -> &[Group] {
        self.groups.get(walk.groups.clone()).unwrap_or_default()
    }

    /// Returns the frames of a walk of this group and their groups, and what native frames are named by.
    pub(crate) fn found(&mut self, walk: &Walk) -> (&[Frame], &[Group], &mut NativeLibraries) {
        let Self { frames, groups, libraries, .. } = self;
        let frames = frames.get(walk.frames.clone()).unwrap_or_default();
        (frames, groups.get(walk.groups.clone()).unwrap_or_default(), libraries)
    }

    /// Walks a stack that was sampled at `ticks`.
    pub fn walk<M: Memory>(&mut self, vm: &Vm<M>, snapshot: &Snapshot<'_>, ticks: u64) -> Walk {
        let mut walk = self.unwalked(ticks);
        if snapshot.head.capture.thread != 0 && !self.walks_java {
            return walk;
        }
        if !self.lifetime.covers(ticks) {
            self.lifetime.observe(&vm.memory);
        }
        let mut restriction = self.restriction(vm, ticks);
        self.walk_with(vm, snapshot, &mut walk, restriction);
        if restriction.is_none() {
            // A pause may have begun during the walk.
            restriction = self.restriction(vm, ticks);
            if restriction.is_some() {
                self.walk_with(vm, snapshot, &mut walk, restriction);
            }
        }
        walk.is_restricted = restriction.is_some();
        self.walked_frames += walk.frames.len() as u64;
        self.compare(vm, snapshot, &walk);
        walk
    }

    /// A walk without frames.
    fn unwalked(&self, ticks: u64) -> Walk {
        let (frame, group) = (self.frames.len(), self.groups.len());
        let (frames, groups) = (frame..frame, group..group);
        Walk { frames, groups, ticks, stop: Stop::NotStarted, is_restricted: false }
    }

    /// Returns the newest generation of code that certainly existed at `ticks`; `None` if no code was freed since.
    fn restriction<M: Memory>(&self, vm: &Vm<M>, ticks: u64) -> Option<u32> {
        if self.lifetime.is_code_certain(ticks, &vm.memory) {
            return None;
        }
        Some(self.generation_at(ticks))
    }

    /// Returns the newest generation of code that had certainly begun at `ticks`.
    fn generation_at(&self, ticks: u64) -> u32 {
        let known = self.generations.iter().rev().find(|(since, _)| *since <= ticks);
        known.map_or(0, |(_, generation)| *generation)
    }

    /// Adds the frames of a walk; one that met a library for the first time is repeated with its tables.
    fn walk_with<M: Memory>(
        &mut self,
        vm: &Vm<M>,
        snapshot: &Snapshot<'_>,
        walk: &mut Walk,
        restriction: Option<u32>,
    ) {
        let sampled = self.generation_at(walk.ticks);
        let Self { scopes, libraries, frames, groups, limits, uses_known_steps, .. } = self;
        scopes.restrict_to_code_before(restriction);
        scopes.restrict_in_stub_places(sampled);
        let mut loads = 0;
        loop {
            frames.truncate(walk.frames.start);
            groups.truncate(walk.groups.start);
            let mut native = libraries.reading(&vm.memory);
            let mut walker = Walker::new(&vm.hotspot, &vm.memory, scopes, *limits).with_native(&mut native);
            if !*uses_known_steps {
                walker = walker.without_known_steps();
            }
            let mut steps = walker.frames_with(&snapshot.head.capture, snapshot.stack, snapshot.frozen);
            steps.append_to(frames, groups);
            walk.stop = steps.stop();
            loads += 1;
            if loads > MAX_LOADS || !libraries.prepare(&vm.memory) {
                (walk.frames.end, walk.groups.end) = (frames.len(), groups.len());
                return;
            }
        }
    }

    /// Notices libraries that were loaded or unloaded, by the loader's count of them; to be called before the first
    /// walk and a few times a second, outside of walks.
    pub fn refresh_libraries<M: Memory>(&mut self, vm: &Vm<M>, loads: Option<u64>) {
        self.libraries.refresh(loads);
        self.libraries.preload(&vm.memory);
    }

    /// Refreshes the libraries. The second call also prepares for pauses, because programs that only print a line end
    /// before it; returns whether this is the second.
    pub fn refresh<M: Memory>(&mut self, vm: &Vm<M>, loads: Option<u64>) -> bool {
        self.refresh_libraries(vm, loads);
        let is_second = self.refreshes == 1;
        self.refreshes = self.refreshes.saturating_add(1);
        if is_second {
            self.lifetime.prepare();
        }
        is_second
    }
}

/// # For developers
impl StackWalker {
    /// Compares walks from here on.
    pub(crate) fn compare_walks(&mut self) {
        self.comparison = Some(Comparison::default());
    }

    /// Logs the counts, if walks are compared.
    pub(crate) fn report_comparison(&self) {
        if let Some(comparison) = &self.comparison {
            comparison.report();
        }
    }

    /// Walks a stack without known steps as well, and compares both.
    fn compare<M: Memory>(&mut self, vm: &Vm<M>, snapshot: &Snapshot<'_>, walk: &Walk) {
        if self.comparison.is_none() || walk.is_restricted {
            return;
        }
        let mut general = self.unwalked(walk.ticks);
        self.uses_known_steps = false;
        self.walk_with(vm, snapshot, &mut general, None);
        self.uses_known_steps = true;
        let sizes = |walk| self.groups(walk).iter().map(|group| group.frames);
        let is_equal = self.frames(&general) == self.frames(walk)
            && general.stop == walk.stop
            && sizes(&general).eq(sizes(walk));
        let is_apart = !is_equal
            && (self.lifetime.observe(&vm.memory) != Change::None
                || self.restriction(vm, walk.ticks).is_some());
        let Some(comparison) = &mut self.comparison else { return };
        match (is_equal, is_apart) {
            (true, _) => comparison.equal += 1,
            (false, true) => comparison.apart += 1,
            (false, false) => comparison.different += 1,
        }
        if !is_equal && !is_apart && comparison.different <= MAX_LOGGED {
            let (one, other) = (self.frames(walk), self.frames(&general));
            let first = one.iter().zip(other).position(|(one, other)| one != other);
            let at = first.unwrap_or(one.len().min(other.len()));
            let show = |frames: &[Frame]| frames.get(at).copied();
            tracing::warn!(
                "a walk by known steps differs: {} frames, stop {:?}; without {} frames, stop {:?}; at frame {at}: {:?} and {:?}",
                one.len(),
                walk.stop,
                other.len(),
                general.stop,
                show(one),
                show(other)
            );
        }
        self.frames.truncate(walk.frames.end);
        self.groups.truncate(walk.groups.end);
    }
}
