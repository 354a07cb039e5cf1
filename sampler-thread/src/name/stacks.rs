//! Names walked stacks and gives each its id.
//!
//! Problem: a method may be unloaded between the sample and the moment its name is read, and another method may lie
//! there.
//! Approach: names read for a stack are proven afterwards: if the VM unloaded classes meanwhile, the stack is named
//! again and its methods are shown as unloaded (`crate::proof::lifetime`).
//! Invariant: a method that may have been unloaded has no name.

use std::sync::Arc;

use proto::ThreadState;
use stackwalk::{Frame, Group, Memory, Method, ReadCache, Stop};

use crate::drain::traces::Trace;
use crate::name::dictionaries::Node;
use crate::name::frames::FrameNames;
use crate::name::shown::{MostFrames, Shown};
use crate::process::ThreadFacts;
use crate::proof::lifetime::{Change, Lifetime};
use crate::proof::self_test::{Capabilities, CompiledCode};
use crate::walk::routines::Routines;
use crate::walk::snapshot::Snapshot;
use crate::walk::stacks::{StackWalker, USUAL_FRAMES, Walk};
use crate::walk::vm::Vm;

/// Stop reason of Java stacks that are not walked because the self-test failed.
pub const STOP_SELF_TEST: &str = "self_test_failed";

/// Stop reason of samples of a native thread whose stack bounds were unknown: nothing was copied, only the newest frame
/// is shown.
pub const STOP_NOT_COPIED: &str = "not_copied";

/// Stop reason of samples of a native thread that could not be walked to the root, whatever the cause.
pub const STOP_NATIVE_CUT: &str = "native_cut";

/// Stop reason of samples whose stack was not copied because the snapshot pool was empty: only the newest frame is
/// known.
pub const STOP_POOL_EXHAUSTED: &str = "pool_exhausted";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedStack {
    pub id: u64,
    /// Why the walk ended.
    pub stop: &'static str,
    /// True if every frame down to the root is there.
    pub complete: bool,
    /// Frames whose method may have been unloaded since the sample.
    pub unloaded: u32,
    /// True if something is missing because the VM may have freed it between the sample and the walk.
    pub is_late: bool,
    /// The compiled code that it goes through, if any.
    pub compiled: Option<CompiledCode>,
    /// True if its newest Java frame is that of a later point than the one that was running or calling.
    pub is_biased: bool,
}

/// Names stacks; owns the names and their ids.
pub struct StackNamer {
    /// Names and ids of frames.
    pub names: FrameNames,
    enabled: Capabilities,
    /// Most frames by kind, if they have different limits.
    most: Option<MostFrames>,
    /// True if frames of the current stack are beyond these limits.
    is_limited: bool,
    ids: Vec<u64>,
    /// Memory that names were read from, and the time stamp after which all of it was read.
    lines: (ReadCache, u64),
}

impl StackNamer {
    /// A namer with empty dictionaries; stubs get the names of `routines`.
    pub fn new(enabled: Capabilities, routines: Arc<Routines>, shown: Shown) -> Self {
        let names = FrameNames::new(enabled.positions, routines, shown);
        let ids = Vec::with_capacity(USUAL_FRAMES);
        Self { names, enabled, most: shown.most, is_limited: false, ids, lines: (ReadCache::default(), 0) }
    }

    /// Names a stack of the walker's group; `thread` is the sampled thread, if it is known.
    pub fn name<M: Memory>(
        &mut self,
        vm: &Vm<M>,
        walker: &mut StackWalker,
        walk: &Walk,
        snapshot: &Snapshot<'_>,
        thread: Option<&ThreadFacts>,
        state: Option<ThreadState>,
    ) -> NamedStack {
        let is_java = snapshot.head.capture.thread != 0;
        if is_java && !self.enabled.walks {
            let dictionaries = &mut self.names.dictionaries;
            let root = dictionaries.root(STOP_SELF_TEST, state);
            let (id, stop) = (dictionaries.sampled(root), STOP_SELF_TEST);
            let (complete, unloaded, is_late, compiled, is_biased) = (false, 0, false, None, false);
            return NamedStack { id, stop, complete, unloaded, is_late, compiled, is_biased };
        }
        self.begin(walker, walk.ticks);
        self.names.ticks = walk.ticks;
        self.names.uncertain_at = (!walker.lifetime.is_certain(walk.ticks)).then_some(walk.ticks);
        self.name_frames(vm, walker, walk, snapshot, thread);
        if !self.prove(&vm.memory, &mut walker.lifetime) {
            self.names.uncertain_at = Some(walk.ticks);
            self.name_frames(vm, walker, walk, snapshot, thread);
        }
        let stop = match walk.stop {
            _ if self.is_limited => Stop::DepthLimit.name(),
            stop if stop.is_complete() => stop.name(),
            _ if !snapshot.is_copy => STOP_POOL_EXHAUSTED,
            _ if !is_java && snapshot.stack.is_empty() => STOP_NOT_COPIED,
            _ if !is_java => STOP_NATIVE_CUT,
            stop => stop.name(),
        };
        let is_cut = walk.is_restricted && matches!(walk.stop, Stop::CodeReplaced(_) | Stop::UnknownCode(_));
        let compiled = compiled_code(walker.frames(walk), walker.groups(walk));
        let newest = walker.frames(walk).iter().find(|frame| frame.method().is_some());
        let is_biased = newest.is_some_and(Frame::is_moved);
        let node = self.node(stop, state);
        let id = self.names.dictionaries.sampled(node);
        if walker.comparison.is_some() {
            self.names.forget_groups();
            self.name_frames(vm, walker, walk, snapshot, thread);
            // Not the numbers: a node that was forgotten gets another one.
            let is_same = node.hash() == self.node(stop, state).hash();
            walker.comparison.iter_mut().for_each(|comparison| comparison.count_ids(is_same));
        }
        NamedStack {
            id,
            stop,
            complete: walk.stop.is_complete() && !self.is_limited,
            unloaded: self.names.unloaded,
            is_late: self.names.unloaded > 0 || is_cut,
            compiled,
            is_biased,
        }
    }

