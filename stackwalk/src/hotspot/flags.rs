//! VM flags by name, in the VM's own table.
//!
//! Sources: `runtime/flags/jvmFlag.{hpp,cpp}`, JDK 11 to 25: the table ends with a row without a name; the low
//! four bits of the row's flags are the origin of the value, 0 meaning default.

use super::HotSpot;
use super::flag_names::beginning;
use crate::memory::{Memory, at, read_c_string};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JvmFlag {
    /// Address of the value: one byte for a boolean, eight for sizes and addresses.
    pub value_address: u64,
    /// Origin of the value: 0 default, 1 command line, 2 environment, 5 ergonomic.
    pub origin: u32,
}

impl JvmFlag {
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
        let wanted = beginning(name.as_bytes());
        let alike =
            layout.rows(memory)?.zip(self.flag_names.beginnings()).filter(|(_, found)| **found == wanted);
        let has_name = |row: u64| {
            let mut bytes = [0; NAME_BYTES];
            let length =
                read_c_string(memory, memory.read_u64(at(row, layout.name)).ok()?, &mut bytes).ok()?;
            (bytes.get(..length) == Some(name.as_bytes())).then_some(row)
        };
        let row = alike.map(|(row, _)| row).find_map(has_name)?;
        Some(JvmFlag {
            value_address: memory.read_u64(at(row, layout.address)).ok()?,
            origin: memory.read_u32(at(row, layout.bits)).ok()? & ORIGIN_MASK,
        })
    }

    /// Value of a boolean flag.
    pub fn bool_flag<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<bool> {
        let flag = self.flag(memory, name)?;
        memory.read_u8(flag.value_address).ok().map(|value| value != 0)
    }
}
