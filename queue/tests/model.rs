//! The queue and the pool against simple models, on random sequences of operations.

#![cfg(not(loom))]
#![allow(missing_docs)]

use proptest::prelude::*;
use queue::{
    Capacity, LostCause, LostCounters, PlanError, ReadySet, Request, RequestFlags, RingEnds, RingStorage,
    SLAB_ALIGN, SlabClass, SnapshotHandle, SnapshotPool, ThreadQueue,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU8;

fn leak_region(bytes: usize) -> &'static mut [MaybeUninit<u8>] {
    // Words, so that the region is aligned for rings; pools align themselves.
    let words: &'static mut [MaybeUninit<u64>] = Box::leak(Box::new_uninit_slice(bytes.div_ceil(8)));
    // SAFETY: bytes need no alignment and the slice has at least `bytes` of them.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), bytes) }
}

fn queue_of(capacity: Capacity) -> ThreadQueue {
    let queue = ThreadQueue::new();
    let ends = RingEnds::in_region(capacity, leak_region(capacity.bytes())).expect("the region fits");
    assert!(queue.install(ends, capacity).is_ok());
    queue
}

fn request(pc: u64) -> Request {
    Request { pc, sp: !pc, ticks: pc << 1, ..Request::default() }
}

proptest! {
    #[test]
    fn a_queue_is_a_bounded_fifo(steps in prop::collection::vec((any::<bool>(), 1usize..24), 1..60)) {
        let queue = queue_of(Capacity::Entries16);
        let (mut model, mut next) = (VecDeque::new(), 0);
        for (push, times) in steps {
            if push {
                for _ in 0..times {
                    // SAFETY: this thread alone pushes.
                    let pushed = unsafe { queue.push(request(next)) };
                    if model.len() < 16 {
                        prop_assert_eq!(pushed, Ok(()));
                        model.push_back(request(next));
                    } else {
                        prop_assert_eq!(pushed, Err(request(next)), "a full ring gives the request back");
                    }
                    next += 1;
                }
            } else {
                let drained: Vec<_> = queue.try_drain().unwrap().take(times).collect();
                let expected: Vec<_> = model.drain(..times.min(model.len())).collect();
                prop_assert_eq!(drained, expected);
            }
        }
    }

    /// Rings are replaced between pushes and drains: requests stay in order, each once, and every ring is returned.
    #[test]
    fn a_queue_that_changes_its_ring_is_a_bounded_fifo(
        steps in prop::collection::vec((0u8..4, 1usize..40, 0usize..4), 1..80),
    ) {
        let queue = queue_of(Capacity::Entries16);
        let (mut model, mut next, mut handed_over) = (VecDeque::new(), 0, 0);
        // Free entries of the ring in use; those of the old one do not matter once the new one is in use.
        let (mut room, mut offered, mut in_ring) = (16, None, 0);
        let mut rings: Vec<RingEnds> = Capacity::ALL[..4].iter().map(|&capacity| {
            let region = leak_region(capacity.bytes());
            region.iter_mut().for_each(|byte| { byte.write(0); });
            // SAFETY: every byte was just written with zero.
            unsafe { RingEnds::in_zeroed(capacity, region) }.unwrap()
        }).collect();
        for (step, times, pick) in steps {
            match step {
                0 | 1 => for _ in 0..times {
                    if let Some(entries) = offered.take() {
                        (room, in_ring) = (entries, 0);
                        handed_over += 1;
                    }
                    // SAFETY: this thread alone pushes.
                    let pushed = unsafe { queue.push(request(next)) };
                    prop_assert_eq!(pushed.is_ok(), in_ring < room);
                    if pushed.is_ok() {
                        model.push_back(request(next));
                        in_ring += 1;
                    }
                    next += 1;
                },
                2 => {
                    let drained: Vec<_> = queue.try_drain().unwrap().take(times).collect();
                    let expected: Vec<_> = model.drain(..times.min(model.len())).collect();
                    prop_assert_eq!(drained, expected);
                    in_ring = in_ring.min(model.len());
                }
                _ => {
                    let mut drain = queue.try_drain().unwrap();
                    rings.extend(drain.take_retired());
                    if drain.is_handing_over() || rings.is_empty() {
                        continue;
                    }
                    let ring = rings.swap_remove(pick % rings.len());
                    offered = Some(ring.entries());
                    prop_assert!(drain.offer(ring).is_ok());
                }
            }
        }
        // SAFETY: this thread alone pushes.
        unsafe { queue.adopt() };
        let mut drain = queue.try_drain().unwrap();
        let rest: Vec<_> = drain.by_ref().collect();
        prop_assert_eq!(rest, Vec::from(model));
        rings.extend(drain.take_retired());
        prop_assert_eq!(rings.len(), 4, "five rings, one in use, after {} hand-overs", handed_over);
    }

    #[test]
    fn a_ready_set_yields_what_was_marked(steps in prop::collection::vec(0u32..120, 1..80)) {
        const QUEUES: u32 = 100;
        let flags: Vec<AtomicU8> = (0..QUEUES).map(|_| AtomicU8::new(0)).collect();
        let ready = ReadySet::new(&flags);
        let mut model = BTreeSet::new();
        for step in steps {
            if step < QUEUES + 5 {
                // Numbers without a flag are ignored.
                ready.mark(step);
                if step < QUEUES {
                    model.insert(step);
                }
            } else {
                // The last are beyond those in use, and some of the rest are left for the next take.
                let used = QUEUES - (step - QUEUES);
                let limit = (step - QUEUES) as usize;
                let taken: Vec<u32> = ready.take(used).take(limit).collect();
                let expected: Vec<u32> = model.range(..used).copied().take(limit).collect();
                prop_assert_eq!(&taken, &expected);
                for index in taken {
                    model.remove(&index);
                }
            }
        }
        prop_assert_eq!(ready.take(u32::MAX).collect::<BTreeSet<u32>>(), model);
        prop_assert_eq!(ready.take(QUEUES).count(), 0);
    }

    #[test]
    fn a_pool_gives_each_slab_to_one_holder(
        steps in prop::collection::vec((0u8..5, 0usize..700, any::<prop::sample::Index>()), 1..120),
    ) {
        let plan = [(64, 3), (256, 2), (512, 1)].map(|(bytes, count)| SlabClass::fixed(bytes, count));
        let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + SLAB_ALIGN - 1);
        let pool = SnapshotPool::new(&mut region, &plan).unwrap();
        // Filled slabs by handle, with what was written; retired handles; free slabs by class size.
        let mut filled: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut retired: Vec<u32> = Vec::new();
        let mut free: BTreeMap<usize, usize> = plan.iter().map(|class| (class.bytes, class.count)).collect();
        let mut classes: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut failed, mut exhausted) = (0, 0);
        for (number, (step, bytes, pick)) in steps.into_iter().enumerate() {
            match step {
                0..=2 => {
                    let best = plan.iter().map(|class| class.bytes).find(|&size| size >= bytes).unwrap_or(512);
                    let expected = free.range(best..).chain(free.range(..best).rev());
                    let expected = expected.filter(|&(_, &count)| count > 0).map(|(&size, _)| size).next();
                    exhausted += u64::from(expected != Some(best));
                    failed += u64::from(expected.is_none());
                    pool.prefetch();
                    let slab = pool.acquire(bytes);
                    prop_assert_eq!(slab.as_ref().map(|slab| slab.capacity()), expected);
                    let Some(mut slab) = slab else { continue };
                    prop_assert_eq!(slab.as_mut_ptr() as usize % SLAB_ALIGN, 0);
                    if step == 2 {
                        continue; // dropped unpublished: free again
                    }
                    let capacity = slab.capacity();
                    let len = bytes.min(capacity);
                    let data = vec![number as u8; len];
                    // SAFETY: `len` is at most the capacity of the slab.
                    unsafe { slab.as_mut_ptr().copy_from_nonoverlapping(data.as_ptr(), len) };
                    // SAFETY: written just above.
                    let handle = unsafe { slab.publish(len) }.bits();
                    *free.get_mut(&capacity).unwrap() -= 1;
                    classes.insert(handle, capacity);
                    prop_assert!(filled.insert(handle, data).is_none(), "handed out twice");
                }
                _ if filled.is_empty() => {}
                _ => {
                    let handle = *pick.get(&filled.keys().copied().collect::<Vec<_>>());
                    let data = filled.remove(&handle).unwrap();
                    if step == 3 {
                        let handle = SnapshotHandle::from_bits(handle);
                        pool.prefetch_snapshot(handle, data.len() + 1);
                        let view = pool.view(handle, data.len() + 1).unwrap();
                        prop_assert_eq!(view.bytes(), &data[..], "no more than was published");
                        prop_assert!(pool.view(handle, 1).is_none(), "one view at a time");
                        prop_assert!(!pool.release(handle), "a viewed slab is not released");
                    } else {
                        prop_assert!(pool.release(SnapshotHandle::from_bits(handle)));
                    }
                    *free.get_mut(&classes[&handle]).unwrap() += 1;
                    retired.push(handle);
                }
            }
            for &stale in &retired {
                let stale = SnapshotHandle::from_bits(stale);
                prop_assert!(pool.view(stale, 1).is_none() && !pool.release(stale), "a retired handle is refused");
            }
            let stats = pool.stats();
            prop_assert_eq!(stats.in_use(), filled.len());
            prop_assert_eq!((stats.failed, stats.exhausted()), (failed, exhausted));
        }
    }

    #[test]
    fn forged_handles_are_refused(bits in prop::collection::vec(any::<u32>(), 1..200)) {
        let plan = [SlabClass::fixed(64, 4)];
        let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + SLAB_ALIGN - 1);
        let pool = SnapshotPool::new(&mut region, &plan).unwrap();
        let held = pool.acquire(64);
        for bits in bits.into_iter().chain([0, 1, 1 << 20, 1 << 20 | 1, u32::MAX]) {
            pool.prefetch_snapshot(SnapshotHandle::from_bits(bits), 64);
            prop_assert!(pool.view(SnapshotHandle::from_bits(bits), 64).is_none());
            prop_assert!(!pool.release(SnapshotHandle::from_bits(bits)));
        }
        drop(held);
        prop_assert_eq!(pool.stats().in_use(), 0);
    }
}

