//! The walk: classify the code at a pc, decide the step to its caller, let one place move on.
//!
//! `caller` steps from frames that called something, `interrupted` from the one frame that was stopped at an
//! arbitrary instruction, `compiled` looks up compiled code through the cache.
//! Invariants: sp grows with every step, stays aligned and below the stack base, so a walk ends after at most
//! as many steps as the stack has words; a frame is yielded only after its code was identified.

mod caller;
mod compiled;
mod deoptimizing;
mod frozen;
mod interrupted;
mod jumped;
mod native;
mod recover;
mod stub;

use crate::cache::ScopeCache;
use crate::capture::Capture;
use crate::frame::{CompileLevel, Frame, Pc, Place};
use crate::frozen::Frozen;
use crate::hotspot::anchor::Anchor;
use crate::hotspot::code_blob::CodeBlob;
use crate::hotspot::pc_desc::PcMatch;
use crate::hotspot::{HotSpot, Started};
use crate::limits::Limits;
use crate::memory::{Memory, StackCopy};
use crate::native::{NativeCode, NativeRegisters};
use crate::stop::Stop;
use frozen::Thawing;
use native::Below;

/// Walks stacks of one VM, one after the other.
#[derive(Debug)]
pub struct Walker<'a, M> {
    hotspot: &'a HotSpot,
    memory: &'a M,
    cache: &'a mut ScopeCache,
    native: Option<&'a mut dyn NativeCode>,
    limits: Limits,
}

impl<'a, M: Memory> Walker<'a, M> {
    /// A walker that reads VM structures from `memory` and remembers them in `cache`.
    pub fn new(hotspot: &'a HotSpot, memory: &'a M, cache: &'a mut ScopeCache, limits: Limits) -> Self {
        Self { hotspot, memory, cache, native: None, limits }
    }

    /// The same walker, which follows native frames as well.
    #[must_use]
    pub fn with_native(self, native: &'a mut dyn NativeCode) -> Self {
        Self { native: Some(native), ..self }
    }

    /// Frames of the captured thread, newest first; `stack` was copied from `capture.stack_low` on.
    pub fn frames<'w>(&'w mut self, capture: &Capture, stack: &'w [u8]) -> Frames<'w, M> {
        self.frames_with(capture, stack, Frozen::NONE)
    }

    /// As [`Walker::frames`]; a virtual thread's older frames are found in `frozen`.
    pub fn frames_with<'w>(
        &'w mut self,
        capture: &Capture,
        stack: &'w [u8],
        frozen: Frozen<'w>,
    ) -> Frames<'w, M> {
        let started = self.hotspot.started();
        let mut walk = started.map(|started| Walk {
            hotspot: self.hotspot,
            started,
            memory: self.memory,
            cache: self.cache,
            stack: StackCopy::new(capture.stack_low, stack),
            low: 0,
            high: capture.stack_high,
            jumped: false,
            may_stay: false,
            thawing: Thawing::new(frozen),
            capture: *capture,
            native: self.native.as_mut().map(|native| &mut **native as &mut dyn NativeCode),
            registers: NativeRegisters::default(),
            below: Below::Unknown,
        });
        let next = walk.as_mut().ok_or(Stop::NotStarted).and_then(Walk::first);
        Frames {
            walk,
            next,
            pending: Emit::Nothing,
            produced: 0,
            max_frames: self.limits.max_frames,
            stop: None,
        }
    }
}

/// Iterator over one walk; ask [`Frames::stop`] for the reason when it has ended.
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
    /// Why the walk ended; a walk the caller did not finish counts as cut by the depth limit.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.unwrap_or(Stop::DepthLimit)
    }

    fn take_pending(&mut self) -> Option<Frame> {
        let walk = self.walk.as_ref()?;
        match self.pending {
            Emit::Nothing => None,
            Emit::One(frame) => {
                self.pending = Emit::Nothing;
                Some(frame)
            }
            Emit::Two(first, second) => {
                self.pending = Emit::One(second);
                Some(first)
            }
            Emit::Scopes(scopes) => {
                let scope = walk.cache.scope(scopes.first)?;
                let inlined = scopes.count > 1;
                self.pending = if inlined {
                    Emit::Scopes(Scopes { first: scopes.first + 1, count: scopes.count - 1, ..scopes })
                } else {
                    Emit::Nothing
                };
                let Scopes { level, place, .. } = scopes;
                Some(Frame::Compiled { method: scope.method, bci: scope.bci, level, inlined, place })
            }
        }
    }
}

