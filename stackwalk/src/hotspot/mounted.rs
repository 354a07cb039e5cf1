//! The virtual thread that a carrier runs, from the carrier's `JavaThread`.
//!
//! Problem: the number of a thread can be read from its thread object only while no collector may move it, which
//! outside of Java code and under some collectors is not always known.
//! Approach: the VM keeps the number in the `JavaThread` for JFR, whether JFR runs or not: each mount and unmount
//! stores it (`Thread.setCurrentThread`, interpreted and compiled alike). The VM's table of fields for its Java-based
//! compiler has the offset. That table has no exported name, so its rows are searched for in libjvm's data.
//! A VM built without that compiler has no such rows; the offsets are unknown then.
//! Sources: `jvmci/vmStructs_jvmci.cpp`, `jfr/support/jfrThreadLocal.hpp`, `opto/library_call.cpp`
//! (`extend_setCurrentThread`), JDK 21 and 25.

use core::ops::{ControlFlow, Range};

use super::vm_structs::{VmSymbols, scan_fields};
use crate::memory::Memory;

/// Byte offsets into a `JavaThread`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MountedOffsets {
    /// 1 while a virtual thread is mounted, 8 bits.
    pub is_mounted: u32,
    /// Its `tid`, 64 bits; after an unmount, that of the last virtual thread.
    pub id: u32,
}

impl MountedOffsets {
    /// Searches for the rows in `data`, the variables of libjvm; the strings of libjvm lie in `names`.
    ///
    /// `lookup` gives the address of a symbol exported by libjvm.
    pub fn find<M: Memory + ?Sized>(
        lookup: impl FnMut(&str) -> Option<u64>,
        memory: &M,
        data: Range<u64>,
        names: &Range<u64>,
    ) -> Option<Self> {
        let symbols = VmSymbols::lookup(lookup, memory).ok()?;
        Self::scan(&symbols, memory, data, names)
    }

    fn scan<M: Memory + ?Sized>(
        symbols: &VmSymbols,
        memory: &M,
        data: Range<u64>,
        names: &Range<u64>,
    ) -> Option<Self> {
        let (mut local, mut is_mounted, mut id) = (None, None, None);
        scan_fields(symbols, memory, data, names, |class, field, offset| {
            match (class, field) {
                ("Thread", "_jfr_thread_local") => local = Some(offset),
                ("JfrThreadLocal", "_vthread") => is_mounted = Some(offset),
                ("JfrThreadLocal", "_vthread_id") => id = Some(offset),
                _ => {}
            }
            let is_complete = local.is_some() && is_mounted.is_some() && id.is_some();
            if is_complete { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let local = local?;
        Some(Self { is_mounted: is_mounted?.checked_add(local)?, id: id?.checked_add(local)? })
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::memory::StackCopy;

    const BASE: u64 = 0x7000_0000;
    const ROWS: usize = 512;

    /// Columns as in JDK 21 and 25; the other symbols are not used.
    fn symbols() -> VmSymbols {
        let zero = StackCopy::new(0, &[0; 8]);
        let mut symbols = VmSymbols::lookup(|_| Some(0), &zero).expect("all zero");
        (symbols.struct_field_name, symbols.struct_type_string) = (8, 16);
        (symbols.struct_is_static, symbols.struct_offset, symbols.struct_address) = (24, 32, 40);
        symbols.struct_stride = 48;
        symbols
    }

    /// A library whose names come first, and whose rows begin at [`ROWS`], not a multiple of their length.
    fn library(rows: &[(&str, &str, u64)]) -> Vec<u8> {
        let mut names = Vec::new();
        let mut table = Vec::new();
        let mut name = |text: &str| {
            let at = BASE + names.len() as u64;
            names.extend_from_slice(text.as_bytes());
            names.push(0);
            at
        };
        for &(class, field, offset) in rows {
            for word in [name(class), name(field), 0, 0, offset, 0] {
                table.extend_from_slice(&word.to_le_bytes());
            }
        }
        names.resize(ROWS, 0);
        [names, table, vec![0; 100]].concat()
    }

    fn find(rows: &[(&str, &str, u64)]) -> Option<MountedOffsets> {
        let bytes = library(rows);
        let memory = StackCopy::new(BASE, &bytes);
        let end = BASE + bytes.len() as u64;
        MountedOffsets::scan(&symbols(), &memory, BASE + ROWS as u64 - 8..end, &(BASE..end))
    }

    #[test]
    fn rows_are_found_without_a_table() {
        let rows = [
            ("JavaThread", "_vthread", 900),
            ("JfrThreadLocal", "_vthread_id", 16),
            ("JfrThreadLocal", "_vthread", 70),
            ("Thread", "_jfr_thread_local", 200),
        ];
        assert_eq!(find(&rows), Some(MountedOffsets { is_mounted: 270, id: 216 }));
        assert_eq!(find(&rows[..3]), None, "one of them is missing");
    }
}
