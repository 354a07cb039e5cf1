//! Where the tables of ZGC keep the colours of references.
//!
//! Each table is one record of pointers to the VM's variables. A VM has the tables of all collectors that it was built
//! with, used or not.
//! Sources: `gc/z/vmStructs_z.hpp`, JDK 21 and 25; `gc/x/vmStructs_x.hpp`, JDK 21.

use super::rows::Tables;
use super::vm_structs::{offset, variable};

/// Pointers of both tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColourLayout {
    /// Address of the pointer to the record.
    pub(crate) instance: u64,
    pub(crate) good_mask: u32,
    pub(crate) bad_mask: u32,
    pub(crate) offset_mask: u32,
}

/// ZGC with generations: colours lie below the address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShiftedColourLayout {
    pub(crate) colours: ColourLayout,
    pub(crate) shift: u32,
    /// Masks of which each thread has a copy, in the order in which they stand there.
    pub(crate) thread_masks: [u32; 5],
}

/// ZGC without generations: colours are part of the address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressColourLayout {
    pub(crate) colours: ColourLayout,
    pub(crate) metadata_mask: u32,
}

impl ShiftedColourLayout {
    pub(super) fn resolve(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        let (good_mask, bad_mask) = (offset(fields.colours_load_good)?, offset(fields.colours_load_bad)?);
        let mark_bad = offset(fields.colours_mark_bad)?;
        let (store_good, store_bad) = (offset(fields.colours_store_good)?, offset(fields.colours_store_bad)?);
        let instance = variable(fields.colours)?;
        let offset_mask = offset(fields.colours_offset_mask)?;
        Some(Self {
            colours: ColourLayout { instance, good_mask, bad_mask, offset_mask },
            shift: offset(fields.colours_shift)?,
            thread_masks: [good_mask, bad_mask, mark_bad, store_good, store_bad],
        })
    }
}

impl AddressColourLayout {
    pub(super) fn resolve(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        let colours = ColourLayout {
            instance: variable(fields.address_colours)?,
            good_mask: offset(fields.address_colours_good)?,
            bad_mask: offset(fields.address_colours_bad)?,
            offset_mask: offset(fields.address_colours_offset_mask)?,
        };
        Some(Self { colours, metadata_mask: offset(fields.address_colours_metadata)? })
    }
}
