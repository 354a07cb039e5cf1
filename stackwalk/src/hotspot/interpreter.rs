//! Method and bytecode index of interpreter frames.
//!
//! An interpreter frame holds its `Method*` and, while it calls, its bytecode pointer in fixed slots below fp;
//! while bytecodes run the pointer lives in a register and the slot is old.
//! A pointer into the method's own bytecodes proves both, so the pair can be cached by `Method*`: a reused address leads to
//! other bytecodes.
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

impl Bytecodes {
    pub(crate) const NONE: Self = Self { method: 0, start: 0, size: 0, native: false };

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
        let flags = layout.access_flags.read(memory, method.0).ok()?;
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
