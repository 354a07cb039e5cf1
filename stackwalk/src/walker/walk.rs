//! State of one walk, and the steps it takes.

use crate::cache::ScopeCache;
use crate::capture::Capture;
use crate::cpu::{FrameRegisters, RETURN_ADDRESS_BYTES, RETURNS_BY_REGISTER};
use crate::frame::{CompileLevel, Frame, Pc, Place};
use crate::frozen::Frozen;
use crate::hotspot::anchor::Anchor;
use crate::hotspot::code_blob::CodeBlob;
use crate::hotspot::nmethod::Compilation;
use crate::hotspot::pc_desc::PcMatch;
use crate::hotspot::{HotSpot, Started};
use crate::memory::{Memory, StackCopy};
use crate::stop::Stop;
use crate::walker::native_code::{NativeCode, NativeRegisters};

/// State of the frame at a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
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
    Native,
}

/// Position of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    pub(super) doing: Doing,
}

impl Cursor {
    pub(super) fn new(FrameRegisters { pc, sp, fp }: FrameRegisters, doing: Doing) -> Self {
        Self { pc, sp, fp, doing }
    }

    pub(super) fn registers(&self) -> FrameRegisters {
        FrameRegisters { pc: self.pc, sp: self.sp, fp: self.fp }
    }

    /// A frame that is calling the VM.
    pub(super) fn calling(pc: u64, sp: u64, fp: u64) -> Self {
        Self { pc, sp, fp, doing: Doing::CallingVm }
    }

    pub(super) fn place(&self) -> Place {
        Place { pc: Pc(self.pc), sp: self.sp, fp: self.fp }
    }

    pub(super) fn matched(&self) -> PcMatch {
        match self.doing {
            Doing::Interrupted => PcMatch::Interrupted,
            Doing::CallingJava | Doing::Native => PcMatch::Exact,
            Doing::CallingVm | Doing::Polling | Doing::Returning => PcMatch::ExactOrNext,
        }
    }
}

/// Frames of one physical frame, still to be yielded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Emit {
    Nothing,
    One(Frame),
    /// The first, then the second.
    Two(Frame, Frame),
    Scopes(Scopes),
}

/// Scopes in the cache's arena that share a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scopes {
    pub(super) first: u32,
    pub(super) count: u16,
    pub(super) level: CompileLevel,
    pub(super) is_moved: bool,
    /// Number of the decoded pc.
    pub(super) number: u32,
    pub(super) place: Place,
}

/// Result for one physical frame: its frames are valid even if there is no next cursor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) emit: Emit,
    pub(super) next: Result<Cursor, Stop>,
}

/// Kind of the code at a pc.
pub(super) enum Code {
    CallStub,
    Interpreter,
    ContinuationBarrier,
    Blob(CodeBlob),
}

/// The place where Java frames continue below a run of native frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NativeOrigin {
    /// At Java code that called without setting an anchor, if there is any.
    NoAnchor,
    /// At the frame of this anchor.
    Anchor(Anchor),
    /// Nowhere: the thread's native root is below.
    ThreadRoot,
}

/// Progress of a walk from the thread's stack through the chunks of frozen frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thawing<'w> {
    pub(super) frozen: Frozen<'w>,
    /// Chunks entered so far; 0 while the walk is on the thread's stack.
    pub(super) entered: usize,
    /// True if a gap stands for frames that were being thawed.
    pub(super) gap: bool,
}

impl<'w> Thawing<'w> {
    pub(super) fn new(frozen: Frozen<'w>) -> Self {
        Self { frozen, entered: 0, gap: false }
    }

    pub(super) fn in_heap(&self) -> bool {
        self.entered > 0
    }
}