#[test]
fn capacities_hold_their_number_of_entries() {
    for capacity in Capacity::ALL {
        let queue = queue_of(capacity);
        assert_eq!(queue.capacity_entries(), capacity.entries());
        // SAFETY: this thread alone pushes.
        let pushed = (0..).take_while(|&pc| unsafe { queue.push(request(pc)) }.is_ok()).count();
        assert_eq!(pushed, capacity.entries());
        assert_eq!(Capacity::at_least(capacity.entries()), capacity);
        assert!(RingEnds::in_region(capacity, leak_region(capacity.bytes() - 1)).is_none());
        assert!(RingEnds::in_region(capacity, &mut leak_region(capacity.bytes() + 8)[1..]).is_none());
    }
    assert_eq!(Capacity::at_least(0), Capacity::Entries16);
    assert_eq!(Capacity::at_least(17), Capacity::Entries32);
    assert_eq!(Capacity::at_least(usize::MAX), Capacity::Entries2048);
}

#[test]
fn zeroed_memory_is_an_empty_queue() {
    // SAFETY: the documentation of `ThreadQueue` promises that all zero bytes are a valid value.
    let queue: ThreadQueue = unsafe { MaybeUninit::zeroed().assume_init() };
    assert!(!queue.is_installed() && queue.try_drain().is_none());
    // SAFETY: this thread alone pushes.
    let refused = unsafe { queue.push(request(1)) };
    assert_eq!(refused, Err(request(1)), "nothing is installed");
    assert!(queue.lost().snapshot().iter().all(|lost| lost.nanos == 0));

    let storage = || Box::leak(Box::new(RingStorage::<17>::new())).split();
    assert!(queue.install(storage(), Capacity::Entries32).is_err(), "the ring is of another class");
    assert!(queue.install(storage(), Capacity::Entries16).is_ok());
    assert!(queue.install(storage(), Capacity::Entries16).is_err(), "installed once");
    // SAFETY: this thread alone pushes.
    assert_eq!(unsafe { queue.push(request(2)) }, Ok(()));
    let mut drain = queue.try_drain().unwrap();
    assert!(queue.try_drain().is_none(), "one drain at a time");
    assert_eq!((drain.next(), drain.next()), (Some(request(2)), None));
}

