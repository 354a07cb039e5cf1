//! The slabs of a snapshot pool, and where they lie.
//!
//! Problem: stacks differ in depth by two orders of magnitude, so slabs of one size waste memory or cut deep stacks.
//! Approach: up to eight size classes, checked and laid out here: first the headers of all slabs, then the slabs, class
//! by class. In both, the slabs in service from the start come before the spare slabs.
//! Invariant: every offset is a multiple of [`SLAB_ALIGN`], and all arithmetic is checked.

use core::ops::Range;

use crate::pool::slab_header::{MAX_SLABS, SlabHeader};

/// Slabs start on cache lines: they share none, and a view can be read as aligned words.
pub const SLAB_ALIGN: usize = 64;

/// The most size classes a plan may have; small enough to scan in a handler.
pub const MAX_CLASSES: usize = 8;

/// One size class of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabClass {
    /// Usable bytes of each slab; rounded up to a multiple of [`SLAB_ALIGN`].
    pub bytes: usize,
    /// Number of slabs from the start.
    pub count: usize,
    /// Number of slabs that can be added ([`crate::SnapshotPool::grow`]); until then they cost only addresses.
    pub spare: usize,
}

impl SlabClass {
    /// A class that does not grow.
    pub const fn fixed(bytes: usize, count: usize) -> Self {
        Self { bytes, count, spare: 0 }
    }
}

/// Reason why a pool could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A plan needs 1 to [`MAX_CLASSES`] classes and has this many.
    Classes(usize),
    /// The class at this position is not larger than the one before it, is empty, or exceeds 4 GB.
    Bytes(usize),
    /// The class at this position has no slabs, or the pool exceeds the numbers of a handle or 256 GB.
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
            Self::Bytes(class) => write!(
                formatter,
                "the size of slab class {class} is not above the class before it, or out of range"
            ),
            Self::Count(class) => write!(formatter, "slab class {class} is empty or has too many slabs"),
            Self::Region(needed) => write!(formatter, "the pool needs a region of {needed} bytes"),
        }
    }
}

impl core::error::Error for PlanError {}

/// Place of one class in the region.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassLayout {
    /// Bytes of each slab; 0 in the unused places of an array of classes.
    pub(crate) bytes: usize,
    /// Numbers of the slabs, counted over all classes.
    pub(crate) numbers: Range<u32>,
    /// Start of the first slab, relative to the first slab of all.
    pub(crate) offset: usize,
    /// Numbers of the slabs that can be added.
    pub(crate) spare: Range<u32>,
    /// Start of the first of those.
    pub(crate) spare_offset: usize,
}

/// Places of a pool's parts in its region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) classes: [ClassLayout; MAX_CLASSES],
    /// Slabs of all classes together, those that can be added included.
    pub(crate) slabs: u32,
    /// Slabs that are there from the start.
    pub(crate) fixed: u32,
    /// Start of the first slab, after the headers.
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
        for (position, planned) in plan.iter().enumerate() {
            let bytes = planned
                .bytes
                .checked_next_multiple_of(SLAB_ALIGN)
                .filter(|&bytes| bytes > previous && u32::try_from(bytes).is_ok())
                .ok_or(PlanError::Bytes(position))?;
            if planned.count == 0 {
                return Err(PlanError::Count(position));
            }
            let (numbers, place) =
                layout.slabs_after(planned.count, bytes, &mut offset).ok_or(PlanError::Count(position))?;
            layout.slabs = numbers.end;
            if let Some(class) = layout.classes.get_mut(position) {
                *class = ClassLayout { bytes, numbers, offset: place, ..ClassLayout::default() };
            }
            previous = bytes;
        }
        layout.fixed = layout.slabs;
        for (position, planned) in plan.iter().enumerate() {
            let refused = PlanError::Count(position);
            let bytes = layout.classes.get(position).map_or(0, |class| class.bytes);
            let (numbers, place) = layout.slabs_after(planned.spare, bytes, &mut offset).ok_or(refused)?;
            layout.slabs = numbers.end;
            if let Some(class) = layout.classes.get_mut(position) {
                (class.spare, class.spare_offset) = (numbers, place);
            }
        }
        let headers = (layout.slabs as usize).saturating_mul(size_of::<SlabHeader>());
        // At most 2^20 headers of 16 bytes, and at most 256 GB of slabs: a 64-bit sum cannot overflow.
        layout.slabs_offset = headers.next_multiple_of(SLAB_ALIGN);
        layout.total = layout.slabs_offset.saturating_add(offset);
        Ok(layout)
    }

    /// Numbers and place of `count` further slabs of `bytes`, from `offset` on, which moves past them.
    fn slabs_after(&self, count: usize, bytes: usize, offset: &mut usize) -> Option<(Range<u32>, usize)> {
        let count_u32 = u32::try_from(count).ok()?;
        let end = self.slabs.checked_add(count_u32).filter(|&end| end <= MAX_SLABS)?;
        let start = *offset;
        *offset = bytes
            .checked_mul(count)
            .and_then(|bytes| start.checked_add(bytes))
            .filter(|&end| u32::try_from(end / SLAB_ALIGN).is_ok())?;
        Some((self.slabs..end, start))
    }
}