impl<M: Memory> Iterator for Frames<'_, M> {
    type Item = Frame;

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
            let step = self.next.and_then(|cursor| {
                let walk = self.walk.as_mut().ok_or(Stop::NotStarted)?;
                walk.step(cursor)
            });
            match (step, &mut self.walk) {
                (Ok(step), Some(walk)) => {
                    self.pending = step.emit;
                    self.next = step.next.and_then(|next| walk.advance(next));
                }
                (Ok(_), None) => self.stop = Some(Stop::NotStarted),
                (Err(stop), _) => self.stop = Some(stop),
            }
        }
        None
    }
}

/// What the frame at a cursor was doing when the walk looked at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    /// Stopped at an arbitrary instruction.
    Interrupted,
    /// Calling Java: the pc is a return address with debug information.
    CallingJava,
    /// Calling VM code, which may have been entered without debug information.
    CallingVm,
    /// Stopped at a poll of a loop: the frame is whole, and no call leads on.
    Polling,
    /// Stopped at the poll of its return: the frame is gone, sp points at the return address.
    Returning,
    /// Running native code; its registers are `Walk::registers`.
    Native {
        /// Stopped at an arbitrary instruction.
        interrupted: bool,
    },
}

/// Position of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    pc: u64,
    sp: u64,
    fp: u64,
    doing: Doing,
}

impl Cursor {
    /// A frame that is calling the VM.
    fn calling(pc: u64, sp: u64, fp: u64) -> Self {
        Self { pc, sp, fp, doing: Doing::CallingVm }
    }

    fn place(&self) -> Place {
        Place { pc: Pc(self.pc), sp: self.sp, fp: self.fp }
    }

    fn matched(&self) -> PcMatch {
        match self.doing {
            Doing::Interrupted => PcMatch::Next,
            Doing::CallingJava | Doing::Native { .. } => PcMatch::Exact,
            Doing::CallingVm | Doing::Polling | Doing::Returning => PcMatch::ExactOrNext,
        }
    }
}

/// Frames of one physical frame, still to be yielded.
#[derive(Clone, Copy, Debug)]
enum Emit {
    Nothing,
    One(Frame),
    /// The first, then the second.
    Two(Frame, Frame),
    Scopes(Scopes),
}

/// Scopes in the cache's arena that share a place.
#[derive(Clone, Copy, Debug)]
struct Scopes {
    first: u32,
    count: u16,
    level: CompileLevel,
    place: Place,
}

/// Result of looking at one physical frame: its frames are good even if there is no way on.
#[derive(Clone, Copy, Debug)]
struct Step {
    emit: Emit,
    next: Result<Cursor, Stop>,
}

/// What kind of code a pc lies in.
enum Code {
    CallStub,
    Interpreter,
    ContinuationBarrier,
    Blob(CodeBlob),
}

/// State of one walk.
#[derive(Debug)]
struct Walk<'w, M> {
    hotspot: &'w HotSpot,
    started: &'w Started,
    memory: &'w M,
    cache: &'w mut ScopeCache,
    /// Where the frames being walked lie: the thread's stack, then one chunk after the other.
    stack: StackCopy<'w>,
    /// The sp last looked at in `stack`: the next one lies above.
    low: u64,
    /// End of the frames in `stack`.
    high: u64,
    /// Whether the walk has followed a jump; only the newest frame is left by one.
    jumped: bool,
    /// Whether the frame just looked at had been taken off the stack before its last instruction.
    may_stay: bool,
    thawing: Thawing<'w>,
    capture: Capture,
    native: Option<&'w mut dyn NativeCode>,
    /// Registers of the native frame the cursor is at.
    registers: NativeRegisters,
    /// What the present native stretch leads to.
    below: Below,
}

