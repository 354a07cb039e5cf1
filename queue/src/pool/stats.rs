//! Statistics of a snapshot pool.
//!
//! Problem: a pool that is too small loses whole stacks, so every shortage must be reported by class.
//! Approach: the handler counts only shortages. Slabs in use are counted by visiting their headers, so taking and
//! freeing a slab touches no shared counter.

use crate::pool::plan::MAX_CLASSES;
use crate::pool::slabs::SnapshotPool;
use crate::sync::Ordering;

/// Statistics of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of the region the pool may use, headers and spare slabs included.
    pub reserved_bytes: usize,
    /// Requests for a slab that could not be met at all.
    pub failed: u64,
    classes: [ClassStats; MAX_CLASSES],
    class_count: usize,
}

impl PoolStats {
    /// One entry for each class of the plan, in its order.
    pub fn classes(&self) -> &[ClassStats] {
        self.classes.get(..self.class_count).unwrap_or(&self.classes)
    }

    /// Bytes of the slabs in service.
    pub fn service_bytes(&self) -> usize {
        self.classes()
            .iter()
            .map(|class| class.bytes.saturating_mul(class.count.saturating_add(class.spare)))
            .sum()
    }

    /// Slabs of all classes that are not free.
    pub fn in_use(&self) -> usize {
        self.classes().iter().map(|class| class.in_use).sum()
    }

    /// Number of times the best class was empty, over all classes.
    pub fn exhausted(&self) -> u64 {
        self.classes().iter().map(|class| class.exhausted).sum()
    }
}

/// Statistics of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Usable bytes of each slab.
    pub bytes: usize,
    /// Number of slabs.
    pub count: usize,
    /// Spare slabs in service, of which `in_use` may be as well.
    pub spare: usize,
    /// Slabs that are not free at this moment: being written, waiting for a view, or viewed.
    pub in_use: usize,
    /// Requests that fitted this class best and found it empty, whether or not another class could help.
    pub exhausted: u64,
}

impl SnapshotPool<'_> {
    /// Size classes of the plan.
    pub fn class_count(&self) -> usize {
        self.class_count as usize
    }

    /// Number of times a request that fits `class` best found it empty, spare slabs in service included.
    pub fn exhausted(&self, class: usize) -> u64 {
        // Relaxed: statistics pair with nothing.
        self.exhausted.get(class).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Slabs of `class` that are there from the start.
    pub fn fixed_slabs(&self, class: usize) -> usize {
        let end = self.ends.get(class).copied().unwrap_or(0);
        let start = class.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        end.saturating_sub(start) as usize
    }

    /// Spare slabs of `class` in service, free or not.
    pub fn spare_in_service(&self, class: usize) -> usize {
        // Relaxed: as above.
        self.in_service.get(class).map_or(0, |count| count.load(Ordering::Relaxed) as usize)
    }

    /// Counters, and how many slabs are in use; visits every slab, so not for the handler.
    pub fn stats(&self) -> PoolStats {
        let mut stats = PoolStats {
            reserved_bytes: self.reserved_bytes,
            // Relaxed: statistics pair with nothing.
            failed: self.failed.load(Ordering::Relaxed),
            class_count: self.class_count as usize,
            ..PoolStats::default()
        };
        let classes = self.ends.iter().zip(&self.exhausted).take(self.class_count as usize).enumerate();
        let mut start = 0;
        let mut spare_start = self.fixed;
        for (of_class, (class, (&end, exhausted))) in stats.classes.iter_mut().zip(classes) {
            let headers = self.headers.get(start..end as usize).unwrap_or(&[]);
            let spare_end = self.spare_ends.get(class).copied().unwrap_or(spare_start);
            let spare = self.in_service.get(class).map_or(0, |count| count.load(Ordering::Relaxed));
            // Spare slabs out of service are free; where none is in service there is nothing to visit.
            let spare_numbers =
                spare_start as usize..if spare == 0 { spare_start } else { spare_end } as usize;
            let spare_headers = self.headers.get(spare_numbers).unwrap_or(&[]);
            spare_start = spare_end;
            *of_class = ClassStats {
                bytes: self.size(class),
                count: headers.len(),
                spare: spare as usize,
                in_use: headers.iter().chain(spare_headers).filter(|header| header.in_use()).count(),
                exhausted: exhausted.load(Ordering::Relaxed),
            };
            start = end as usize;
        }
        stats
    }
}
