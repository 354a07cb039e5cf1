//! Header of a `CodeBlob`: its kind, the bounds of its instructions, the size of its frame.
//!
//! JDK 11 to 21 distinguish kinds by C++ vtable only, so the blob's name decides; from JDK 24 on a `_kind` byte exists,
//! but still one kind for all buffers (interpreter, stubs) and one for both sorts of nmethod. A buffer with a name that
//! is not known holds routines; those among which is the return barrier are those of continuations. The names are
//! literals in the VM's sources, not user data.
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
    /// Moves the fields of a value object between registers and memory (JDK 28 and later): no frame.
    ValueFields,
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

/// Buffer with code that moves the arguments of interpreted calls to where native methods expect them
/// (`SignatureHandlerLibrary::set_handler_blob` in `interpreter/interpreterRuntime.cpp`, JDK 11 to 25).
const SIGNATURE_HANDLERS: &[u8] = b"native signature handlers";

/// Longest blob name that is compared.
const NAME_BYTES: usize = 48;

/// Largest frame accepted: C1 and C2 refuse methods with frames above 64 KiB of locals and spills.
const MAX_FRAME_WORDS: i32 = 1 << 16;

impl CodeBlob {
    /// Reads the header at `address`; `pc` must lie in its instructions. Routines among which is the return `barrier`
    /// are those of continuations.
    pub(crate) fn read<M: Memory + ?Sized>(
        layout: &BlobLayout,
        memory: &M,
        barrier: Option<u64>,
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
        let kind = kind(layout, memory, address)?.ok_or(unknown)?;
        let has_barrier = barrier.is_some_and(|barrier| (code_begin..code_end).contains(&barrier));
        Ok(Self {
            address,
            kind: match kind {
                BlobKind::StubRoutines if has_barrier => BlobKind::ContinuationStubs,
                kind => kind,
            },
            code_begin,
            code_end,
            frame_bytes: u64::try_from(frame_words).unwrap_or(0) * 8,
            frame_complete: u64::try_from(complete).ok().map(|offset| code_begin.wrapping_add(offset)),
        })
    }
}

/// Returns whether the blob at `address` may be one of routines.
pub(crate) fn may_hold_routines<M: Memory + ?Sized>(layout: &BlobLayout, memory: &M, address: u64) -> bool {
    matches!(kind(layout, memory, address), Ok(Some(BlobKind::StubRoutines)))
}

fn kind<M: Memory + ?Sized>(
    layout: &BlobLayout,
    memory: &M,
    address: u64,
) -> Result<Option<BlobKind>, Unreadable> {
    let mut is_buffer = false;
    if let Some(offset) = layout.kind {
        let value = Some(i32::from(memory.read_u8(at(address, offset))?));
        is_buffer = layout.kinds.buffer == value;
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
    let name = bytes.get(..length).unwrap_or_default();
    Ok(match kind_of_name(name) {
        // Not one of the known ones: what else lies in a buffer are routines, whatever the buffer is called. The
        // interpreter calls handlers of signatures through a register, so no call leads to them.
        Some(BlobKind::RuntimeStub) if is_buffer && !name.starts_with(SIGNATURE_HANDLERS) => {
            Some(BlobKind::StubRoutines)
        }
        found => found,
    })
}

fn kind_of_name(name: &[u8]) -> Option<BlobKind> {
    Some(match name {
        b"nmethod" => BlobKind::Nmethod,
        b"native nmethod" => BlobKind::NativeWrapper,
        b"Interpreter" => BlobKind::Interpreter,
        b"I2C/C2I adapters" => BlobKind::Adapter,
        b"MethodHandles adapters" | b"vtable chunks" | b"InlineCacheBuffer" => BlobKind::Leaf,
        b"buffered value type" => BlobKind::ValueFields,
        b"DeoptimizationBlob" | b"UncommonTrapBlob" => BlobKind::Deoptimization,
        b"ExceptionBlob" => BlobKind::Exception,
        b"SafepointBlob" => BlobKind::Safepoint,
        name if name.starts_with(b"StubRoutines") => BlobKind::StubRoutines,
        name if name.starts_with(b"optimized_entry") || name.starts_with(b"upcall") => BlobKind::Upcall,
        name if name.iter().all(|byte| matches!(byte, b' '..=b'~')) && !name.is_empty() => {
            BlobKind::RuntimeStub
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotspot::offsets::SizedField;
    use crate::hotspot::rows::BlobKindValues;
    use crate::memory::StackCopy;

    #[test]
    fn names_decide_kinds() {
        assert_eq!(kind_of_name(b"nmethod"), Some(BlobKind::Nmethod));
        assert_eq!(kind_of_name(b"StubRoutines (2)"), Some(BlobKind::StubRoutines));
        assert_eq!(kind_of_name(b"StubRoutines (continuationstubs)"), Some(BlobKind::StubRoutines));
        assert_eq!(kind_of_name(b"wrong_method_stub"), Some(BlobKind::RuntimeStub));
        assert_eq!(kind_of_name(b"\x01\x02"), None);
        assert_eq!(kind_of_name(b""), None);
    }

    /// A blob of a VM with `_kind`, at `BASE`, whose name and kind are given.
    fn blob(name: &[u8], kind: u8, barrier: Option<u64>) -> Option<BlobKind> {
        const BASE: u64 = 0x1000;
        const NAME: usize = 64;
        let layout = BlobLayout {
            name: 0,
            size: 8,
            kind: Some(12),
            kinds: BlobKindValues { buffer: Some(3), runtime_stub: Some(7), ..BlobKindValues::default() },
            frame_complete: SizedField { offset: 16, width: 2 },
            frame_size: 20,
            bounds: CodeBounds::Offsets { begin: 24, end: 28 },
        };
        let mut bytes = [0; 256];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &(BASE + NAME as u64).to_ne_bytes());
        put(8, &256_u32.to_ne_bytes());
        put(12, &[kind]);
        put(24, &128_u32.to_ne_bytes());
        put(28, &256_u32.to_ne_bytes());
        put(NAME, name);
        let read = CodeBlob::read(&layout, &StackCopy::new(BASE, &bytes), barrier, BASE, BASE + 200);
        read.ok().map(|blob| blob.kind)
    }

    #[test]
    fn a_buffer_holds_routines_whatever_its_name() {
        assert_eq!(blob(b"final_blob (stub gen)\0", 3, None), Some(BlobKind::StubRoutines));
        assert_eq!(blob(b"final_blob (stub gen)\0", 7, None), Some(BlobKind::RuntimeStub));
        assert_eq!(blob(b"Interpreter\0", 3, None), Some(BlobKind::Interpreter));
        assert_eq!(blob(b"native signature handlers\0", 3, None), Some(BlobKind::RuntimeStub));
        assert_eq!(blob(b"\x01\0", 3, None), None);
    }

    #[test]
    fn routines_with_the_return_barrier_are_those_of_continuations() {
        for name in [&b"StubRoutines (continuationstubs)\0"[..], b"continuation_blob (stub gen)\0"] {
            assert_eq!(blob(name, 3, Some(0x1090)), Some(BlobKind::ContinuationStubs));
            assert_eq!(blob(name, 3, Some(0x2000)), Some(BlobKind::StubRoutines));
        }
        assert_eq!(blob(b"nmethod\0", 1, Some(0x1090)), Some(BlobKind::Nmethod));
    }
}
