//! A snapshot pool that sizes itself.
//!
//! Problem: how many stack copies are in flight follows the load and how often the sampler gets to run.
//! Approach: where handlers found a class of slabs empty since the last drain, spare slabs are put into service: as many as
//! were missing, half of the class at the least. After a quiet time half of those that are free are taken out again,
//! and their pages go back to the kernel.
//! Invariant: the slabs that are there from the start stay in service.

use queue::{QUIET_ROUNDS, SnapshotPool};

use crate::host::Host;

/// What the sizing of the pool has done in this session.
#[derive(Debug, Clone, Default)]
pub struct PoolSize {
    classes: Vec<Class>,
    /// Slabs put into service.
    pub grown: u64,
    /// Slabs taken out again.
    pub shrunk: u64,
    /// Most stack copies found at one drain.
    pub high_water: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Class {
    exhausted_seen: u64,
    quiet: u16,
}

impl PoolSize {
    /// Takes note of a drain that found `found` stack copies; grows classes that handlers found empty.
    pub fn after_drain(&mut self, pool: &SnapshotPool<'_>, found: u64) {
        self.high_water = self.high_water.max(found);
        self.classes.resize_with(pool.class_count(), Class::default);
        for (index, class) in self.classes.iter_mut().enumerate() {
            let exhausted = pool.exhausted(index);
            let missing = exhausted - class.exhausted_seen;
            if missing > 0 {
                *class = Class { exhausted_seen: exhausted, quiet: 0 };
                let wanted = usize::try_from(missing).unwrap_or(usize::MAX).max(pool.fixed_slabs(index) / 2);
                self.grown += pool.grow(index, wanted) as u64;
            }
        }
    }

    /// Once a round: shrinks classes that have been quiet.
    pub fn after_round(&mut self, host: &impl Host) {
        let pool = host.pool();
        for (index, class) in self.classes.iter_mut().enumerate() {
            class.quiet = class.quiet.saturating_add(1);
            let spare = pool.spare_in_service(index);
            if class.quiet >= QUIET_ROUNDS && spare > 0 {
                class.quiet = 0;
                let shrunk = pool.shrink(index, spare.div_ceil(2), |bytes| host.release_pages(bytes));
                self.shrunk += shrunk as u64;
            }
        }
    }
}