#[derive(Debug)]
pub(super) struct Walk<'w, M> {
    pub(super) hotspot: &'w HotSpot,
    pub(super) started: &'w Started,
    pub(super) memory: &'w M,
    pub(super) cache: &'w mut ScopeCache,
    /// Copy of the memory being walked: the thread's stack, then one chunk after the other.
    pub(super) stack: StackCopy<'w>,
    /// The sp of the last frame in `stack`: the next one lies above.
    pub(super) low: u64,
    /// End of the frames in `stack`.
    pub(super) high: u64,
    /// True if the walk has followed a jump; only the newest frame is left by one.
    pub(super) has_followed_jump: bool,
    /// True if the last frame was popped before its last instruction, so that its caller may have the same sp.
    pub(super) caller_may_keep_sp: bool,
    /// Steps of this walk whose caller might have the same sp for that reason.
    pub(super) left_by_register: u8,
    /// True if the last frame may have its return address in a register and nothing on the stack.
    pub(super) may_return_by_register: bool,
    pub(super) thawing: Thawing<'w>,
    pub(super) capture: Capture,
    pub(super) native: Option<&'w mut dyn NativeCode>,
    /// True if native frames are followed only as far as the newest Java frame.
    pub(super) native_until_java: bool,
    /// Registers of the native frame the cursor is at.
    pub(super) registers: NativeRegisters,
    /// Origin of the present run of native frames.
    pub(super) origin: NativeOrigin,
    /// True once the walk has passed an entry frame. The VM fields of the capture describe only frames newer than that.
    pub(super) has_met_entry: bool,
    /// The code of the last step, if it is compiled.
    pub(super) code: Option<Compilation>,
    /// The last call that was compared with the frame it led to.
    pub(super) call: Call,
}

/// A call of Java code that was compared with the frame that it led to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Call {
    /// Its return address, 0 for none.
    pub(super) pc: u64,
    /// The method of the frame, 0 if it was not compared.
    pub(super) callee: u64,
    /// The cache's number of this step, if a walk has taken it before.
    pub(super) known: Option<u32>,
}

impl Call {
    /// Clears the call.
    pub(super) fn forget(&mut self) {
        (self.pc, self.callee, self.known) = (0, 0, None);
    }
}

