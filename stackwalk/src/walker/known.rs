//! Steps that earlier walks have taken, and whole walks that consist mostly of them.
//!
//! Problem: nearly all frames of a walk are those of compiled code that earlier walks went through, called by the same
//! method, and what other frames need costs more than the step itself. So does an iterator that is entered and left for
//! each method.
//! Approach: a frame is left the short way if the cache has the step to it and the step from it, and if nothing is
//! unusual. All others are left by [`Walk::step`], which would give the same frames for these as well: tests compare
//! both.

use alloc::vec::Vec;

use super::Frames;
use super::walk::{Call, Cursor, Doing, Emit, Scopes, Walk};
use crate::cache::{KnownStep, ScopeCache};
use crate::cpu::{FRAME_RECORD_BYTES, RETURNS_BY_REGISTER, return_address};
use crate::frame::{CompileLevel, Frame, Place};
use crate::hotspot::HotSpot;
use crate::hotspot::nmethod::{Compilation, Identity};
use crate::hotspot::scope_desc::Scope;
use crate::memory::{Memory, StackCopy};
use crate::stop::Stop;

/// Frames that one step of a walk found: those of a physical frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// How many.
    pub frames: u32,
    /// Number of the decoded pc that they are made of: groups of one cache with the same number have the same methods,
    /// bytecode indexes and level. 0 for frames that have none.
    pub number: u32,
}

/// The parts of a [`Walk`] that the short way needs and does not change.
pub(super) struct ShortWay<'w, M> {
    hotspot: &'w HotSpot,
    memory: &'w M,
    stack: StackCopy<'w>,
    /// The highest sp of a caller.
    highest: u64,
    stack_high: u64,
    interrupted_sp: u64,
}

impl<M: Memory> ShortWay<'_, M> {
    /// The step from `callee`, whose code is `before`, to the return address `pc`, if a walk has taken it before and
    /// the code there is still the same.
    #[inline]
    pub(super) fn step_to<'c>(
        &self,
        cache: &'c ScopeCache,
        pc: u64,
        callee: u64,
        before: Option<Compilation>,
    ) -> Option<KnownStep<'c>> {
        cache.find_step(pc, callee, |blob| match before {
            // A method that calls itself; its identity was read just before.
            Some(code) if code.blob == blob => Some(code.identity),
            _ => Identity::read(&self.hotspot.layout.nmethod, self.memory, blob).ok(),
        })
    }

    /// The caller of the frame at `cursor`, to which `step` leads, and the step to the caller: the same as
    /// [`Walk::step`] and what follows it. `None` for frames that are to be left that way.
    #[inline]
    fn caller_of<'c>(
        &self,
        cache: &'c ScopeCache,
        cursor: &Cursor,
        step: KnownStep<'c>,
    ) -> Option<(Cursor, KnownStep<'c>)> {
        let sp = cursor.sp.wrapping_add(u64::from(step.frame_bytes()));
        if sp > self.highest || RETURNS_BY_REGISTER && cursor.sp == self.interrupted_sp {
            return None;
        }
        let record = self.stack.bytes(sp.wrapping_sub(FRAME_RECORD_BYTES), FRAME_RECORD_BYTES as usize)?;
        let (&[fp, pc], _) = record.as_chunks().0.split_first_chunk()?;
        let pc = return_address(u64::from_ne_bytes(pc), self.stack_high);
        let known = self.step_to(cache, pc, step.method(), Some(step.compilation()))?;
        Some((Cursor { pc, sp, fp: u64::from_ne_bytes(fp), doing: Doing::CallingJava }, known))
    }
}

