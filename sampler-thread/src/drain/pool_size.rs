//! A snapshot pool that sizes itself.
//!
//! Problem: how many stack copies are in flight follows the load and how often the sampler gets to run.
//! Approach: spare slabs are put into service before they are missed: where the requests in hand hold more than half of a
//! class, it is brought to twice what they hold. Where handlers found a class empty all the same, as many are added as
//! were missing, half of the class at the least. After a quiet time half of the spare slabs are taken out again, as far
//! as they are free, and their pages go back to the kernel.
//! Invariant: the slabs that are there from the start stay in service.

use queue::{QUIET_ROUNDS, Request, SnapshotPool};

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
    /// Slabs of requests that wait to be walked.
    waiting: usize,
    /// Slabs of requests that the sampler took and has not walked all of yet.
    taken: usize,
}

impl PoolSize {
    /// Takes note of a request that waits from now on.
    pub fn found(&mut self, pool: &SnapshotPool<'_>, request: &Request) {
        self.classes.resize_with(pool.class_count(), Class::default);
        let class = pool.class_of(request.snapshot).and_then(|class| self.classes.get_mut(class));
        if let Some(class) = class {
            class.waiting += 1;
        }
    }

    /// Takes note that what waited is being walked.
    pub fn taken(&mut self) {
        for class in &mut self.classes {
            class.taken += std::mem::take(&mut class.waiting);
        }
    }

    /// Takes note that all that was taken is walked, its slabs free.
    pub fn walked(&mut self) {
        for class in &mut self.classes {
            class.taken = 0;
        }
    }

    /// Takes note of a drain that found `found` stack copies; grows classes that are half used or were found empty.
    pub fn after_drain(&mut self, pool: &SnapshotPool<'_>, found: u64) {
        self.high_water = self.high_water.max(found);
        self.classes.resize_with(pool.class_count(), Class::default);
        for (index, class) in self.classes.iter_mut().enumerate() {
            let exhausted = pool.exhausted(index);
            let missing = usize::try_from(exhausted - class.exhausted_seen).unwrap_or(usize::MAX);
            class.exhausted_seen = exhausted;
            let (fixed, in_hand) = (pool.fixed_slabs(index), class.waiting + class.taken);
            let after_loss = if missing > 0 { missing.max(fixed / 2) } else { 0 };
            let ahead = (2 * in_hand).saturating_sub(fixed + pool.spare_in_service(index));
            let wanted = after_loss.max(ahead);
            if wanted > 0 || 2 * in_hand > fixed {
                class.quiet = 0;
            }
            if wanted > 0 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use queue::{SLAB_ALIGN, SlabClass};

    /// Publishes stack copies, as handlers do, until none can be had.
    fn fill(pool: &SnapshotPool<'_>, count: usize) -> Vec<Request> {
        let mut requests = Vec::new();
        for _ in 0..count {
            let Some(slab) = pool.acquire(100) else { break };
            requests.push(Request { snapshot: slab.publish_empty(), ..Request::default() });
        }
        requests
    }

    #[test]
    fn a_class_grows_before_it_is_found_empty() {
        let plan = [SlabClass { bytes: 128, count: 8, spare: 64 }];
        let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + SLAB_ALIGN - 1);
        let pool = SnapshotPool::new(&mut region, &plan).expect("a plan");
        let mut size = PoolSize::default();
        let mut in_flight = Vec::new();
        // The sampler never gets to walk; each drain finds four more.
        for _ in 0..8 {
            for request in fill(&pool, 4) {
                size.found(&pool, &request);
                in_flight.push(request);
            }
            size.after_drain(&pool, 4);
        }
        assert_eq!((in_flight.len(), pool.exhausted(0)), (32, 0));
        assert_eq!(size.grown, 64 - 8, "twice what is in hand");
        size.taken();
        for request in in_flight {
            assert!(pool.release(request.snapshot));
        }
        size.walked();
        // What is walked is in nobody's hands: the next four need no more.
        for request in fill(&pool, 4) {
            size.found(&pool, &request);
        }
        size.after_drain(&pool, 4);
        assert_eq!(size.grown, 64 - 8);
    }

    #[test]
    fn what_was_missing_is_added() {
        let plan = [SlabClass { bytes: 128, count: 8, spare: 64 }];
        let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + SLAB_ALIGN - 1);
        let pool = SnapshotPool::new(&mut region, &plan).expect("a plan");
        let mut size = PoolSize::default();
        let held = fill(&pool, 8);
        assert_eq!(fill(&pool, 1), []);
        size.after_drain(&pool, 0);
        assert_eq!(size.grown, 4, "half of the class at the least");
        assert_eq!(fill(&pool, 20).len(), 4);
        assert_eq!(held.len(), 8);
    }
}
