//! Which slabs a snapshot pool consists of.
//!
//! Problem: stacks differ in depth by two orders of magnitude, and slabs of one size either waste memory or cut
//! the deep ones.
//! Approach: the caller plans up to eight size classes; this module checks the plan and computes where its parts
//! lie in the caller's region: first the heads of all slabs, then the slabs, class after class.
//! Invariant: every offset is a multiple of [`SLAB_ALIGN`] and no arithmetic here wraps: it is checked.

use core::ops::Range;

use crate::slab_head::{MAX_SLABS, SlabHead};

/// Slabs start on cache lines: two of them never share one, and a view can be read as aligned words.
pub const SLAB_ALIGN: usize = 64;

/// The most size classes a plan may have; small enough to scan in a handler.
pub const MAX_CLASSES: usize = 8;

/// One size class of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabClass {
    /// Usable bytes of each slab; rounded up to a multiple of [`SLAB_ALIGN`].
    pub bytes: usize,
    /// Number of slabs.
    pub count: usize,
}

/// Why a pool could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A plan needs 1 to [`MAX_CLASSES`] classes and has this many.
    Classes(usize),
    /// The class at this position is not larger than the one before it, is empty, or exceeds 4 GB.
    Bytes(usize),
    /// The class at this position has no slabs, or with it the pool has more than a handle can number or more
    /// than 256 GB.
    Count(usize),
    /// The region is smaller than this many bytes, counted from its first multiple of [`SLAB_ALIGN`].
    Region(usize),
}

impl core::fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Classes(count) => {
                write!(formatter, "a pool has 1 to {MAX_CLASSES} slab classes, not {count}")
            }
            Self::Bytes(class) => write!(formatter, "slab class {class} has a size out of order or range"),
            Self::Count(class) => write!(formatter, "slab class {class} is empty or has too many slabs"),
            Self::Region(needed) => write!(formatter, "the pool needs a region of {needed} bytes"),
        }
    }
}

impl core::error::Error for PlanError {}

/// Where one class lies in the region.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassLayout {
    /// Bytes of each slab; 0 in the unused places of an array of classes.
    pub(crate) bytes: usize,
    /// Numbers of the slabs, counted over all classes.
    pub(crate) numbers: Range<u32>,
    /// Where the first slab begins, relative to the first slab of all.
    pub(crate) offset: usize,
}

/// Where the parts of a pool lie in its region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) classes: [ClassLayout; MAX_CLASSES],
    /// Slabs of all classes together.
    pub(crate) slabs: u32,
    /// Where the first slab begins, after the heads.
    pub(crate) slabs_offset: usize,
    /// Bytes of the whole.
    pub(crate) total: usize,
}

impl Layout {
    /// Checks `plan` and lays it out.
    pub(crate) fn of(plan: &[SlabClass]) -> Result<Self, PlanError> {
        let mut layout = Self::default();
        if plan.is_empty() || plan.len() > layout.classes.len() {
            return Err(PlanError::Classes(plan.len()));
        }
        let (mut offset, mut previous) = (0usize, 0usize);
        for (position, (planned, class)) in plan.iter().zip(&mut layout.classes).enumerate() {
            let bytes = planned
                .bytes
                .checked_next_multiple_of(SLAB_ALIGN)
                .filter(|&bytes| bytes > previous && u32::try_from(bytes).is_ok())
                .ok_or(PlanError::Bytes(position))?;
            let end = u32::try_from(planned.count)
                .ok()
                .filter(|&count| count > 0)
                .and_then(|count| layout.slabs.checked_add(count))
                .filter(|&end| end <= MAX_SLABS)
                .ok_or(PlanError::Count(position))?;
            *class = ClassLayout { bytes, numbers: layout.slabs..end, offset };
            offset = bytes
                .checked_mul(planned.count)
                .and_then(|bytes| offset.checked_add(bytes))
                .filter(|&end| u32::try_from(end / SLAB_ALIGN).is_ok())
                .ok_or(PlanError::Count(position))?;
            layout.slabs = end;
            previous = bytes;
        }
        let heads = (layout.slabs as usize).saturating_mul(size_of::<SlabHead>());
        // At most 2^20 heads of 16 bytes, and at most 256 GB of slabs: a 64-bit sum cannot overflow.
        layout.slabs_offset = heads.next_multiple_of(SLAB_ALIGN);
        layout.total = layout.slabs_offset.saturating_add(offset);
        Ok(layout)
    }
}
