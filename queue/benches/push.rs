//! Costs in the handler: nanoseconds for an accepted push, a refused push, a mark and a slab.
//!
//! Prints median and spread over rounds, with the processor and the conditions; run with `cargo bench -p queue`.
//! A recorded run is in `benches/push.txt`.

#![cfg_attr(loom, no_main)]
#![cfg(not(loom))]
#![allow(missing_docs)]

use queue::{Capacity, ReadySet, Request, RingStorage, SlabClass, SnapshotHandle, SnapshotPool, ThreadQueue};
use std::hint::black_box;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

const ROUNDS: usize = 201;
const BATCHES: usize = 64;
/// Pushes between two drains in one round, which fill the ring.
const ENTRIES: usize = 1024;

/// Runs `round`, which returns the nanoseconds of one operation, and prints the distribution over rounds.
fn report(name: &str, mut round: impl FnMut() -> f64) {
    let mut nanos: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    nanos.sort_by(f64::total_cmp);
    let at = |share: f64| nanos[((ROUNDS - 1) as f64 * share) as usize];
    println!("{name:<34} {:>8.2} {:>8.2} {:>8.2} {:>8.2}", at(0.5), at(0.1), at(0.9), at(1.0));
}

/// Nanoseconds of each of `count` calls of `operation`.
fn time(count: usize, mut operation: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        operation();
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned()
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("cpu: {}, {} MHz, load {}", field("model name"), field("cpu MHz"), load.trim());
    println!("one thread, warm caches, {ROUNDS} rounds; the clock is read twice a round");
    println!("{:<34} {:>8} {:>8} {:>8} {:>8}", "ns per operation", "median", "p10", "p90", "max");

    let queue = ThreadQueue::new();
    let ends = Box::leak(Box::new(RingStorage::<{ ENTRIES + 1 }>::new())).split();
    assert!(queue.install(ends, Capacity::Entries1024).is_ok());
    let request = Request { pc: 1, sp: 2, fp: 3, ticks: 4, ..Request::default() };
    // SAFETY: only this thread pushes, here and below.
    let push = || unsafe { queue.push(black_box(request)) };

    report("push, accepted", || {
        let mut sum = 0.0;
        for _ in 0..BATCHES {
            sum += time(ENTRIES, || assert!(push().is_ok()));
            assert_eq!(queue.try_drain().expect("nobody else drains").count(), ENTRIES);
        }
        sum / BATCHES as f64
    });
    report("drain, each request", || {
        (0..ENTRIES).for_each(|_| assert!(push().is_ok()));
        let mut drain = queue.try_drain().expect("nobody else drains");
        time(ENTRIES, || assert!(black_box(drain.next()).is_some()))
    });
    (0..ENTRIES).for_each(|_| assert!(push().is_ok()));
    report("push, ring full", || time(ENTRIES * BATCHES, || assert!(push().is_err())));

    let flags: Vec<AtomicU8> = (0..10_000).map(|_| AtomicU8::new(0)).collect();
    let ready = ReadySet::new(&flags);
    report("mark", || time(ENTRIES * BATCHES, || black_box(&ready).mark(black_box(7))));
    assert_eq!(ready.take(10_000).count(), 1);
    report("take none of 10,000", || time(ENTRIES, || assert_eq!(black_box(&ready).take(10_000).count(), 0)));
    report("take 10 of 10,000", || {
        time(ENTRIES, || {
            (0..10).for_each(|index| ready.mark(index * 1_000));
            assert_eq!(black_box(&ready).take(10_000).count(), 10);
        })
    });
    report("take 10 of 10", || {
        time(ENTRIES, || {
            (0..10).for_each(|index| ready.mark(index));
            assert_eq!(black_box(&ready).take(10).count(), 10);
        })
    });

    let plan = [SlabClass::fixed(8192, 64), SlabClass::fixed(65536, 8)];
    let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + 63);
    let pool = SnapshotPool::new(&mut region, &plan).expect("the plan is in range");
    report("acquire, publish", || {
        let mut handles = [SnapshotHandle::NONE; 64];
        let nanos = time(1, || {
            for handle in &mut handles {
                let slab = pool.acquire(black_box(8000)).expect("slabs are free");
                // SAFETY: no bytes are claimed to be written.
                *handle = unsafe { slab.publish(0) };
            }
        });
        assert!(handles.into_iter().all(|handle| pool.release(handle)));
        nanos / 64.0
    });
    report("acquire, publish, view, free", || {
        time(ENTRIES, || {
            let slab = pool.acquire(black_box(8000)).expect("slabs are free");
            // SAFETY: no bytes are claimed to be written.
            let handle = unsafe { slab.publish(0) };
            assert!(pool.view(handle, 0).is_some());
        })
    });
    let mut held = Vec::new();
    while let Some(slab) = pool.acquire(8000) {
        held.push(slab);
    }
    report("acquire, pool empty", || time(ENTRIES, || assert!(pool.acquire(black_box(8000)).is_none())));
}