impl<M: Memory> Walk<'_, M> {
    /// Where the walk begins: native code that runs, the anchor if one is set, else interrupted Java code.
    fn first(&mut self) -> Result<Cursor, Stop> {
        let capture = self.capture;
        if self.is_replacing() && capture.anchor_sp == 0 && !self.hotspot.is_code(capture.pc) {
            let stub = self.at_unpacking().ok_or(Stop::Deoptimizing)?;
            if self.starts_native() {
                return self.first_native(Below::Anchor(Anchor { sp: stub.sp, pc: stub.pc, fp: stub.fp }));
            }
            return Ok(stub);
        }
        // In Java, code sets an anchor a few instructions before the call that puts the pc below its sp and
        // clears it a few after: while that word is not live, the interrupted instruction is known better.
        let in_java = capture.thread_state == u64::from(self.hotspot.layout.thread.in_java);
        let pc_not_live = capture.anchor_pc == 0 && capture.anchor_sp.wrapping_sub(8) < capture.sp;
        // The stub that yields runs on for a few instructions with the anchor at the entry.
        let yields = self.is_at_entry(capture.anchor_sp) && self.hotspot.is_code(capture.pc);
        if capture.anchor_sp != 0 && !(in_java && pc_not_live) && !yields {
            let anchor = Anchor { sp: capture.anchor_sp, pc: capture.anchor_pc, fp: capture.anchor_fp };
            // On an alternate stack the native frames were not copied.
            let copied = capture.stack_low == capture.sp;
            if self.starts_native() && copied {
                return self.first_native(Below::Anchor(anchor));
            }
            return self.at_anchor(&anchor);
        }
        if self.starts_native() {
            return self.first_native(Below::Unknown);
        }
        if (capture.thread == 0 || !in_java) && !self.is_called_by_native() {
            return Err(Stop::NoJavaFrame);
        }
        self.aligned(Cursor { pc: capture.pc, sp: capture.sp, fp: capture.fp, doing: Doing::Interrupted })
    }

    /// The frame an anchor describes.
    fn at_anchor(&self, anchor: &Anchor) -> Result<Cursor, Stop> {
        if self.is_at_entry(anchor.sp) {
            return Err(Stop::ContinuationBarrier);
        }
        let pc = match anchor.effective_pc(&self.stack) {
            Some(pc) => pc,
            None => self.word(anchor.sp.wrapping_sub(8))?,
        };
        self.aligned(Cursor { pc, sp: anchor.sp, fp: anchor.fp, doing: Doing::CallingVm })
    }

    fn aligned(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        if !cursor.sp.is_multiple_of(8) || cursor.sp > self.high {
            return Err(Stop::NotProgressing(cursor.sp));
        }
        Ok(cursor)
    }

    /// The only place where a walk moves on.
    fn advance(&mut self, next: Cursor) -> Result<Cursor, Stop> {
        if self.leaves_chunk(next.sp) {
            return self.next_chunk();
        }
        // A poll is left by a jump, and so is the interpreter: its code may stand at the same sp as what was entered
        // from it, once.
        let stays =
            core::mem::take(&mut self.may_stay) || matches!(next.doing, Doing::Polling | Doing::Returning);
        let jumped = stays && !self.jumped;
        self.jumped |= jumped;
        if next.sp < self.low || (next.sp == self.low && !jumped) {
            return Err(Stop::NotProgressing(self.low));
        }
        self.aligned(next)
    }

    fn step(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        self.low = cursor.sp;
        match cursor.doing {
            Doing::Interrupted => self.step_interrupted(cursor),
            Doing::Native { interrupted } => self.step_native(cursor, interrupted),
            Doing::CallingJava | Doing::CallingVm | Doing::Polling => self.step_caller(cursor),
            Doing::Returning => self.step_returning(cursor),
        }
    }

    /// A word of the copied stack.
    fn word(&self, address: u64) -> Result<u64, Stop> {
        self.stack.word(address).ok_or_else(|| self.unreadable(address))
    }

    fn unreadable(&self, address: u64) -> Stop {
        if address >= self.stack.base() && address < self.high {
            Stop::CopyEnd
        } else {
            Stop::Unreadable(address)
        }
    }

    /// A fixed slot of the frame at `fp`, counted in words.
    fn slot(&self, fp: u64, words: i64) -> Result<u64, Stop> {
        self.word(fp.wrapping_add_signed(words.wrapping_mul(8)))
    }

    fn in_interpreter(&self, pc: u64) -> bool {
        pc >= self.started.interpreter.0 && pc < self.started.interpreter.1
    }

    /// Whether `address` lies on the captured thread's stack at or above `low`.
    fn on_stack(&self, address: u64, low: u64) -> bool {
        address >= low && address < self.high && address.is_multiple_of(8)
    }

    fn code_at(&self, pc: u64) -> Result<Code, Stop> {
        if pc == self.started.call_stub_return {
            return Ok(Code::CallStub);
        }
        if self.in_interpreter(pc) {
            return Ok(Code::Interpreter);
        }
        if self.started.continuation_barrier == Some(pc) {
            return Ok(Code::ContinuationBarrier);
        }
        self.blob_at(pc).map(Code::Blob)
    }

    fn blob_at(&self, pc: u64) -> Result<CodeBlob, Stop> {
        let layout = &self.hotspot.layout;
        let address = self.started.code_cache.find_blob(&layout.code_heap, self.memory, pc)?;
        CodeBlob::read(&layout.blob, self.memory, address, pc)
    }
}
