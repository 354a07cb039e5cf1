//! VM flags by name, in the VM's own table.
//!
//! Sources: `runtime/flags/jvmFlag.{hpp,cpp}`, JDK 11 to 25: the table ends with a row without a name; the low
//! four bits of the row's flags are the origin of the value, 0 meaning default.

use super::HotSpot;
use crate::limits::MAX_FLAGS;
use crate::memory::{Memory, at, read_c_string};

/// One VM flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JvmFlag {
    /// Address of the value: one byte for a boolean, eight for sizes and addresses.
    pub value_address: u64,
    /// Origin of the value: 0 default, 1 command line, 2 environment, 5 ergonomic.
    pub origin: u32,
}

impl JvmFlag {
    /// Returns whether the value is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.origin == 0
    }
}

/// Bits of the flags column that hold the origin.
const ORIGIN_MASK: u32 = 0xf;

/// Longest flag name that is compared; the longest of JDK 25 has 46 characters.
const NAME_BYTES: usize = 64;

impl HotSpot {
    /// Finds a flag; usable as soon as the tables have been read.
    pub fn flag<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<JvmFlag> {
        let layout = self.layout.flag?;
        let first = memory.read_u64(layout.flags).ok()?;
        let count = memory.read_u64(layout.count).ok()?.min(MAX_FLAGS);
        for index in 0..count {
            let row = first.wrapping_add(index.wrapping_mul(layout.stride));
            let field_at = |offset: u32| at(row, offset);
            let name_address = memory.read_u64(field_at(layout.name)).ok()?;
            if name_address == 0 {
                return None;
            }
            let mut bytes = [0; NAME_BYTES];
            let length = read_c_string(memory, name_address, &mut bytes).ok()?;
            if bytes.get(..length) == Some(name.as_bytes()) {
                return Some(JvmFlag {
                    value_address: memory.read_u64(field_at(layout.address)).ok()?,
                    origin: memory.read_u32(field_at(layout.bits)).ok()? & ORIGIN_MASK,
                });
            }
        }
        None
    }

    /// Value of a boolean flag.
    pub fn bool_flag<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<bool> {
        let flag = self.flag(memory, name)?;
        memory.read_u8(flag.value_address).ok().map(|value| value != 0)
    }
}
