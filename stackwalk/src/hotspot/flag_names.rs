//! The names of the VM's flags, as far as they are needed to find a flag.
//!
//! Source: `runtime/flags/jvmFlag.{hpp,cpp}`, JDK 11 to 25: the table is complete once libjvm is loaded.

use alloc::vec::Vec;

use super::layout::FlagLayout;
use crate::limits::MAX_FLAGS;
use crate::memory::{Memory, at, read_c_string};

/// First characters of a flag's name, by which nearly every other flag is ruled out; zeros follow a shorter name.
pub(super) type Beginning = [u8; 8];

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

    /// The beginnings, in the order of the table.
    pub fn beginnings(&self) -> &[Beginning] {
        &self.0
    }
}

pub(super) fn beginning(name: &[u8]) -> Beginning {
    let mut bytes = Beginning::default();
    bytes.iter_mut().zip(name).for_each(|(byte, &character)| *byte = character);
    bytes
}

impl FlagLayout {
    /// Addresses of the table's rows; the last ones may have no name.
    pub fn rows<M: Memory + ?Sized>(self, memory: &M) -> Option<impl Iterator<Item = u64>> {
        let first = memory.read_u64(self.flags).ok()?;
        let count = memory.read_u64(self.count).ok()?.min(MAX_FLAGS);
        Some((0..count).map(move |index| first.wrapping_add(index.wrapping_mul(self.stride))))
    }
}
