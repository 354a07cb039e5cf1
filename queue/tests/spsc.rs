//! Real threads: every request arrives once, in order, or is counted as lost; slabs keep the written bytes.

#![cfg(not(loom))]
#![allow(missing_docs)]

use queue::{Capacity, LostCause, ReadySet, Request, RingStorage, SlabClass, SnapshotPool, ThreadQueue};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::thread;

const REQUESTS: u64 = 300_000;
const PRODUCERS: usize = 3;

fn queue_of_16() -> ThreadQueue {
    let queue = ThreadQueue::new();
    let ends = Box::leak(Box::new(RingStorage::<17>::new())).split();
    assert!(queue.install(ends, Capacity::Entries16).is_ok());
    queue
}

/// Pushes numbered requests while `goes_on` returns true for the next number; one that finds the ring full is counted
/// as lost. Returns the count of both.
fn produce(index: u32, queue: &ThreadQueue, ready: &ReadySet<'_>, goes_on: impl Fn(u64) -> bool) -> u64 {
    let mut number = 0;
    while goes_on(number) {
        // All fields depend on the number, so that a torn request shows.
        let request =
            Request { pc: number, sp: !number, fp: number << 32, ticks: number, ..Request::default() };
        // SAFETY: this thread alone pushes to its queue.
        match unsafe { queue.push(request) } {
            Ok(()) => ready.mark(index),
            Err(_) => {
                queue.lost().add(LostCause::QueueFull, 1);
                thread::yield_now();
            }
        }
        number += 1;
    }
    number
}

#[test]
fn all_requests_arrive_in_order_or_are_counted() {
    let queues: [ThreadQueue; PRODUCERS] = std::array::from_fn(|_| queue_of_16());
    let flags: [AtomicU8; PRODUCERS] = std::array::from_fn(|_| AtomicU8::new(0));
    let ready = ReadySet::new(&flags);
    let running = AtomicUsize::new(PRODUCERS);
    let mut received = [0u64; PRODUCERS];
    let mut last = [None; PRODUCERS];
    thread::scope(|scope| {
        for (index, queue) in queues.iter().enumerate() {
            let (ready, running) = (&ready, &running);
            scope.spawn(move || {
                produce(index as u32, queue, ready, |number| number < REQUESTS);
                running.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            // Read before the sweep: all requests pushed before the last producer ended are swept below.
            let ended = running.load(Ordering::Acquire) == 0;
            for index in ready.take(PRODUCERS as u32) {
                let index = index as usize;
                for request in queues[index].try_drain().expect("this thread alone drains") {
                    assert_eq!((request.sp, request.fp), (!request.pc, request.pc << 32), "torn");
                    assert!(last[index] < Some(request.pc), "{:?} before {}", last[index], request.pc);
                    last[index] = Some(request.pc);
                    received[index] += 1;
                }
            }
            if ended {
                break;
            }
            thread::yield_now();
        }
    });
    for (queue, received) in queues.iter().zip(received) {
        let lost = queue.lost().snapshot()[LostCause::QueueFull.index()];
        assert_eq!(received + lost.count, REQUESTS, "the account closes without a last sweep of all queues");
        assert_eq!(queue.try_drain().unwrap().count(), 0);
    }
}

#[test]
fn slabs_of_several_threads_do_not_mix() {
    const ROUNDS: u64 = 100_000;
    let plan = [SlabClass::fixed(64, 2), SlabClass::fixed(128, 2)];
    let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + 63);
    let pool = SnapshotPool::new(&mut region, &plan).unwrap();
    let refused: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..6u64)
            .map(|worker| {
                let pool = &pool;
                scope.spawn(move || {
                    let mut refused = 0;
                    for round in 0..ROUNDS {
                        let word = (worker << 48 | round).to_ne_bytes();
                        let Some(mut slab) = pool.acquire(64) else {
                            refused += 1;
                            continue;
                        };
                        for offset in (0..64).step_by(8) {
                            let at = slab.as_mut_ptr().wrapping_add(offset);
                            // SAFETY: every slab has at least 64 bytes.
                            unsafe { at.copy_from_nonoverlapping(word.as_ptr(), 8) };
                        }
                        // SAFETY: the loop wrote 64 bytes.
                        let handle = unsafe { slab.publish(64) };
                        let view = pool.view(handle, 64).expect("the handle is ours alone");
                        assert!(view.bytes().chunks(8).all(|chunk| chunk == word));
                    }
                    refused
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let stats = pool.stats();
    assert_eq!((stats.in_use(), stats.failed), (0, refused));
    // No slab was lost: all four can be held at once, and no fifth.
    let held: Vec<_> = (0..5).map_while(|_| pool.acquire(64)).collect();
    assert_eq!(held.len(), 4);
}

/// The drain offers a ring of another size whenever it can, and hands the retired one to the next, until it has done so
/// often enough: on a loaded machine the producer alone may run for many thousand requests.
#[test]
fn rings_change_under_a_running_producer() {
    const ENOUGH: u64 = 100;
    const AT_MOST: u64 = 1000 * REQUESTS;
    let queue = queue_of_16();
    let flags = [AtomicU8::new(0)];
    let ready = ReadySet::new(&flags);
    let running = AtomicUsize::new(1);
    let mut spare = vec![
        Box::leak(Box::new(RingStorage::<33>::new())).split(),
        Box::leak(Box::new(RingStorage::<65>::new())).split(),
    ];
    let (mut received, mut last) = (0u64, None);
    let retired = AtomicU64::new(0);
    let produced = thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let more = |number| number < AT_MOST && retired.load(Ordering::Relaxed) < ENOUGH;
            let produced = produce(0, &queue, &ready, |number| number < REQUESTS || more(number));
            running.fetch_sub(1, Ordering::Release);
            produced
        });
        loop {
            // Read before the sweep: all requests pushed before the producer ended are swept below.
            let ended = running.load(Ordering::Acquire) == 0;
            for _ in ready.take(1) {
                let mut drain = queue.try_drain().expect("this thread alone drains");
                for request in drain.by_ref() {
                    assert_eq!((request.sp, request.fp), (!request.pc, request.pc << 32), "torn");
                    assert!(last < Some(request.pc), "{last:?} before {}", request.pc);
                    last = Some(request.pc);
                    received += 1;
                }
                if let Some(ring) = drain.take_retired() {
                    retired.fetch_add(1, Ordering::Relaxed);
                    spare.insert(0, ring);
                }
                if let Some(Err(back)) = spare.pop().map(|ring| drain.offer(ring)) {
                    spare.push(back);
                }
            }
            if ended {
                break;
            }
            thread::yield_now();
        }
        producer.join().expect("the producer does not panic")
    });
    let lost = queue.lost().snapshot()[LostCause::QueueFull.index()].count;
    assert_eq!(received + lost, produced);
    let retired = retired.into_inner();
    assert!(retired >= ENOUGH, "only {retired} rings were handed over");
}