#[test]
fn unusable_plans_are_refused_with_their_reason() {
    let check = |plan: &[(usize, usize)], region: usize, expect: PlanError| {
        let plan: Vec<_> = plan.iter().map(|&(bytes, count)| SlabClass::fixed(bytes, count)).collect();
        let error = SnapshotPool::new(leak_region(region), &plan).err();
        assert_eq!(error, Some(expect), "{plan:?}");
    };
    check(&[], 0, PlanError::Classes(0));
    check(&[(64, 1); 9], 0, PlanError::Classes(9));
    check(&[(0, 1)], 0, PlanError::Bytes(0));
    check(&[(128, 1), (100, 1)], 0, PlanError::Bytes(1));
    check(&[(usize::MAX, 1)], 0, PlanError::Bytes(0));
    check(&[(64, 0)], 0, PlanError::Count(0));
    check(&[(64, 1 << 20)], 0, PlanError::Count(0));
    check(&[(64, 1), (128, usize::MAX)], 0, PlanError::Count(1));
    check(&[(64, 1), (1 << 30, 256)], 0, PlanError::Count(1));
    // One header, rounded to a line, and one slab.
    check(&[(64, 1)], 127, PlanError::Region(128));
}

#[test]
fn lost_samples_are_counted_by_cause() {
    let lost = LostCounters::new();
    lost.add(LostCause::QueueFull, 5);
    lost.add(LostCause::QueueFull, 6);
    lost.add(LostCause::Stopping, u64::MAX - 20);
    for (entry, cause) in lost.snapshot().into_iter().zip(LostCause::ALL) {
        let expect = match cause {
            LostCause::QueueFull => (2, 11),
            LostCause::Stopping => (1, u64::MAX - 20),
            _ => (0, 0),
        };
        assert_eq!((entry.cause, entry.count, entry.nanos), (cause, expect.0, expect.1));
        assert_eq!(LostCause::ALL[cause.index()], cause);
    }
    let names: BTreeSet<_> = LostCause::ALL.iter().map(|cause| cause.name()).collect();
    assert_eq!(names.len(), LostCause::COUNT);
}

