//! Grows and shrinks the snapshot pool.
//!
//! Problem: the number of stack copies in use depends on the load and on how often the sampler runs.
//! Approach: spare slabs are put into service before they are needed: if collected requests use more than half of a
//! class, it grows to twice what they use. If handlers found a class empty nevertheless, it grows by as many slabs as
//! were missing, at least by half. After a quiet time half of the spare slabs are taken out of service, as far as they
//! are free, and their pages go back to the kernel.
//! Invariant: the slabs of the start stay in service.

use queue::{QUIET_ROUNDS, Request, SnapshotPool};

use crate::process::Queues;

/// Use of the pool, and counts of its changes in this session.
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
    /// Slabs of requests that wait.
    waiting: usize,
    /// Slabs of requests that the sampler has taken and not finished yet.
    taken: usize,
}

impl PoolSize {
    /// Records a request that waits from here on.
    pub fn request_found(&mut self, pool: &SnapshotPool<'_>, request: &Request) {
        self.classes.resize_with(pool.class_count(), Class::default);
        let class = pool.class_of(request.snapshot).and_then(|class| self.classes.get_mut(class));
        if let Some(class) = class {
            class.waiting += 1;
        }
    }

    /// Records that the sampler took the waiting requests.
    pub fn requests_taken(&mut self) {
        for class in &mut self.classes {
            class.taken += std::mem::take(&mut class.waiting);
        }
    }

    /// Records that all taken requests are walked and their slabs free.
    pub fn requests_walked(&mut self) {
        for class in &mut self.classes {
            class.taken = 0;
        }
    }

    /// Records a drain that found `found` stack copies; grows classes that are half used or were empty.
    pub fn after_drain(&mut self, pool: &SnapshotPool<'_>, found: u64) {
        self.high_water = self.high_water.max(found);
        self.classes.resize_with(pool.class_count(), Class::default);
        for (index, class) in self.classes.iter_mut().enumerate() {
            let exhausted = pool.exhausted(index);
            let missing = usize::try_from(exhausted - class.exhausted_seen).unwrap_or(usize::MAX);
            class.exhausted_seen = exhausted;
            let (fixed, collected) = (pool.fixed_slabs(index), class.waiting + class.taken);
            let after_loss = if missing > 0 { missing.max(fixed / 2) } else { 0 };
            let ahead = (2 * collected).saturating_sub(fixed + pool.spare_in_service(index));
            let missing = after_loss.max(ahead);
            if missing > 0 || 2 * collected > fixed {
                class.quiet = 0;
            }
            if missing > 0 {
                self.grown += pool.grow(index, missing) as u64;
            }
        }
    }

    /// Shrinks classes that have been quiet; to be called once a second.
    pub fn after_round(&mut self, queues: &impl Queues) {
        let pool = queues.pool();
        for (index, class) in self.classes.iter_mut().enumerate() {
            class.quiet = class.quiet.saturating_add(1);
            let spare = pool.spare_in_service(index);
            if class.quiet >= QUIET_ROUNDS && spare > 0 {
                class.quiet = 0;
                let shrunk = pool.shrink(index, spare.div_ceil(2), |bytes| queues.release_pages(bytes));
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
                size.request_found(&pool, &request);
                in_flight.push(request);
            }
            size.after_drain(&pool, 4);
        }
        assert_eq!((in_flight.len(), pool.exhausted(0)), (32, 0));
        assert_eq!(size.grown, 64 - 8, "twice what is collected");
        size.requests_taken();
        for request in in_flight {
            assert!(pool.release(request.snapshot));
        }
        size.requests_walked();
        // The slabs of walked requests are free: the next four need no more.
        for request in fill(&pool, 4) {
            size.request_found(&pool, &request);
        }
        size.after_drain(&pool, 4);
        assert_eq!(size.grown, 64 - 8);
    }

    #[test]
    fn missing_slabs_are_added() {
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
