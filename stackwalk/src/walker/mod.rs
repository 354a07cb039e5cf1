//! The walk: classify the code at a pc, decide the step to its caller, advance in one place.
//!
//! `caller` steps from frames that called something, `interrupted` from the one frame that was stopped at an
//! arbitrary instruction, `compiled` looks up compiled code through the cache.
//! Invariants: sp grows with every step, stays aligned and below the stack base, so a walk ends after at most
//! as many steps as the stack has words; a frame is yielded only after its code was identified.

mod called;
mod caller;
mod compiled;
mod deoptimizing;
mod entry_code;
mod forward_exception;
mod frameless_entry;
mod frozen;
mod interrupted;
mod jump_entered;
mod known;
mod native;
pub(crate) mod native_code;
mod recover;
mod routine;
mod running;
mod signal;
mod stub;
mod upcall;
mod walk;

use crate::cache::ScopeCache;
use crate::capture::Capture;
use crate::frame::Frame;
use crate::frozen::Frozen;
use crate::hotspot::HotSpot;
use crate::limits::Limits;
use crate::memory::{Memory, StackCopy};
use crate::stop::Stop;
use crate::walker::native_code::{NativeCode, NativeRegisters};
pub use known::Group;
use walk::{Call, Cursor, Emit, NativeOrigin, Scopes, Step, Thawing, Walk};

/// Walks stacks of one VM, one after the other.
#[derive(Debug)]
pub struct Walker<'a, M> {
    hotspot: &'a HotSpot,
    memory: &'a M,
    cache: &'a mut ScopeCache,
    native: Option<&'a mut dyn NativeCode>,
    /// True if native frames are followed only as far as the newest Java frame.
    native_until_java: bool,
    limits: Limits,
}

impl<'a, M: Memory> Walker<'a, M> {
    /// A walker that reads VM structures from `memory` and caches them in `cache`.
    pub fn new(hotspot: &'a HotSpot, memory: &'a M, cache: &'a mut ScopeCache, limits: Limits) -> Self {
        cache.use_steps(true);
        Self { hotspot, memory, cache, native: None, native_until_java: false, limits }
    }

    /// The same walker, which looks at each frame by itself instead of taking steps of earlier walks: slower, with
    /// equal results. Tests compare both.
    #[must_use]
    pub fn without_known_steps(self) -> Self {
        self.cache.use_steps(false);
        self
    }

    /// The same walker, which follows native frames as well.
    #[must_use]
    pub fn with_native(self, native: &'a mut dyn NativeCode) -> Self {
        Self { native: Some(native), ..self }
    }

    /// The same walker, which follows native frames only as far as the newest Java frame: code that Java calls as a
    /// leaf leaves no anchor, so nothing else leads through it.
    #[must_use]
    pub fn with_native_until_java(self, native: &'a mut dyn NativeCode) -> Self {
        Self { native: Some(native), native_until_java: true, ..self }
    }

    /// Frames of the captured thread, newest first; `stack` was copied from `capture.stack_low` on.
    pub fn frames<'w>(&'w mut self, capture: &Capture, stack: &'w [u8]) -> Frames<'w, M> {
        self.frames_with(capture, stack, Frozen::NONE)
    }

    /// Returns the frames of a stack, with a virtual thread's older frames in `frozen`.
    pub fn frames_with<'w>(
        &'w mut self,
        capture: &Capture,
        stack: &'w [u8],
        frozen: Frozen<'w>,
    ) -> Frames<'w, M> {
        let mut frames = None;
        self.frames_in(&mut frames, capture, stack, frozen);
        frames.unwrap_or(Frames::NOT_STARTED)
    }

    /// Makes the same iterator in `place`, because it is large for the stack of a signal handler.
    pub fn frames_in<'w>(
        &'w mut self,
        place: &mut Option<Frames<'w, M>>,
        capture: &Capture,
        stack: &'w [u8],
        frozen: Frozen<'w>,
    ) {
        *place = Some(Frames::NOT_STARTED);
        let (Some(frames), Some(started)) = (place, self.hotspot.started()) else { return };
        frames.max_frames = self.limits.max_frames;
        frames.walk = Some(Walk {
            hotspot: self.hotspot,
            started,
            memory: self.memory,
            cache: self.cache,
            stack: StackCopy::new(capture.stack_low, stack),
            low: 0,
            high: capture.stack_high,
            has_followed_jump: false,
            caller_may_keep_sp: false,
            left_by_register: 0,
            may_return_by_register: false,
            thawing: Thawing::new(frozen),
            capture: *capture,
            native: self.native.as_mut().map(|native| &mut **native as &mut dyn NativeCode),
            native_until_java: self.native_until_java,
            registers: NativeRegisters::default(),
            origin: NativeOrigin::NoAnchor,
            has_met_entry: false,
            code: None,
            call: Call::default(),
        });
        if let Some(walk) = &mut frames.walk {
            frames.next = walk.first();
        }
    }
}