#[test]
fn requests_weigh_their_overruns() {
    let request = Request { overrun: 2, ..Request::default() };
    assert_eq!((request.periods(), request.cpu_ns(10_000_000)), (3, 30_000_000));
    let corrupt = Request { overrun: u32::MAX, ..Request::default() };
    assert_eq!((corrupt.periods(), corrupt.cpu_ns(u64::MAX)), (1 << 32, u64::MAX));
    let flags = RequestFlags::TRUNCATED | RequestFlags::IN_JAVA_THREAD;
    assert!(flags.contains(RequestFlags::TRUNCATED) && !flags.contains(RequestFlags::NO_STACK));
    assert!(Request::default().snapshot.is_none() && Request::default().flags == RequestFlags::EMPTY);
}

/// Spare slabs serve when the others are taken, are left alone otherwise, and can be taken out of service and back.
#[test]
fn a_pool_grows_and_shrinks() {
    let plan = [SlabClass { bytes: 64, count: 2, spare: 3 }, SlabClass { bytes: 256, count: 1, spare: 1 }];
    let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + SLAB_ALIGN - 1);
    let pool = SnapshotPool::new(&mut region, &plan).unwrap();
    // SAFETY: no bytes are claimed to be written.
    let fill = |bytes| pool.acquire(bytes).map(|slab| unsafe { slab.publish(0) });
    let number = |handle: SnapshotHandle| handle.bits() & 0xf_ffff;
    let fixed: Vec<_> = (0..2).map(|_| fill(64).unwrap()).collect();
    let other = fill(200).unwrap();
    assert!(fill(64).is_none(), "spare slabs are not in service");
    assert_eq!((pool.grow(0, 2), pool.grow(1, 5)), (2, 1));
    let spare: Vec<_> = (0..2).map(|_| fill(64).unwrap()).collect();
    assert_eq!(pool.acquire(64).map(|slab| slab.capacity()), Some(256), "the other class helps out");
    assert_eq!(pool.shrink(0, 9, |_| ()), 0, "all of them are in use");
    let stats = pool.stats();
    assert_eq!((stats.in_use(), stats.classes()[0].spare, stats.classes()[1].spare), (5, 2, 1));
    assert_eq!(stats.service_bytes(), 4 * 64 + 2 * 256);
    assert!(pool.release(fixed[0]) && pool.view(spare[0], 0).is_some());
    let again = fill(64).unwrap();
    assert_eq!(number(again), number(fixed[0]), "first those that were there from the start");
    let mut released = Vec::new();
    assert_eq!(pool.shrink(0, 9, |bytes| released.push((bytes.as_ptr() as usize % 64, bytes.len()))), 1);
    assert_eq!(released, [(0, 64)]);
    assert!(!pool.release(spare[0]), "a parked slab has no handle");
    assert!([again, fixed[1], spare[1], other].into_iter().all(|handle| pool.release(handle)));
    assert_eq!((pool.shrink(0, 9, |_| ()), pool.shrink(1, 9, |_| ())), (1, 1));
    assert_eq!((pool.stats().in_use(), pool.stats().service_bytes()), (0, 2 * 64 + 256));
    assert_eq!(pool.grow(0, 9), 3, "all spare slabs are there again");
}
