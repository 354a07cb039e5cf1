//! Compiled code at a pc: from the cache, or decoded from the nmethod and cached.

use alloc::boxed::Box;
use core::cell::RefCell;

use super::running::{Running, running};
use super::walk::{Cursor, Doing, Emit, Scopes, Step, Walk};
use crate::cache::{CODE_BUFFER, Code, CompiledKind, CompiledPc};
use crate::cpu::{BODY_AHEAD, CODE_AFTER, CODE_BEFORE, state_at_call};
use crate::frame::{CompileLevel, Frame, Method, Place};
use crate::hotspot::HotSpot;
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::hotspot::debug_bytes::{DebugBytes, Part, Windowed};
use crate::hotspot::method::Symbol;
use crate::hotspot::nmethod::{Compilation, DebugInfo, Identity};
use crate::hotspot::pc_desc::{PcMatch, find_scope};
use crate::hotspot::scope_desc::{PACKED_MARK, Scope, ScopeError, decode};
use crate::memory::Memory;
use crate::stop::Stop;

/// The class of continuations, its methods whose native wrappers enter a virtual thread and yield, and the method that
/// calls the latter (JDK 21 and later; `java.base/share/classes/jdk/internal/vm/Continuation.java`).
const CONTINUATION: &[u8] = b"jdk/internal/vm/Continuation";
const CONTINUATION_ENTRY: &[u8] = b"enterSpecial";
const CONTINUATION_YIELD: &[u8] = b"doYield";
const CONTINUATION_YIELD_CALLER: &[u8] = b"yield0";

