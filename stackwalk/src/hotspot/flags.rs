//! VM flags by name, in the VM's own table.
//!
//! Sources: `runtime/flags/jvmFlag.{hpp,cpp}`, JDK 11 to 25: the table ends with a row without a name; the low
//! four bits of the row's flags are the origin of the value, 0 meaning default.

use alloc::vec::Vec;

use super::HotSpot;
use super::layout::FlagLayout;
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

/// First characters of a flag's name, by which nearly every other flag is ruled out; zeros follow a shorter name.
type Beginning = [u8; 8];

/// The beginnings of all names, in the order of the table. A VM has more than a thousand flags, so they are read once.
#[derive(Debug, Default)]
pub(super) struct FlagNames(Vec<Beginning>);

impl FlagNames {
    /// Reads the table as far as it can be read.
    pub fn read<M: Memory + ?Sized>(layout: Option<FlagLayout>, memory: &M) -> Self {
        let of_row = |row: u64, layout: FlagLayout| {
            let name_address = memory.read_u64(at(row, layout.name)).ok().filter(|&address| address != 0)?;
            let mut bytes = Beginning::default();
            let length = read_c_string(memory, name_address, &mut bytes).ok()?;
            Some(beginning(bytes.get(..length)?))
        };
        let read = |layout: FlagLayout| {
            let rows = layout.rows(memory)?;
            Some(rows.map_while(|row| of_row(row, layout)).collect())
        };
        Self(layout.and_then(read).unwrap_or_default())
    }
}

/// Returns the beginning of a name.
fn beginning(name: &[u8]) -> Beginning {
    let mut bytes = Beginning::default();
    bytes.iter_mut().zip(name).for_each(|(byte, &character)| *byte = character);
    bytes
}

impl FlagLayout {
    /// Addresses of the table's rows; the last ones may have no name.
    fn rows<M: Memory + ?Sized>(self, memory: &M) -> Option<impl Iterator<Item = u64>> {
        let first = memory.read_u64(self.flags).ok()?;
        let count = memory.read_u64(self.count).ok()?.min(MAX_FLAGS);
        Some((0..count).map(move |index| first.wrapping_add(index.wrapping_mul(self.stride))))
    }
}

impl HotSpot {
    /// Finds a flag; usable as soon as the tables have been read.
    pub fn flag<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<JvmFlag> {
        let layout = self.layout.flag?;
        let wanted = beginning(name.as_bytes());
        let alike = layout.rows(memory)?.zip(&self.flag_names.0).filter(|(_, found)| **found == wanted);
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