/// Iterator over one walk; [`Frames::stop`] has the reason when it has ended.
#[derive(Debug)]
pub struct Frames<'w, M> {
    walk: Option<Walk<'w, M>>,
    next: Result<Cursor, Stop>,
    pending: Emit,
    produced: u32,
    max_frames: u32,
    stop: Option<Stop>,
}

impl<M: Memory> Frames<'_, M> {
    const NOT_STARTED: Self = Self {
        walk: None,
        next: Err(Stop::NotStarted),
        pending: Emit::Nothing,
        produced: 0,
        max_frames: 0,
        stop: None,
    };

    /// The reason why the walk ended; a walk the caller did not finish counts as cut by the depth limit.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.unwrap_or(Stop::DepthLimit)
    }

    #[inline]
    fn take_pending(&mut self) -> Option<Frame> {
        let walk = self.walk.as_ref()?;
        match &mut self.pending {
            Emit::Nothing => None,
            Emit::Scopes(scopes) => {
                let scope = walk.cache.scope(scopes.first)?;
                let Scopes { level, place, count, is_moved, .. } = *scopes;
                // Changed in place: this runs for each frame.
                scopes.first += 1;
                scopes.count = count.saturating_sub(1);
                let inlined = count > 1;
                if !inlined {
                    self.pending = Emit::Nothing;
                }
                let (method, bci) = (scope.method, scope.bci);
                Some(Frame::Compiled { method, bci, level, inlined, is_moved, place })
            }
            Emit::One(frame) => {
                let frame = *frame;
                self.pending = Emit::Nothing;
                Some(frame)
            }
            Emit::Two(first, second) => {
                let (first, second) = (*first, *second);
                self.pending = Emit::One(second);
                Some(first)
            }
        }
    }

    /// Steps to the next physical frame.
    fn step(&mut self) -> Result<(), Stop> {
        let cursor = self.next?;
        let walk = self.walk.as_mut().ok_or(Stop::NotStarted)?;
        if let Some((scopes, next)) = walk.step_known(cursor) {
            (self.pending, self.next) = (Emit::Scopes(scopes), Ok(next));
            return Ok(());
        }
        self.step_unknown()
    }

    /// Steps to the next physical frame without the steps of earlier walks.
    fn step_unknown(&mut self) -> Result<(), Stop> {
        let cursor = self.next?;
        let walk = self.walk.as_mut().ok_or(Stop::NotStarted)?;
        // One copy: the value is large for a signal stack.
        let stepped = walk.step(cursor);
        let step: &Step = stepped.as_ref().map_err(|stop| *stop)?;
        self.pending = step.emit;
        walk.leave_native(&step.emit);
        self.next = match step.next {
            Ok(next) => walk.uncontradicted(&step.emit, next).and_then(|next| walk.advance(next)),
            Err(stop) => Err(stop),
        };
        Ok(())
    }
}

impl<M: Memory> Iterator for Frames<'_, M> {
    type Item = Frame;

    #[inline]
    fn next(&mut self) -> Option<Frame> {
        while self.stop.is_none() {
            let limit = self.produced >= self.max_frames;
            if let Some(frame) = self.take_pending() {
                if limit {
                    self.stop = Some(Stop::DepthLimit);
                    return None;
                }
                self.produced += 1;
                return Some(frame);
            }
            if let Err(stop) = self.step() {
                self.stop = Some(stop);
            }
        }
        None
    }
}
