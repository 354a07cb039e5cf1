//! Per-thread request queues and the snapshot pool between a signal handler and the thread that drains them.
//!
//! A timer signal interrupts a profiled thread. Its handler may not allocate, lock, wait or panic, yet has to hand
//! over a record of some 48 bytes and a few kilobytes of copied stack.
//! This crate takes both: into memory made beforehand, lock-free, `no_std`, without an allocator.
//! It does not depend on JVMs, signals or the operating system; it stores plain integers and bytes.
//!
//! ```text
//!   handlers, one at a time on each thread                          sampler thread
//!
//!   SnapshotPool::acquire -> write -> publish ---- slabs ----> view -> bytes -> drop (slab is free again)
//!   ThreadQueue::push ------------- tail [ring of Requests] head ------> try_drain -> Request, Request, ...
//!   ReadySet::mark ---------------- which queues have requests --------> take -> index, index, ...
//!   LostCounters::add                                                    snapshot
//! ```
//!
//! # Rooms, from the bottom up
//!
//! - `sync`: atomics and cells, loom's in a model.
//! - `fault`: orders that a test weakens.
//! - `lost`: counters of refusals.
//! - `ready_set`: which queues have requests.
//! - `pool`: slabs for copies of stacks.
//! - `ring`: queues of requests, their sizes, and the ring of the stack-walk API.
//!
//! # Duties of the user
//!
//! - One producer for each [`ThreadQueue`]: calls of [`ThreadQueue::push`] for the same queue never overlap.
//!   A handler that runs on its own thread and cannot nest satisfies this.
//! - Count refusals: a full ring returns the request, a full pool returns `None`. Nothing is overwritten.
//! - Release the snapshot of a request that could not be pushed ([`SnapshotPool::release`]); a handle that is
//!   neither viewed nor released keeps its slab.
//!
//! # Example
//!
//! The handler interrupts a thread that shares only the statics with it.
//!
//! ```
//! use queue::{Capacity, LostCause, ReadySet, Request, RingStorage, SlabClass, SnapshotPool, ThreadQueue};
//!
//! use std::sync::atomic::AtomicU8;
//!
//! static QUEUE: ThreadQueue = ThreadQueue::new(); // one for each profiled thread; this is number 7
//! static FLAGS: [AtomicU8; 8] = [const { AtomicU8::new(0) }; 8];
//! static READY: ReadySet<'static> = ReadySet::new(&FLAGS);
//!
//! /// Runs in the signal handler: no allocation, no lock, no panic.
//! fn on_signal(pool: &SnapshotPool, pc: u64, stack: &[u8]) {
//!     pool.prefetch(); // a hint
//!     let mut request = Request { pc, ticks: 1_000, ..Request::default() };
//!     if let Some(mut slab) = pool.acquire(stack.len()) {
//!         let len = stack.len().min(slab.capacity());
//!         // SAFETY: the slab has room for `len` bytes and does not overlap the stack.
//!         unsafe { slab.as_mut_ptr().copy_from_nonoverlapping(stack.as_ptr(), len) };
//!         // SAFETY: the first `len` bytes were just written.
//!         request.snapshot = unsafe { slab.publish(len) };
//!         request.snapshot_len = len as u32;
//!     }
//!     // SAFETY: only this handler pushes to QUEUE, and it cannot nest.
//!     match unsafe { QUEUE.push(request) } {
//!         Ok(()) => READY.mark(7),
//!         Err(refused) => {
//!             pool.release(refused.snapshot);
//!             QUEUE.lost().add(LostCause::QueueFull, refused.cpu_ns(10_000_000));
//!         }
//!     }
//! }
//!
//! // Before the first signal: a ring of 16 entries (17 slots) and a pool of slabs.
//! let storage = Box::leak(Box::new(RingStorage::<17>::new()));
//! assert!(QUEUE.install(storage.split(), Capacity::Entries16).is_ok());
//! let plan = [SlabClass::fixed(4096, 4), SlabClass::fixed(65536, 1)];
//! let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&plan) + 63);
//! let pool = SnapshotPool::new(&mut region, &plan).unwrap();
//!
//! on_signal(&pool, 0x7f00, b"return addresses");
//!
//! // In the sampler thread.
//! for index in READY.take(8) {
//!     assert_eq!(index, 7);
//!     for request in QUEUE.try_drain().expect("the only drain") {
//!         assert_eq!(request.pc, 0x7f00);
//!         let view = pool.view(request.snapshot, request.snapshot_len as usize).unwrap();
//!         assert_eq!(view.bytes(), b"return addresses");
//!     }
//! }
//! assert_eq!(pool.stats().in_use(), 0);
//! ```
//!
//! # Orders of all atomics
//!
//! | Atomic | Release (or stronger) | Acquire (or stronger) it pairs with | What crosses |
//! |---|---|---|---|
//! | ring `tail` (heapless) | producer, after writing the slot | consumer, before reading the slot | the request |
//! | ring `head` (heapless) | consumer, after reading the slot | producer, before reusing the slot | the free slot |
//! | `ThreadQueue::state` | end of `install` | `push`, `try_drain` | the ring ends |
//! | `ThreadQueue::state`, ring offered | `Drain::offer` | `push`, `adopt` | the offered producer end |
//! | `ThreadQueue::state`, offer taken | `push`, `adopt`, when they take the offer | `Drain::next` | all that was
//! pushed to the old ring; its producer end |
//! | `ThreadQueue::draining` | drop of `Drain` | `try_drain` | the consumer end, the ring's `head` |
//! | `ReadySet` flag | store in `mark` | swap in `take` | requests pushed before `mark` |
//! | `FreeList::word` | exchange in `push` | load and exchange in `pop` | `next`; the last reader's end of reading |
//! | `SlabHeader::control` | `publish` | `view`, `release` | the slab's bytes |
//! | `ElementRing::tail`, `claimed` | `push`; `claim` | `claim`, `peek`; `pin` | the element; which are taken |
//! | `ElementRing::head` | `release` | `push` | the free place |
//! | `ElementRing::pinned` | `unpin`; fence in `pin` | `claim`, after its fence | what was stored to pinned elements |
//!
//! Locked instructions are the exchange in `acquire`, before the copy, and the instructions that only the drain or a
//! loss executes; [`Slab::publish`], [`ThreadQueue::push`] and [`ReadySet::mark`] consist of loads and stores.
//!
//! Everything else is relaxed: `FreeList::word` publishes `SlabHeader::next`, the slab's owner makes the other changes
//! of `SlabHeader::control` and the push that follows publishes them, and
//! [`LostCounters`] and the pool's counters are statistics that publish nothing.
//!
//! Loom explores these protocols, and `tests/loom.rs` shows for each that it detects a weakened order; a model with the
//! same orders replaces the ring itself.
//! Loom cannot show a handler that interrupts its own thread. There program order suffices: no operation is entered
//! twice on one thread for the same queue, and the free lists admit a handler between any two instructions of an
//! operation in progress, since the interrupted operation only finds its exchange refused.

#![no_std]
#![deny(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![warn(missing_docs)]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("the queue needs a target with 64-bit atomics");

#[cfg(loom)]
extern crate std;

mod fault;
mod lost;
mod pool;
mod ready_set;
mod ring;
mod sync;

#[cfg(loom)]
pub use fault::{Fault, with_fault};
pub use lost::{Lost, LostCause, LostCounters};
pub use pool::plan::{MAX_CLASSES, PlanError, SLAB_ALIGN, SlabClass};
pub use pool::prefetch::prefetch_for_reading;
pub use pool::slab_header::SnapshotHandle;
pub use pool::slabs::{Slab, SnapshotPool, SnapshotView};
pub use pool::stats::{ClassStats, PoolStats};
pub use ready_set::{ReadyIter, ReadySet};
pub use ring::capacity::Capacity;
pub use ring::element_ring::{Element, ElementRing, KEPT_WORDS, SHOWN_WORDS};
pub use ring::request::{Request, RequestFlags};
pub use ring::sizing::{QUIET_ROUNDS, SizeRange, Sizer};
pub use ring::spsc::{RingEnds, RingStorage};
pub use ring::thread_queue::{Drain, ThreadQueue};
