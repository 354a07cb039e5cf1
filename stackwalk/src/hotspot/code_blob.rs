//! Header of a `CodeBlob`: its kind, the bounds of its instructions, the size of its frame.
//!
//! JDK 11 to 21 tell kinds apart by C++ vtable only, so the blob's name decides; from JDK 24 on a `_kind` byte
//! exists, but still one kind for all buffers (interpreter, stubs) and one for both sorts of nmethod.
//! The names are literals in the VM's sources, not user data.
//! Sources: `code/codeBlob.{hpp,cpp}`, `code/nmethod.cpp`, JDK 11 to 25.

use super::layout::{BlobLayout, CodeBounds};
use crate::memory::{Memory, Unreadable, at, read_c_string};
use crate::stop::Stop;

/// Kind of a blob, as far as it concerns its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlobKind {
    /// Compiled Java method.
    Nmethod,
    /// Compiled wrapper of a native method, also method handle linkers and continuation entries.
    NativeWrapper,
    /// The one buffer with all interpreter code.
    Interpreter,
    /// Transitions between interpreted and compiled calls: no frame.
    Adapter,
    /// Dispatch stubs and other code without a frame of its own.
    Leaf,
    /// Hand-written routines of many shapes in one buffer.
    StubRoutines,
    /// Hand-written routines that freeze and thaw virtual threads (JDK 21 and later).
    ContinuationStubs,
    /// VM call with a fixed frame.
    RuntimeStub,
    /// Turns a compiled frame into interpreter frames.
    Deoptimization,
    /// Reached from a safepoint poll; its return address may be an instruction that did not call.
    Safepoint,
    /// Looks up the handler of an exception that compiled code threw, and jumps there.
    Exception,
    /// Native code calling Java without the call stub.
    Upcall,
}

/// The part of a blob's header that the walker uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeBlob {
    pub(crate) address: u64,
    pub(crate) kind: BlobKind,
    pub(crate) code_begin: u64,
    pub(crate) code_end: u64,
    /// Bytes of a complete frame including the return address; 0 if there is none of fixed size.
    pub(crate) frame_bytes: u64,
    /// First instruction at which the frame is complete; `None` if the header has none.
    pub(crate) frame_complete: Option<u64>,
}

/// Longest blob name that is compared.
const NAME_BYTES: usize = 48;

/// Largest frame accepted: C1 and C2 refuse methods with frames above 64 KiB of locals and spills.
const MAX_FRAME_WORDS: i32 = 1 << 16;

impl CodeBlob {
    /// Reads the header at `address`; `pc` must lie in its instructions.
    pub(crate) fn read<M: Memory + ?Sized>(
        layout: &BlobLayout,
        memory: &M,
        address: u64,
        pc: u64,
    ) -> Result<Self, Stop> {
        let unknown = Stop::UnknownCode(pc);
        let field_at = |offset: u32| at(address, offset);
        let size = u64::from(memory.read_u32(field_at(layout.size))?);
        let (code_begin, code_end) = match layout.bounds {
            CodeBounds::Addresses { begin, end } => {
                (memory.read_u64(field_at(begin))?, memory.read_u64(field_at(end))?)
            }
            CodeBounds::Offsets { begin, end } => (
                address.wrapping_add(u64::from(memory.read_u32(field_at(begin))?)),
                address.wrapping_add(u64::from(memory.read_u32(field_at(end))?)),
            ),
        };
        let frame_words = memory.read_i32(field_at(layout.frame_size))?;
        let inside = code_begin >= address && code_end <= address.wrapping_add(size);
        if !inside || pc < code_begin || pc >= code_end || frame_words >= MAX_FRAME_WORDS {
            return Err(unknown);
        }
        let complete = layout.frame_complete.read_signed(memory, address)?;
        Ok(Self {
            address,
            kind: kind(layout, memory, address)?.ok_or(unknown)?,
            code_begin,
            code_end,
            frame_bytes: u64::try_from(frame_words).unwrap_or(0) * 8,
            frame_complete: u64::try_from(complete).ok().map(|offset| code_begin.wrapping_add(offset)),
        })
    }
}

fn kind<M: Memory + ?Sized>(
    layout: &BlobLayout,
    memory: &M,
    address: u64,
) -> Result<Option<BlobKind>, Unreadable> {
    if let Some(offset) = layout.kind {
        let value = Some(i32::from(memory.read_u8(at(address, offset))?));
        let kinds = &layout.kinds;
        let known = [
            (kinds.adapter, BlobKind::Adapter),
            (kinds.method_handle_adapter, BlobKind::Leaf),
            (kinds.vtable, BlobKind::Leaf),
            (kinds.runtime_stub, BlobKind::RuntimeStub),
            (kinds.exception, BlobKind::Exception),
            (kinds.deoptimization, BlobKind::Deoptimization),
            (kinds.uncommon_trap, BlobKind::Deoptimization),
            (kinds.safepoint, BlobKind::Safepoint),
            (kinds.upcall, BlobKind::Upcall),
        ];
        if let Some((_, kind)) = known.iter().find(|(number, _)| *number == value) {
            return Ok(Some(*kind));
        }
    }
    let name = memory.read_u64(at(address, layout.name))?;
    let mut bytes = [0; NAME_BYTES];
    let length = read_c_string(memory, name, &mut bytes)?;
    Ok(kind_of_name(bytes.get(..length).unwrap_or_default()))
}

fn kind_of_name(name: &[u8]) -> Option<BlobKind> {
    Some(match name {
        b"nmethod" => BlobKind::Nmethod,
        b"native nmethod" => BlobKind::NativeWrapper,
        b"Interpreter" => BlobKind::Interpreter,
        b"I2C/C2I adapters" => BlobKind::Adapter,
        b"MethodHandles adapters" | b"vtable chunks" | b"InlineCacheBuffer" => BlobKind::Leaf,
        b"DeoptimizationBlob" | b"UncommonTrapBlob" => BlobKind::Deoptimization,
        b"ExceptionBlob" => BlobKind::Exception,
        b"SafepointBlob" => BlobKind::Safepoint,
        name if is_continuation_stubs(name) => BlobKind::ContinuationStubs,
        name if name.starts_with(b"StubRoutines") => BlobKind::StubRoutines,
        name if name.starts_with(b"optimized_entry") || name.starts_with(b"upcall") => BlobKind::Upcall,
        name if name.iter().all(|byte| matches!(byte, b' '..=b'~')) && !name.is_empty() => {
            BlobKind::RuntimeStub
        }
        _ => return None,
    })
}

/// Returns whether a blob's name is that of the continuation stubs; JDK 21 writes a space that JDK 25 leaves out.
pub(crate) fn is_continuation_stubs(name: &[u8]) -> bool {
    name.starts_with(b"StubRoutines (cont")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_kinds() {
        assert_eq!(kind_of_name(b"nmethod"), Some(BlobKind::Nmethod));
        assert_eq!(kind_of_name(b"StubRoutines (2)"), Some(BlobKind::StubRoutines));
        assert_eq!(kind_of_name(b"StubRoutines (continuationstubs)"), Some(BlobKind::ContinuationStubs));
        assert_eq!(kind_of_name(b"wrong_method_stub"), Some(BlobKind::RuntimeStub));
        assert_eq!(kind_of_name(b"\x01\x02"), None);
        assert_eq!(kind_of_name(b""), None);
    }
}