impl<M: Memory> Walk<'_, M> {
    /// The first cursor: native code that runs, the anchor if one is set, else interrupted Java code.
    pub(super) fn first(&mut self) -> Result<Cursor, Stop> {
        self.skip_handlers_at_entry();
        let capture = self.capture;
        if self.is_replacing() && capture.anchor_sp == 0 && !self.hotspot.is_code(capture.pc) {
            let stub = self.at_unpacking().ok_or(Stop::Deoptimizing)?;
            if self.starts_native() {
                return self.first_native(NativeOrigin::Anchor(Anchor {
                    sp: stub.sp,
                    pc: stub.pc,
                    fp: stub.fp,
                }));
            }
            return Ok(stub);
        }
        if self.is_between_upcall_and_native() {
            return self.aligned(Cursor {
                pc: capture.pc,
                sp: capture.sp,
                fp: capture.fp,
                doing: Doing::Interrupted,
            });
        }
        // Java code sets an anchor a few instructions before the call that stores the pc below the anchor's sp, and
        // clears it a few after. While that word is not live, the interrupted instruction is the better start.
        let in_java = capture.thread_state == u64::from(self.hotspot.layout.thread.in_java);
        let pc_not_live =
            capture.anchor_pc == 0 && capture.anchor_sp.wrapping_sub(RETURN_ADDRESS_BYTES) < capture.sp;
        // The stub that yields runs a few more instructions with the anchor at the entry.
        let yields = self.is_at_entry(capture.anchor_sp) && self.hotspot.is_code(capture.pc);
        if capture.anchor_sp != 0 && !(in_java && pc_not_live) && !yields {
            let anchor = Anchor { sp: capture.anchor_sp, pc: capture.anchor_pc, fp: capture.anchor_fp };
            // On an alternate stack the native frames were not copied.
            let copied = self.on_stack(capture.sp, self.stack.base());
            if self.starts_native() && copied {
                return self.first_native(NativeOrigin::Anchor(anchor));
            }
            return self.at_anchor(&anchor);
        }
        if self.starts_native() {
            return self.first_native(NativeOrigin::NoAnchor);
        }
        if (capture.thread == 0 || !in_java) && !self.is_called_by_native() {
            return Err(Stop::NoJavaFrame);
        }
        self.aligned(Cursor { pc: capture.pc, sp: capture.sp, fp: capture.fp, doing: Doing::Interrupted })
    }

    /// The frame an anchor describes.
    pub(super) fn at_anchor(&self, anchor: &Anchor) -> Result<Cursor, Stop> {
        if self.is_at_entry(anchor.sp) {
            return Err(Stop::ContinuationBarrier);
        }
        let pc = match anchor.effective_pc(&self.stack) {
            Some(pc) => pc,
            None => self.word(anchor.sp.wrapping_sub(RETURN_ADDRESS_BYTES))?,
        };
        self.aligned(Cursor { pc, sp: anchor.sp, fp: anchor.fp, doing: Doing::CallingVm })
    }

    pub(super) fn aligned(&self, cursor: Cursor) -> Result<Cursor, Stop> {
        if !cursor.sp.is_multiple_of(8) || cursor.sp > self.high {
            return Err(Stop::NotProgressing(cursor.sp));
        }
        Ok(cursor)
    }

    /// The only place where a walk moves on.
    pub(super) fn advance(&mut self, next: Cursor) -> Result<Cursor, Stop> {
        if self.leaves_chunk(next.sp) {
            return self.next_chunk();
        }
        // A poll is left by a jump, and so is the interpreter: code that was left by a jump may have the same sp, once.
        let may_keep_sp = core::mem::take(&mut self.caller_may_keep_sp)
            || matches!(next.doing, Doing::Polling | Doing::Returning);
        let has_left_register = core::mem::take(&mut self.may_return_by_register);
        let keeps_sp = may_keep_sp && !self.has_followed_jump || has_left_register;
        self.has_followed_jump |= keeps_sp && !has_left_register;
        if next.sp < self.low || (next.sp == self.low && !keeps_sp) {
            return Err(Stop::NotProgressing(self.low));
        }
        self.aligned(next)
    }

    /// Notes that the next step is from the frame at `cursor`.
    pub(super) fn begin_step(&mut self, cursor: Cursor) {
        self.low = cursor.sp;
        self.code = None;
        // Only the newest frames can: the interrupted code, and the method that it has polled for.
        self.may_return_by_register =
            RETURNS_BY_REGISTER && cursor.sp == self.capture.sp && self.left_by_register < 2;
        self.left_by_register += u8::from(self.may_return_by_register);
    }

    pub(super) fn step(&mut self, cursor: Cursor) -> Result<Step, Stop> {
        self.begin_step(cursor);
        match cursor.doing {
            Doing::Interrupted => self.step_interrupted(cursor),
            Doing::Native => self.step_native(cursor),
            Doing::CallingJava | Doing::CallingVm | Doing::Polling => self.step_caller(cursor),
            Doing::Returning => self.step_returning(cursor),
        }
    }

    /// A word of the copied stack.
    pub(super) fn word(&self, address: u64) -> Result<u64, Stop> {
        self.stack.word(address).ok_or_else(|| self.unreadable(address))
    }

    pub(super) fn unreadable(&self, address: u64) -> Stop {
        if address >= self.stack.base() && address < self.high {
            Stop::CopyEnd
        } else {
            Stop::Unreadable(address)
        }
    }

    /// A fixed slot of the frame at `fp`, counted in words.
    pub(super) fn slot(&self, fp: u64, words: i64) -> Result<u64, Stop> {
        self.word(fp.wrapping_add_signed(words.wrapping_mul(8)))
    }

    pub(super) fn in_interpreter(&self, pc: u64) -> bool {
        pc >= self.started.interpreter.0 && pc < self.started.interpreter.1
    }

    /// Returns whether `address` lies on the captured thread's stack at or above `low`.
    pub(super) fn on_stack(&self, address: u64, low: u64) -> bool {
        address >= low && address < self.high && address.is_multiple_of(8)
    }

    pub(super) fn code_at(&self, pc: u64) -> Result<Code, Stop> {
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

    pub(super) fn blob_at(&self, pc: u64) -> Result<CodeBlob, Stop> {
        let layout = &self.hotspot.layout;
        let address = self.started.code_cache.find_blob(&layout.code_heap, self.memory, pc)?;
        CodeBlob::read(&layout.blob, self.memory, self.started.continuation_barrier, address, pc)
    }
}
