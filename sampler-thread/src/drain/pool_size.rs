//! Grows and shrinks the snapshot pool.
//!
//! Problem: the number of stack copies in use depends on the load and on how often the sampler runs.
//! Approach: spare slabs are put into service before they are needed: if collected requests use more than half of a
//! class, it grows to twice what they use. If handlers found a class empty nevertheless, it grows by as many slabs as
//! were missing, at least by half. After a quiet time half of the spare slabs are taken out of service, as far as they
//! are free, and their pages go back to the kernel.
//! The spare slabs of the largest class are in service from the start and stay there; only their pages go back. The
//! first deep stacks of a program come without warning, and all classes fall back on the largest.
//! Invariant: what is in service at the start stays in service, but for the moment in which its pages are released.

use std::mem::MaybeUninit;

use queue::{QUIET_ROUNDS, Request, SnapshotPool};

/// Use of the pool, and counts of its changes in this session.
#[derive(Debug, Clone)]
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
    /// Spare slabs that stay in service.
    kept: usize,
    /// True if spare slabs were used since their pages were released.
    is_spare_used: bool,
}

impl PoolSize {
    /// Begins with what is in service.
    pub fn new(pool: &SnapshotPool<'_>) -> Self {
        let class = |index| Class { kept: pool.spare_in_service(index), ..Class::default() };
        let classes = (0..pool.class_count()).map(class).collect();
        Self { classes, grown: 0, shrunk: 0, high_water: 0 }
    }

    /// Records a request that waits from here on.
    pub fn request_found(&mut self, pool: &SnapshotPool<'_>, request: &Request) {
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
        for (index, class) in self.classes.iter_mut().enumerate() {
            let exhausted = pool.exhausted(index);
            let missing = usize::try_from(exhausted - class.exhausted_seen).unwrap_or(usize::MAX);
            class.exhausted_seen = exhausted;
            let (fixed, collected) = (pool.fixed_slabs(index), class.waiting + class.taken);
            class.is_spare_used |= collected > fixed;
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

    /// Shrinks classes that have been quiet; to be called once a second. `release` may give pages back to the kernel.
    pub fn after_round(&mut self, pool: &SnapshotPool<'_>, mut release: impl FnMut(&mut [MaybeUninit<u8>])) {
        for (index, class) in self.classes.iter_mut().enumerate() {
            class.quiet = class.quiet.saturating_add(1);
            let spare = pool.spare_in_service(index);
            if class.quiet >= QUIET_ROUNDS && (spare > class.kept || class.is_spare_used) {
                (class.quiet, class.is_spare_used) = (0, false);
                // Which slabs were used is not known, so those that stay are released with the others.
                let released = pool.shrink(index, spare.div_ceil(2).max(class.kept), &mut release);
                let returned = pool.grow(index, class.kept.saturating_sub(spare - released));
                self.shrunk += (released - returned) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use queue::{SLAB_ALIGN, SlabClass};

    /// Publishes stack copies, as handlers do, until the pool is empty.
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
        let mut size = PoolSize::new(&pool);
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
        let mut size = PoolSize::new(&pool);
        let held = fill(&pool, 8);
        assert_eq!(fill(&pool, 1), []);
        size.after_drain(&pool, 0);
        assert_eq!(size.grown, 4, "half of the class at the least");
        assert_eq!(fill(&pool, 20).len(), 4);
        assert_eq!(held.len(), 8);
    }

    #[test]
    fn slabs_in_service_at_the_start_give_back_only_their_pages() {
        let plan = [SlabClass { bytes: 128, count: 2, spare: 6 }];
        let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + SLAB_ALIGN - 1);
        let pool = SnapshotPool::new(&mut region, &plan).expect("a plan");
        assert_eq!(pool.grow(0, 6), 6);
        let mut size = PoolSize::new(&pool);
        let released_after = |size: &mut PoolSize| {
            let mut released = 0;
            (0..2 * QUIET_ROUNDS).for_each(|_| size.after_round(&pool, |_| released += 1));
            released
        };
        assert_eq!(released_after(&mut size), 0, "no spare slab was used");
        let requests = fill(&pool, 8);
        assert_eq!(requests.len(), 8, "all of them are there for the first requests");
        for request in &requests {
            size.request_found(&pool, request);
        }
        size.after_drain(&pool, 8);
        size.requests_taken();
        assert!(requests.iter().all(|request| pool.release(request.snapshot)));
        size.requests_walked();
        assert_eq!(released_after(&mut size), 6, "each once");
        assert_eq!((pool.spare_in_service(0), size.shrunk), (6, 0));
        assert_eq!(fill(&pool, 8).len(), 8);
    }
}
