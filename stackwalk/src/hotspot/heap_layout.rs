//! Where each collector keeps account of the memory that it has committed.
//!
//! A VM has the rows of all collectors that it was built with, used or not.
//! Sources: `gc/{serial,parallel,g1,shenandoah,z}/vmStructs_*.hpp`, JDK 21 to 27; `gc/x/vmStructs_x.hpp`, JDK 21.

use super::rows::Tables;
use super::vm_structs::{FieldRow, offset, variable};

/// The rows of all collectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeapLayout {
    pub(crate) serial: Option<SerialLayout>,
    pub(crate) parallel: Option<ParallelLayout>,
    pub(crate) g1: Option<G1Layout>,
    pub(crate) shenandoah: Option<ShenandoahLayout>,
    /// ZGC with generations.
    pub(crate) z: Option<PageLayout>,
    /// ZGC without generations, up to JDK 23.
    pub(crate) x: Option<PageLayout>,
}

/// Two generations, each with a `VirtualSpace`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SerialLayout {
    /// Fields of the heap that point to the generations.
    pub(crate) generations: [u32; 2],
    /// The `VirtualSpace` in a generation.
    pub(crate) space: u32,
    /// First byte of the committed part, in a `VirtualSpace`.
    pub(crate) low: u32,
    /// End of the committed part.
    pub(crate) high: u32,
}

/// Two generations, each with a pointer to a `PSVirtualSpace`; JDK 28 has another layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParallelLayout {
    /// Pointers to the generations: variables up to JDK 26, fields of the heap from 27 on; and the pointer in each.
    pub(crate) generations: [(FieldRow, u32); 2],
    /// First byte of the committed part, in a `PSVirtualSpace`.
    pub(crate) low: u32,
    /// End of the committed part.
    pub(crate) high: u32,
}

/// A table of pointers to regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct G1Layout {
    /// The table, in the heap.
    pub(crate) table: u32,
    /// Address of the first entry, in the table.
    pub(crate) base: u32,
    /// Number of entries, 64 bits.
    pub(crate) length: u32,
    /// log2 of the bytes of a region, 32 bits.
    pub(crate) shift: u32,
    /// First byte of a region, in the region.
    pub(crate) bottom: u32,
    /// Its type, 32 bits.
    pub(crate) state: u32,
}

/// An array of pointers to regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShenandoahLayout {
    /// Address of the first entry, in the heap.
    pub(crate) base: u32,
    /// Number of entries, 64 bits, in the heap.
    pub(crate) length: u32,
    /// Variable: log2 of the bytes of a region, 64 bits.
    pub(crate) shift: u64,
    /// First byte of a region, in the region.
    pub(crate) bottom: u32,
    /// Its state, 32 bits.
    pub(crate) state: u32,
}

/// A table of pointers to pages, one for each granule of the heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLayout {
    /// Address of the first entry, in the heap.
    pub(crate) base: u32,
    /// log2 of the bytes of a granule.
    pub(crate) shift: u32,
}

/// Adds the offsets of fields that lie in each other.
fn nested<const N: usize>(rows: [Option<FieldRow>; N]) -> Option<u32> {
    rows.into_iter().try_fold(0_u32, |sum, row| sum.checked_add(offset(row)?))
}

impl HeapLayout {
    pub(super) fn resolve(tables: &Tables) -> Self {
        Self {
            serial: SerialLayout::resolve(tables),
            parallel: ParallelLayout::resolve(tables),
            g1: G1Layout::resolve(tables),
            shenandoah: ShenandoahLayout::resolve(tables),
            z: PageLayout::with_generations(tables),
            x: PageLayout::without_generations(tables),
        }
    }
}

impl SerialLayout {
    fn resolve(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        Some(Self {
            generations: [offset(fields.serial_young)?, offset(fields.serial_old)?],
            space: offset(fields.serial_space)?,
            low: offset(fields.space_low)?,
            high: offset(fields.space_high)?,
        })
    }
}

impl ParallelLayout {
    fn resolve(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        let young = (fields.parallel_young?, offset(fields.parallel_young_space)?);
        let old = (fields.parallel_old?, offset(fields.parallel_old_space)?);
        Some(Self {
            generations: [young, old],
            low: offset(fields.parallel_low)?,
            high: offset(fields.parallel_high)?,
        })
    }
}

impl G1Layout {
    fn resolve(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        Some(Self {
            table: nested([fields.g1_regions, fields.g1_table])?,
            base: offset(fields.g1_table_base)?,
            length: offset(fields.g1_table_length)?,
            shift: offset(fields.g1_table_shift)?,
            bottom: offset(fields.g1_region_bottom)?,
            state: nested([fields.g1_region_type, fields.g1_type_tag])?,
        })
    }
}

impl ShenandoahLayout {
    fn resolve(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        Some(Self {
            base: offset(fields.shenandoah_regions)?,
            length: offset(fields.shenandoah_region_count)?,
            shift: variable(fields.shenandoah_region_shift)?,
            bottom: offset(fields.shenandoah_region_bottom)?,
            state: offset(fields.shenandoah_region_state)?,
        })
    }
}

impl PageLayout {
    fn with_generations(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        let base = nested([fields.z_heap, fields.z_page_table, fields.z_table_map, fields.z_map_entries])?;
        Some(Self { base, shift: tables.constants.z_granule_shift? })
    }

    fn without_generations(tables: &Tables) -> Option<Self> {
        let fields = &tables.fields;
        let base = nested([fields.x_heap, fields.x_page_table, fields.x_table_map, fields.x_map_entries])?;
        Some(Self { base, shift: tables.constants.x_granule_shift? })
    }
}
