//! Compiled code at a pc: from the cache, or decoded from the nmethod and remembered.

use super::walk::{Cursor, Doing, Emit, Scopes, Step, Walk};
use crate::arch::{BODY_AHEAD, CODE_AFTER, CODE_BEFORE, state_at_call};
use crate::cache::{CompiledKind, CompiledPc};
use crate::frame::{Bci, CompileLevel, Frame, Method};
use crate::hotspot::code_blob::{BlobKind, CodeBlob};
use crate::hotspot::method::Symbol;
use crate::hotspot::nmethod::{Compilation, Identity};
use crate::hotspot::pc_desc::{PcMatch, find_scope};
use crate::hotspot::scope_desc::{Scope, ScopeError, decode};
use crate::limits::MAX_INLINE_DEPTH;
use crate::memory::Memory;
use crate::stop::Stop;

/// The class of continuations, its methods whose native wrappers enter a virtual thread and yield, and the method that
/// calls the latter (JDK 21 and later; `java.base/share/classes/jdk/internal/vm/Continuation.java`).
const CONTINUATION: &[u8] = b"jdk/internal/vm/Continuation";
const CONTINUATION_ENTRY: &[u8] = b"enterSpecial";
const CONTINUATION_YIELD: &[u8] = b"doYield";
const CONTINUATION_YIELD_CALLER: &[u8] = b"yield0";

impl<M: Memory> Walk<'_, M> {
    /// The remembered code at a cursor's pc, if it is still the same code.
    pub(super) fn remembered(&mut self, cursor: Cursor) -> Option<CompiledPc> {
        let layout = &self.hotspot.layout.nmethod;
        let memory = self.memory;
        let found = self
            .cache
            .find_pc(cursor.pc, cursor.matched(), |blob| Identity::read(layout, memory, blob).ok())?;
        self.cache.ages.allows(found.blob, found.identity).then_some(found)
    }

    /// Decodes the code of `blob` at a cursor's pc and remembers it.
    pub(super) fn decode(&mut self, cursor: Cursor, blob: &CodeBlob) -> Result<CompiledPc, Stop> {
        let layout = &self.hotspot.layout.nmethod;
        let unknown = Stop::UnknownCode(cursor.pc);
        let identity = Identity::read(layout, self.memory, blob.address)?;
        if identity.method == 0 || !identity.method.is_multiple_of(8) {
            return Err(unknown);
        }
        if !self.cache.ages.allows(blob.address, identity) {
            return Err(Stop::CodeReplaced(cursor.pc));
        }
        let mut entry = CompiledPc {
            pc: cursor.pc,
            matched: cursor.matched(),
            blob: blob.address,
            identity,
            frame_bytes: u32::try_from(blob.frame_bytes).unwrap_or(0),
            level: layout.level(self.memory, blob.address)?,
            kind: CompiledKind::Java,
            first: 0,
            count: 1,
        };
        if blob.kind == BlobKind::NativeWrapper {
            entry.kind = self.native_kind(Method(identity.method));
        } else {
            self.decode_scopes(&mut entry, blob)?;
        }
        // The nmethod may have been freed and its debug information reused while it was being read.
        if Identity::read(layout, self.memory, blob.address)? != identity {
            return Err(unknown);
        }
        self.cache.ages.record(blob.address, identity);
        self.cache.insert_pc(entry);
        Ok(entry)
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

    /// Whether `method` is the one that calls `Continuation.doYield`.
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

    fn decode_scopes(&mut self, entry: &mut CompiledPc, blob: &CodeBlob) -> Result<(), Stop> {
        let layout = &self.hotspot.layout.nmethod;
        let unknown = Stop::UnknownCode(entry.pc);
        let method = Method(entry.identity.method);
        let mut scopes = [Scope { method, bci: None::<Bci> }; MAX_INLINE_DEPTH];
        let mut count = 0;
        self.cache.pc_window.clear();
        self.cache.scope_windows.clear();
        let debug = layout.debug_info(self.memory, blob)?.ok_or(unknown)?;
        let window = &mut self.cache.pc_window;
        let offset = find_scope(layout, self.memory, window, &debug, entry.pc, entry.matched)?;
        match offset {
            Some(offset) => {
                let windows = &mut self.cache.scope_windows;
                let root = decode(self.hotspot.unsigned5, self.memory, windows, &debug, offset, |scope| {
                    let slot = scopes.get_mut(count).ok_or(ScopeError::Malformed)?;
                    *slot = scope;
                    count += 1;
                    Ok(())
                });
                match root {
                    Ok(root) if root == method => {}
                    Ok(_) | Err(ScopeError::Malformed) => return Err(unknown),
                    Err(ScopeError::Unreadable(address)) => return Err(Stop::Unreadable(address)),
                }
            }
            // A call to Java always has an entry, so this is no return address of such a call.
            None if entry.matched == PcMatch::Exact => return Err(Stop::BadFrame(entry.pc)),
            // The code has no debug information here; its own method is certain.
            None => count = 1,
        }
        entry.first = self.cache.put_scopes(scopes.get(..count).unwrap_or_default()).ok_or(unknown)?;
        entry.count = u16::try_from(count).unwrap_or(0);
        Ok(())
    }

    /// Whether the frame at a cursor is that of `Continuation.doYield`.
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
            CompiledKind::Java => Emit::Scopes(Scopes {
                first: entry.first,
                count: entry.count,
                level: CompileLevel(entry.level),
                place,
            }),
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
            CompiledKind::Java | CompiledKind::Native => {}
        }
        let plain = self.caller_of_fixed_frame(cursor, u64::from(entry.frame_bytes), Doing::CallingJava);
        let next = match cursor.doing {
            Doing::CallingVm => self.caller_below_arguments(cursor).map_or(plain, Ok),
            Doing::CallingJava
            | Doing::Interrupted
            | Doing::Polling
            | Doing::Returning
            | Doing::Native { .. } => plain,
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