    /// Names a stack trace that the VM gave; returns its id, and the number of frames that may have been unloaded.
    pub fn name_trace<M: Memory>(
        &mut self,
        vm: &Vm<M>,
        walker: &mut StackWalker,
        trace: &Trace,
        stop: &str,
    ) -> (u64, u32) {
        if !walker.lifetime.covers(trace.ticks) {
            walker.lifetime.observe(&vm.memory);
        }
        self.begin(walker, trace.ticks);
        self.names.ticks = trace.ticks;
        self.names.uncertain_at = (!walker.lifetime.is_certain(trace.ticks)).then_some(trace.ticks);
        self.trace_frames(vm, trace);
        if !self.prove(&vm.memory, &mut walker.lifetime) {
            self.names.uncertain_at = Some(trace.ticks);
            self.trace_frames(vm, trace);
        }
        (self.names.dictionaries.stack(&self.ids, stop), self.names.unloaded)
    }

    fn trace_frames<M: Memory>(&mut self, vm: &Vm<M>, trace: &Trace) {
        let Self { names, ids, lines: (lines, _), .. } = self;
        ids.clear();
        names.unloaded = 0;
        let cached = vm.through(lines);
        ids.extend(trace.frames.iter().map(|&(method, bci)| names.traced(Method(method), bci, &cached)));
    }

    /// Removes names that may be wrong for a stack that was sampled at `ticks`.
    fn begin(&mut self, walker: &mut StackWalker, ticks: u64) {
        let change = walker.lifetime.take_change();
        let (lines, since) = &mut self.lines;
        // Methods of a stack that was sampled after a line was read may be newer than the line.
        if change != Change::None || ticks > *since {
            lines.forget();
            *since = walker.lifetime.now();
        }
        self.names.begin(change, &walker.libraries);
    }

    /// Returns the node of the stack whose frames have `ids`.
    fn node(&mut self, stop: &str, state: Option<ThreadState>) -> Node {
        let Self { names: FrameNames { dictionaries, .. }, ids, .. } = self;
        let root = dictionaries.root(stop, state);
        dictionaries.leaf(root, ids.iter().rev().copied())
    }

    /// Fills `ids` with those of all frames; 0 for frames that are not part of a profile.
    fn name_frames<M: Memory>(
        &mut self,
        vm: &Vm<M>,
        walker: &mut StackWalker,
        walk: &Walk,
        snapshot: &Snapshot<'_>,
        thread: Option<&ThreadFacts>,
    ) {
        let Self { names, enabled, most, is_limited, ids, lines: (lines, _) } = self;
        ids.clear();
        names.unloaded = 0;
        *is_limited = false;
        let mut most = *most;
        let cached = vm.through(lines);
        let (frames, groups, libraries) = walker.found(walk);
        for group in groups {
            let rest = frames.get(ids.len()..).unwrap_or_default();
            names.next_frames(rest, *group, &cached, libraries, ids);
        }
        if let Some(most) = &mut most {
            for (id, frame) in ids.iter_mut().zip(frames).filter(|(id, _)| **id != 0) {
                if most.exceeds(frame) {
                    *id = 0;
                    *is_limited = true;
                }
            }
        }
        let capture = &snapshot.head.capture;
        let Some(thread) = thread.filter(|_| capture.thread == 0) else { return };
        // The label of a compiler thread is read from the VM's structures, like the names of Java frames.
        let method = snapshot.head.compiled_method;
        if method != 0 && method.is_multiple_of(8) && enabled.walks {
            ids.extend(names.compiled_method(&cached, Method(method)));
        }
        ids.extend(names.thread(thread));
    }

    /// Returns whether nothing was unloaded while unproven names were read; removes them otherwise.
    fn prove<M: Memory>(&mut self, memory: &M, lifetime: &mut Lifetime) -> bool {
        let unproven = std::mem::take(&mut self.names.unproven);
        if unproven.is_empty() {
            return true;
        }
        let permanent: Vec<bool> =
            unproven.iter().map(|&(_, loaded_by)| lifetime.is_permanent(memory, loaded_by)).collect();
        if lifetime.observe(memory) != Change::None {
            self.names.forget(lifetime.take_change());
            self.lines.0.forget();
            return false;
        }
        let now = lifetime.now();
        for ((method, _), _) in unproven.iter().zip(permanent).filter(|(_, permanent)| *permanent) {
            self.names.set_permanent(*method, now);
        }
        true
    }
}

/// Returns by which compilers the compiled code is that a stack goes through, if any.
fn compiled_code(frames: &[Frame], groups: &[Group]) -> Option<CompiledCode> {
    let mut rest = frames;
    let codes = groups.iter().filter_map(|group| {
        let (first, older) = (rest.first()?, rest.get(group.frames as usize..)?);
        rest = older;
        match first {
            Frame::Compiled { inlined, level, .. } => {
                Some(CompiledCode { is_inlined: *inlined, is_c2: level.is_optimised() })
            }
            _ => None,
        }
    });
    codes.reduce(|all, one| CompiledCode {
        is_inlined: all.is_inlined || one.is_inlined,
        is_c2: all.is_c2 || one.is_c2,
    })
}
