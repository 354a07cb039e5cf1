//! Method and bytecode index of interpreter frames.
//!
//! An interpreter frame holds its `Method*` and, while it calls, its bytecode pointer in fixed slots below fp;
//! while bytecodes run the pointer lives in a register and the slot is old.
//! A pointer into the method's own bytecodes proves both, so the pair can be cached by `Method*`: a reused address
//! leads to other bytecodes.
//! Sources: `runtime/frame.cpp`, `cpu/x86/frame_x86.hpp`, `oops/constMethod.hpp`, JDK 11 to 25.

use super::layout::MethodLayout;
use crate::frame::{Bci, Method};
use crate::memory::{Memory, at, field};

/// `JVM_ACC_NATIVE` of the class file format (JVMS table 4.6-A).
const ACC_NATIVE: u64 = 0x0100;

/// Bytes of a `Method` that hold the fields used here, in every JDK.
const METHOD_BYTES: usize = 64;

/// Bounds of a method's bytecodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bytecodes {
    pub(crate) method: u64,
    pub(crate) start: u64,
    pub(crate) size: u16,
    pub(crate) native: bool,
}

/// [`Bytecodes`] in 16 bytes: in the first word the method, an eighth of its address in 45 bits, above it the size and
/// whether the method is native.
pub(crate) type PackedBytecodes = [u64; 2];

const SIZE_SHIFT: u32 = 45;
const NATIVE_SHIFT: u32 = 61;

impl Bytecodes {
    /// Packs them; `None` if the address of the method is none of user space.
    pub(crate) fn pack(self) -> Option<PackedBytecodes> {
        let Self { method, start, size, native } = self;
        let fits = method.is_multiple_of(8) && method >> 3 >> SIZE_SHIFT == 0;
        let word = (method >> 3) | u64::from(size) << SIZE_SHIFT | u64::from(native) << NATIVE_SHIFT;
        fits.then_some([word, start])
    }

    /// Unpacks them; zeros give the method 0, which is none.
    pub(crate) fn unpack([word, start]: PackedBytecodes) -> Self {
        Self {
            method: (word & ((1 << SIZE_SHIFT) - 1)) << 3,
            start,
            size: (word >> SIZE_SHIFT) as u16,
            native: word >> NATIVE_SHIFT != 0,
        }
    }

    /// Reads them; `None` if `method` cannot be a method.
    pub(crate) fn read<M: Memory + ?Sized>(
        layout: &MethodLayout,
        memory: &M,
        method: Method,
    ) -> Option<Self> {
        if method.0 == 0 || !method.0.is_multiple_of(8) {
            return None;
        }
        let mut block = [0; METHOD_BYTES];
        memory.read(method.0, &mut block).ok()?;
        let const_method = u64::from_ne_bytes(field(&block, layout.const_method)?);
        if const_method == 0 || const_method % 8 != 0 {
            return None;
        }
        let flags = match layout.access_flags.of_block(&block) {
            Some(flags) => flags,
            None => layout.access_flags.read(memory, method.0).ok()?,
        };
        let size = memory.read_u16(at(const_method, layout.code_size)).ok()?;
        Some(Self {
            method: method.0,
            start: const_method.wrapping_add(layout.const_method_header),
            size,
            native: flags & ACC_NATIVE != 0,
        })
    }

    /// Index of the bytecode at `bcp`, if it is one of this method's.
    pub(crate) fn bci(&self, bcp: u64) -> Option<Bci> {
        let offset = bcp.checked_sub(self.start)?;
        if offset >= u64::from(self.size) {
            return None;
        }
        i32::try_from(offset).ok().map(Bci)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytecodes_are_the_same() {
        for method in [8, 0x7fff_ffff_fff8, (1 << 48) - 8] {
            for (size, native) in [(0, true), (1, false), (u16::MAX, false), (u16::MAX, true)] {
                let bytecodes = Bytecodes { method, start: 0x7f00_1234_5678, size, native };
                assert_eq!(bytecodes.pack().map(Bytecodes::unpack), Some(bytecodes));
            }
        }
        let bytecodes = Bytecodes { method: 1 << 48, start: 0, size: 0, native: false };
        assert_eq!(bytecodes.pack(), None);
    }
}