impl<'w, M: Memory> Walk<'w, M> {
    /// The short way from here on.
    #[inline]
    pub(super) fn short_way(&self) -> ShortWay<'w, M> {
        // A caller of the oldest frame in a chunk is in the next one.
        let beyond = if self.thawing.in_heap() { FRAME_RECORD_BYTES + 1 } else { 0 };
        ShortWay {
            hotspot: self.hotspot,
            memory: self.memory,
            stack: self.stack,
            highest: self.high.saturating_sub(beyond),
            stack_high: self.capture.stack_high,
            interrupted_sp: self.capture.sp,
        }
    }

    /// Returns the cache's number of the step to the frame at `cursor`, if the short way may begin there.
    fn known_step(&self, cursor: &Cursor) -> Option<u32> {
        let is_met = cursor.doing == Doing::CallingJava && cursor.pc == self.call.pc;
        self.call.known.filter(|_| is_met && self.cache.has_steps())
    }

    /// Steps out of the frame at `cursor` the short way.
    pub(super) fn step_known(&mut self, cursor: Cursor) -> Option<(Scopes, Cursor)> {
        let position = self.known_step(&cursor)?;
        let step = self.cache.step(position)?;
        let (caller, known) = self.short_way().caller_of(self.cache, &cursor, step)?;
        let known = Some(known.position);
        let entry = self.cache.step_code(position)?;
        self.cache.touch_step(position);
        self.call = Call { pc: caller.pc, callee: entry.identity.method, known };
        let scopes = Scopes::of(&entry, cursor.place());
        self.leave_native(&Emit::Scopes(scopes));
        Some((scopes, caller))
    }
}

impl<M: Memory> Frames<'_, M> {
    /// Appends all further frames to `frames`, and to `groups` how they lie together.
    pub fn append_to(&mut self, frames: &mut Vec<Frame>, groups: &mut Vec<Group>) {
        while self.stop.is_none() {
            if matches!(self.pending, Emit::Nothing) {
                self.append_known(frames, groups);
                if let Err(stop) = self.step_unknown() {
                    self.stop = Some(stop);
                }
            }
            let mut number = match self.pending {
                Emit::Scopes(Scopes { number, .. }) => number,
                Emit::Nothing | Emit::One(_) | Emit::Two(..) => 0,
            };
            let begin = frames.len();
            while let Some(frame) = self.take_pending() {
                if self.produced >= self.max_frames {
                    (self.stop, number) = (Some(Stop::DepthLimit), 0);
                    break;
                }
                self.produced += 1;
                frames.push(frame);
            }
            if frames.len() > begin {
                groups.push(Group { frames: (frames.len() - begin) as u32, number });
            }
        }
    }

    /// Appends frames that are left the short way, as long as there is room for all that share a physical frame.
    fn append_known(&mut self, frames: &mut Vec<Frame>, groups: &mut Vec<Group>) {
        let (Some(walk), Ok(mut cursor)) = (&mut self.walk, self.next) else { return };
        let Some(mut position) = walk.known_step(&cursor) else { return };
        let way = walk.short_way();
        let (begin, mut callee) = (frames.len(), 0);
        let mut room = self.max_frames - self.produced;
        while let Some(step) = walk.cache.step(position)
            && let Some((caller, known)) = way.caller_of(walk.cache, &cursor, step)
            && room >= step.count()
        {
            match step.scopes() {
                Some(scopes) => push_scopes(frames, scopes.iter().copied(), step, cursor.place()),
                None => push_scopes(frames, walk.cache.kept_scopes(step), step, cursor.place()),
            }
            groups.push(Group { frames: step.count(), number: step.number() });
            (room, callee) = (room - step.count(), step.method());
            let known = known.position;
            walk.cache.touch_step(position);
            (cursor, position) = (caller, known);
        }
        if frames.len() == begin {
            return;
        }
        walk.call = Call { pc: cursor.pc, callee, known: Some(position) };
        if walk.native_until_java {
            walk.native = None;
        }
        self.next = Ok(cursor);
        self.produced += (frames.len() - begin) as u32;
    }
}

/// Appends the frames of a step's scopes.
#[inline]
fn push_scopes(
    frames: &mut Vec<Frame>,
    scopes: impl ExactSizeIterator<Item = u64>,
    step: KnownStep<'_>,
    place: Place,
) {
    let level = CompileLevel(step.level());
    let outermost = step.count().wrapping_sub(1) as usize;
    frames.extend(scopes.enumerate().map(|(index, scope)| {
        let Scope { method, bci } = Scope::unpack(scope);
        Frame::Compiled { method, bci, level, inlined: index != outermost, is_moved: false, place }
    }));
}