impl<M: Memory> Walk<'_, M> {
    /// The cached code at a cursor's pc, if it is still the same code.
    pub(super) fn remembered(&mut self, cursor: Cursor) -> Option<CompiledPc> {
        let layout = &self.hotspot.layout.nmethod;
        let memory = self.memory;
        self.cache.find_pc(cursor.pc, cursor.matched(), |blob| Identity::read(layout, memory, blob).ok())
    }

    /// Decodes the code of `blob` at a cursor's pc and caches it.
    pub(super) fn decode(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<CompiledPc, Stop> {
        let layout = &self.hotspot.layout.nmethod;
        let unknown = Stop::UnknownCode(cursor.pc);
        let identity = Identity::read(layout, self.memory, blob.address)?;
        // The method alone stands for code without debug information.
        let own = Scope { method: Method(identity.method), bci: None }.pack().ok_or(unknown)?;
        if identity.method == 0 {
            return Err(unknown);
        }
        let known = self.cache.find_code(blob.address, identity);
        if !self.cache.allows(known) {
            return Err(Stop::CodeReplaced(cursor.pc));
        }
        let number = match known {
            Some(number) => number,
            None => self.meet(blob, identity)?,
        };
        // Code that is met in the place of a stub may be younger than the sample.
        if !self.cache.allows(Some(number)) {
            return Err(Stop::CodeReplaced(cursor.pc));
        }
        // Taken out of the cache, which decoding uses as well.
        let mut scopes = self.cache.scopes.take().ok_or(unknown)?;
        scopes[0] = own;
        let packed = self.decode_into(cursor, blob, KnownCode { number, identity }, &mut scopes[..]);
        self.cache.scopes = Some(scopes);
        packed
    }

    /// Decodes and caches, with `scopes` as a buffer, whose first is the code's own method.
    fn decode_into(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
        code: KnownCode,
        scopes: &mut [u64],
    ) -> Result<CompiledPc, Stop> {
        let layout = &self.hotspot.layout.nmethod;
        let unknown = Stop::UnknownCode(cursor.pc);
        let count = match blob.kind {
            BlobKind::NativeWrapper => 1,
            _ => self.decode_scopes(cursor, blob, code, scopes)?,
        };
        // The nmethod may have been freed and its debug information reused while it was being read.
        if Identity::read(layout, self.memory, blob.address)? != code.identity {
            return Err(unknown);
        }
        let scopes = scopes.get(..count).unwrap_or_default();
        self.cache.insert_pc(cursor.pc, cursor.matched(), code.number, scopes).ok_or(unknown)
    }

    /// Records the compilation at `blob`; returns its number.
    fn meet(&mut self, blob: &CodeBlob, identity: Identity) -> Result<u32, Stop> {
        let level = self.hotspot.layout.nmethod.level(self.memory, blob.address)?;
        let kind = match blob.kind {
            BlobKind::NativeWrapper => self.native_kind(Method(identity.method)),
            _ if self.keeps_frame_size(blob) => CompiledKind::JavaKeepingSize,
            _ => CompiledKind::Java,
        };
        let frame_bytes = u32::try_from(blob.frame_bytes).unwrap_or(0);
        Ok(self.cache.add_code(Code::new(blob.address..blob.code_end, identity, frame_bytes, level, kind)))
    }

    fn native_kind(&self, method: Method) -> CompiledKind {
        if !self.hotspot.has_continuations() {
            return CompiledKind::Native;
        }
        match self.hotspot.method(self.memory, method) {
            Ok(names) if !self.is_text(names.class, CONTINUATION) => CompiledKind::Native,
            Ok(names) if self.is_text(names.name, CONTINUATION_ENTRY) => CompiledKind::ContinuationEntry,
            Ok(names) if self.is_text(names.name, CONTINUATION_YIELD) => CompiledKind::ContinuationYield,
            _ => CompiledKind::Native,
        }
    }

    /// Returns whether `method` is the one that calls `Continuation.doYield`.
    pub(super) fn calls_yield(&self, method: Method) -> bool {
        let names = self.hotspot.method(self.memory, method);
        names.is_ok_and(|names| {
            self.is_text(names.class, CONTINUATION) && self.is_text(names.name, CONTINUATION_YIELD_CALLER)
        })
    }

    fn is_text(&self, symbol: Symbol, text: &[u8]) -> bool {
        let mut bytes = [0; 32];
        let length = self.hotspot.read_symbol(self.memory, symbol, &mut bytes);
        length.is_ok_and(|length| bytes.get(..length) == Some(text))
    }

    /// Decodes the packed scopes at a cursor's pc; returns their number. The first of `scopes` is the code's own
    /// method.
    fn decode_scopes(
        &mut self,
        cursor: Cursor,
        blob: &CodeBlob,
        code: KnownCode,
        scopes: &mut [u64],
    ) -> Result<usize, Stop> {
        let (hotspot, memory, number) = (self.hotspot, self.memory, code.number);
        let mut ranges = Ranges { known: self.cache.has_ranges(number) };
        if self.cache.copy(number).is_none() {
            let debug = hotspot.layout.nmethod.debug_info(self.memory, blob)?;
            let debug = debug.ok_or(Stop::UnknownCode(cursor.pc))?;
            if debug.is_loaded(memory) || !self.copy_debug_info(blob, code, &debug) {
                let mut bytes = Windowed::new(memory, &mut self.cache.windows, &debug);
                let at = CodeAt { hotspot, memory, buffer: &self.cache.code, cursor, blob };
                let count = at.scopes(&mut bytes, scopes, &mut ranges);
                // An nmethod that is freed loses its blocks before its identity.
                if hotspot.layout.nmethod.debug_info(self.memory, blob)? != Some(debug) {
                    return Err(Stop::UnknownCode(cursor.pc));
                }
                self.cache.set_has_ranges(number, ranges.known);
                return count;
            }
        }
        self.cache.touch_copy(number);
        let unknown = Stop::UnknownCode(cursor.pc);
        let mut bytes = self.cache.copy(number).ok_or(unknown)?;
        // Bytes that the copy lacks are bytes that the nmethod does not have.
        let at = CodeAt { hotspot, memory, buffer: &self.cache.code, cursor, blob };
        let count = at.scopes(&mut bytes, scopes, &mut ranges);
        self.cache.set_has_ranges(number, ranges.known);
        count.map_err(|stop| match stop {
            Stop::Unreadable(_) => unknown,
            stop => stop,
        })
    }

    /// Copies a compilation's debug information by two reads; returns whether it could.
    fn copy_debug_info(&mut self, blob: &CodeBlob, code: KnownCode, debug: &DebugInfo) -> bool {
        let (layout, memory, number) = (&self.hotspot.layout.nmethod, self.memory, code.number);
        let Some((pcs_and_scopes, metadata)) = self.cache.reserve_copy(number, debug) else { return false };
        let read = memory.read(debug.pcs.start, pcs_and_scopes).and_then(|()| {
            if metadata.is_empty() { Ok(()) } else { memory.read(debug.metadata.start, metadata) }
        });
        // An nmethod that is freed loses its blocks before its identity.
        let same = read.is_ok()
            && layout.debug_info(memory, blob) == Ok(Some(*debug))
            && Identity::read(layout, memory, blob.address) == Ok(code.identity);
        if !same {
            self.cache.drop_copy(number);
        }
        same
    }

    /// Returns whether the frame at a cursor is that of `Continuation.doYield`.
    pub(super) fn is_yield(&mut self, cursor: Cursor) -> bool {
        let entry = self.compiled_at(cursor, BlobKind::NativeWrapper);
        entry.is_some_and(|entry| entry.kind == CompiledKind::ContinuationYield)
    }

    /// The code at a cursor, if it is of this kind.
    pub(super) fn compiled_at(&mut self, cursor: Cursor, kind: BlobKind) -> Option<CompiledPc> {
        self.remembered(cursor).or_else(|| {
            let blob = self.blob_at(cursor.pc).ok().filter(|blob| blob.kind == kind)?;
            self.decode(cursor, &blob).ok()
        })
    }

    /// The frames that the compiled frame at a cursor stands for.
    pub(super) fn compiled_frames(&self, cursor: Cursor, entry: &CompiledPc) -> Emit {
        let place = cursor.place();
        match entry.kind {
            CompiledKind::Java | CompiledKind::JavaKeepingSize => Emit::Scopes(Scopes::of(entry, place)),
            CompiledKind::Native | CompiledKind::ContinuationYield => Emit::One(Frame::NativeMethod {
                method: Method(entry.identity.method),
                compiled: true,
                place,
            }),
            CompiledKind::ContinuationEntry => Emit::Nothing,
        }
    }

    /// Steps out of a complete compiled frame.
    pub(super) fn step_compiled(&mut self, cursor: Cursor, entry: &CompiledPc) -> Result<Step, Stop> {
        self.code = Some(Compilation { blob: entry.blob, identity: entry.identity });
        match entry.kind {
            CompiledKind::ContinuationEntry => return Err(Stop::EndOfContinuation),
            CompiledKind::ContinuationYield => {
                let caller =
                    self.caller_of_fixed_frame(cursor, u64::from(entry.frame_bytes), Doing::CallingJava);
                let next = caller.and_then(|caller| self.caller_of_yield(caller));
                return Ok(Step { emit: self.compiled_frames(cursor, entry), next });
            }
            CompiledKind::Java | CompiledKind::JavaKeepingSize | CompiledKind::Native => {}
        }
        let size = u64::from(entry.frame_bytes);
        let size = match entry.kind {
            CompiledKind::JavaKeepingSize => {
                self.kept_frame_size(size, cursor.sp).ok_or(Stop::BadFrame(cursor.pc))?
            }
            _ => size,
        };
        let plain = self.caller_of_fixed_frame(cursor, size, Doing::CallingJava);
        let next = match cursor.doing {
            Doing::CallingVm => self.caller_below_arguments(cursor).map_or(plain, Ok),
            Doing::CallingJava | Doing::Interrupted | Doing::Polling | Doing::Returning | Doing::Native => {
                plain
            }
        };
        Ok(Step { emit: self.compiled_frames(cursor, entry), next })
    }

    /// The caller of a frame that is calling VM code, with what it keeps below its frame for the call.
    fn caller_below_arguments(&self, cursor: Cursor) -> Option<Cursor> {
        let blob = self.blob_at(cursor.pc).ok()?;
        let mut bytes = [0; (CODE_BEFORE + CODE_AFTER) as usize];
        let around = self.around(cursor.pc, blob.code_begin, &blob, &mut bytes).ok()?;
        let mut bytes = [0; BODY_AHEAD];
        let ahead = self.code_ahead(cursor.pc, &blob, &mut bytes).unwrap_or_default();
        self.verified(cursor, &blob, state_at_call(around, ahead))
    }
}

