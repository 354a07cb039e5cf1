//! The heap of each collector: the account of its committed memory, and the colours of references.
//!
//! A VM has the rows of all collectors that it was built with, used or not.
//! Sources: `gc/{serial,parallel,g1,shenandoah,z}/vmStructs_*.hpp`, JDK 21 to 27; `gc/x/vmStructs_x.hpp`, JDK 21.

use core::convert::identity;

use super::layout_error::LayoutError;
use super::offsets::{layouts, need};
use super::rows::{FieldTable, Tables};
use super::vm_structs::{FieldRow, offset, variable};

layouts! { |tables|
    /// The accounts of all collectors.
    HeapLayout {
        serial: made(Option<SerialLayout>, SerialLayout::resolve(tables).ok()),
        parallel: made(Option<ParallelLayout>, ParallelLayout::resolve(tables).ok()),
        g1: made(Option<G1Layout>, G1Layout::resolve(tables).ok()),
        shenandoah: made(Option<ShenandoahLayout>, ShenandoahLayout::resolve(tables).ok()),
        /// ZGC with generations.
        z: made(Option<PageLayout>, PageLayout::resolve(tables).ok()),
        /// ZGC without generations, up to JDK 23.
        x: made(Option<PageLayout>, PageLayout::without_generations(tables).ok()),
    }

    /// Two generations, each with a `VirtualSpace`.
    SerialLayout {
        /// Fields of the heap that point to the generations.
        young: offset(serial_young),
        old: offset(serial_old),
        /// The `VirtualSpace` in a generation.
        space: offset(serial_space),
        /// First byte of the committed part, in a `VirtualSpace`.
        low: offset(space_low),
        /// End of the committed part.
        high: offset(space_high),
    }

    /// Two generations, each with a pointer to a `PSVirtualSpace`; JDK 28 has another layout.
    ParallelLayout {
        /// Pointers to the generations: variables up to JDK 26, fields of the heap from 27 on.
        young: made(FieldRow, need!(identity tables.parallel_young)),
        old: made(FieldRow, need!(identity tables.parallel_old)),
        /// The pointer in each generation.
        young_space: offset(parallel_young_space),
        old_space: offset(parallel_old_space),
        /// First byte of the committed part, in a `PSVirtualSpace`.
        low: offset(parallel_low),
        /// End of the committed part.
        high: offset(parallel_high),
    }

    /// A table of pointers to regions.
    G1Layout {
        /// The table, in the heap.
        table: nested(g1_regions g1_table),
        /// Address of the first entry, in the table.
        base: offset(g1_table_base),
        /// Number of entries, 64 bits.
        length: offset(g1_table_length),
        /// log2 of the bytes of a region, 32 bits.
        shift: offset(g1_table_shift),
        /// First byte of a region, in the region.
        bottom: offset(g1_region_bottom),
        /// Its type, 32 bits.
        state: nested(g1_region_type g1_type_tag),
    }

    /// An array of pointers to regions.
    ShenandoahLayout {
        /// Address of the first entry, in the heap.
        base: offset(shenandoah_regions),
        /// Number of entries, 64 bits, in the heap.
        length: offset(shenandoah_region_count),
        /// Variable: log2 of the bytes of a region, 64 bits.
        shift: variable(shenandoah_region_shift),
        /// First byte of a region, in the region.
        bottom: offset(shenandoah_region_bottom),
        /// Its state, 32 bits.
        state: offset(shenandoah_region_state),
    }

    /// ZGC's table of pointers to pages, one for each granule of the heap.
    PageLayout {
        /// Address of the first entry, in the heap.
        base: nested(z_heap z_page_table z_table_map z_map_entries),
        /// log2 of the bytes of a granule.
        shift: made(u32, tables.shifts.z_granule.ok_or(LayoutError::MissingConstant("ZGranuleSizeShift"))?),
    }

    /// The same table without generations, whose fields have other names.
    SinglePageLayout {
        base: nested(x_heap x_page_table x_table_map x_map_entries),
        shift: made(u32, tables.shifts.x_granule.ok_or(LayoutError::MissingConstant("XGranuleSizeShift"))?),
    }

    /// Pointers to the VM's variables, in one record for each kind of ZGC.
    ColourLayout {
        /// Address of the pointer to the record.
        instance: variable(colours),
        good_mask: offset(colours_load_good),
        bad_mask: offset(colours_load_bad),
        offset_mask: offset(colours_offset_mask),
    }

    /// ZGC with generations: colours lie below the address.
    ShiftedColourLayout {
        colours: made(ColourLayout, ColourLayout::resolve(tables)?),
        shift: offset(colours_shift),
        /// Masks of which each thread has a copy, in the order of the copies.
        thread_masks: made([u32; 5], [
            need!(offset tables.colours_load_good),
            need!(offset tables.colours_load_bad),
            need!(offset tables.colours_mark_bad),
            need!(offset tables.colours_store_good),
            need!(offset tables.colours_store_bad),
        ]),
    }

    /// ZGC without generations, up to JDK 23: colours are part of the address.
    AddressColourLayout {
        colours: made(ColourLayout, ColourLayout {
            instance: need!(variable tables.address_colours),
            good_mask: need!(offset tables.address_colours_good),
            bad_mask: need!(offset tables.address_colours_bad),
            offset_mask: need!(offset tables.address_colours_offset_mask),
        }),
        metadata_mask: offset(address_colours_metadata),
    }
}

impl PageLayout {
    fn without_generations(tables: &Tables) -> Result<Self, LayoutError> {
        let pages = SinglePageLayout::resolve(tables)?;
        Ok(Self { base: pages.base, shift: pages.shift })
    }
}