impl Scopes {
    pub(super) fn of(entry: &CompiledPc, place: Place) -> Self {
        let &CompiledPc { first, count, level, is_moved, number, .. } = entry;
        Self { first, count, level: CompileLevel(level), is_moved, number, place }
    }
}

/// True if an nmethod's debug information marks ranges; `None` until that is looked up.
struct Ranges {
    known: Option<bool>,
}

/// A compilation in the cache.
#[derive(Clone, Copy)]
struct KnownCode {
    number: u32,
    identity: Identity,
}

/// The pc of a cursor in the code of a blob.
struct CodeAt<'a, M> {
    hotspot: &'a HotSpot,
    memory: &'a M,
    /// For code.
    buffer: &'a RefCell<Box<[u8; CODE_BUFFER]>>,
    cursor: Cursor,
    blob: &'a CodeBlob,
}

impl<M: Memory> CodeAt<'_, M> {
    /// Decodes the packed scopes; returns their number. The first has [`PACKED_MARK`] if they are those of a later
    /// instruction than the one that was running or calling.
    fn scopes(
        &self,
        bytes: &mut impl DebugBytes,
        scopes: &mut [u64],
        ranges: &mut Ranges,
    ) -> Result<usize, Stop> {
        let &Self { hotspot, memory, buffer, cursor, blob } = self;
        let unknown = Stop::UnknownCode(cursor.pc);
        let layout = &hotspot.layout.nmethod;
        let mut find = |matching| find_scope(layout, bytes, blob.code_begin, cursor.pc, matching);
        let mut matched = cursor.matched();
        let mut may_have_jumped = false;
        if matched == PcMatch::Interrupted {
            if let Some(own) = scopes.first_mut().filter(|_| is_in_prologue(cursor.pc, blob)) {
                let bci = layout.entry_bci(memory, blob.address).ok();
                *own = Scope { bci, ..Scope::unpack(*own) }.pack().ok_or(unknown)?;
                return Ok(1);
            }
            if find(PcMatch::Exact)?.is_some() {
                let mut code = buffer.try_borrow_mut().map_err(|_| unknown)?;
                match running(memory, blob, cursor.pc, &mut code[..]) {
                    Running::Before => matched = PcMatch::ExactOrNext,
                    Running::AtPc => {}
                    Running::PerhapsJump => may_have_jumped = true,
                }
            }
        }
        let Some(found) = find(matched)? else {
            // A call to Java always has an entry, so without one this is no return address of such a call. Elsewhere
            // the code has no debug information; its own method is certain.
            return if matched == PcMatch::Exact { Err(Stop::BadFrame(cursor.pc)) } else { Ok(1) };
        };
        // An entry behind the pc is that of a later instruction, unless it ends a range that has the pc in it.
        let mut has_ranges = || {
            *ranges
                .known
                .get_or_insert_with(|| layout.has_ranges(memory, blob.address, bytes.size(Part::Pcs)))
        };
        let is_moved = may_have_jumped || !found.is_at_pc && !has_ranges();
        let own = scopes.first().map(|&own| Scope::unpack(own).method);
        let mut count = 0;
        let root = decode(hotspot.unsigned5, bytes, found.offset, |scope| {
            let slot = scopes.get_mut(count).ok_or(ScopeError::Malformed)?;
            *slot = scope.pack().ok_or(ScopeError::Malformed)?;
            count += 1;
            Ok(())
        });
        if let Some(first) = scopes.first_mut().filter(|_| is_moved) {
            *first |= PACKED_MARK;
        }
        match root {
            Ok(root) if Some(root) == own => Ok(count),
            Ok(_) | Err(ScopeError::Malformed) => Err(unknown),
            Err(ScopeError::Unreadable(address)) => Err(Stop::Unreadable(address)),
        }
    }
}

/// True if no instruction of the method's own bytecodes can have run before the one at `pc`: the code up to there
/// checks the receiver, builds the frame, and waits at the entry barrier.
///
/// Sources: `LIR_Assembler::emit_op0` in `c1/c1_LIRAssembler.cpp` and `MachPrologNode::emit` in `x86_64.ad`, which note
/// where the frame is complete, JDK 11 to 25.
fn is_in_prologue(pc: u64, blob: &CodeBlob) -> bool {
    blob.frame_complete.is_some_and(|complete| pc <= complete)
}
