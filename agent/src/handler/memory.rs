//! The memory that handlers use: flags, queues of the first threads, slabs for stack copies.
//!
//! Approach: one stretch of memory that begins with what every tick touches.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "not called by handlers")]

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use queue::{PlanError, ReadySet, SlabClass, SnapshotPool};
use sampler_thread::period::aim::Aim;
use stackwalk::{FrozenOffsets, LiveMemory, ThreadOffsets};

use crate::clock::descriptors::Descriptors;
use crate::clock::perf_event;
use crate::clock::timer;
use crate::guest::mappings;
use crate::handler::compilation::Compilers;
use crate::handler::install::{self, SignalError};
use crate::handler::own_stack::{self, BlockOffset};
use crate::handler::rings::RingMemory;
use crate::handler::slots::{self, Shared};
use agent_options::{ClockOption, Options};

/// Memory prepared on a separate thread: clearing a huge page takes 0.2 ms and more, and the offset is found on a
/// thread made by the C library.
#[derive(Debug)]
pub struct Room {
    region: io::Result<&'static mut [MaybeUninit<u8>]>,
    classes: [SlabClass; 5],
    block: Option<BlockOffset>,
}

/// Memory that is still being prepared.
#[derive(Debug)]
pub struct PreparedRoom<T>(JoinHandle<(Room, T)>);

impl<T: Send + 'static> PreparedRoom<T> {
    /// Starts a thread that calls `first` and then prepares the memory for these options.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(options: &Options, first: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (queues, max_stack, slabs) = (options.debug.queues, options.max_stack, options.debug.slabs());
        let prepare = move || {
            let done = first();
            // Reading these files of the kernel takes 0.1 ms each.
            timer::adapt_share();
            let processors = std::thread::available_parallelism().map_or(2, usize::from);
            let classes = slab_classes(processors, max_stack, slabs);
            let bytes =
                FLAG_BYTES + RingMemory::near_bytes(queues.start) + SnapshotPool::bytes_needed(&classes);
            (Room { block: own_stack::find(), region: mappings::map_forever_hot(bytes), classes }, done)
        };
        std::thread::Builder::new().name("tickwalk-start".to_owned()).spawn(prepare).map(Self)
    }

    /// Waits until it is prepared.
    ///
    /// # Errors
    /// The thread has failed.
    pub fn finish(self) -> io::Result<(Room, T)> {
        self.0.join().map_err(|_| io::Error::other("its thread panicked"))
    }
}

/// Fields of the VM that handlers read.
pub struct VmFields {
    /// Fields of a `JavaThread`.
    pub offsets: ThreadOffsets,
    /// Fields of virtual threads; `None` where they cannot be followed.
    pub frozen: Option<&'static FrozenOffsets>,
    /// Fields of compiler threads, if they are known.
    pub compilers: Option<Compilers>,
}

/// The reason why handlers get no memory.
#[derive(Debug)]
pub enum PublishError {
    /// No signal can be used.
    Signal(SignalError),
    /// Memory cannot be mapped.
    Memory(io::Error),
    /// The thread that prepares the memory could not be started.
    Thread(io::Error),
}

/// Bytes of the flags of all threads.
const FLAG_BYTES: usize = slots::MAX_THREADS as usize;

/// Publishes the memory to handlers.
///
/// # Errors
/// [`PublishError::Signal`], [`PublishError::Memory`], [`PublishError::Thread`].
pub fn publish(
    options: &Options,
    prepared: Option<Room>,
    aim: Aim,
    fields: VmFields,
    memory: &'static LiveMemory,
    signal: i32,
    uses_clock: bool,
) -> Result<(&'static Shared, RingMemory), PublishError> {
    let former = slots::shared();
    let previous = install::previous_action(signal, former).map_err(PublishError::Signal)?;
    let address =
        prepared.as_ref().and_then(|room| room.region.as_ref().ok()).map(|region| region.as_ptr() as usize);
    mappings::release_former(former.is_none_or(|former| former.is_at_rest.load(Ordering::Acquire)), address);
    let begin = || PreparedRoom::begin(options, || ()).and_then(PreparedRoom::finish).map(|(room, ())| room);
    let Room { region, block, classes } = prepared.map_or_else(begin, Ok).map_err(PublishError::Thread)?;
    let region = region.map_err(PublishError::Memory)?;
    let start = options.debug.queues.start;
    let (flags, region) = region.split_at_mut(FLAG_BYTES);
    let (rings, slabs) = region.split_at_mut(RingMemory::near_bytes(start));
    let pool = pool_of(slabs, &classes)
        .map_err(|error| PublishError::Memory(io::Error::other(error.to_string())))?;
    let slots = slots::map_slots().map_err(PublishError::Memory)?;
    let descriptors = match options.clock {
        ClockOption::Timer => None,
        ClockOption::Perf => {
            let words = slots::map_words(perf_event::most_descriptors()).map_err(PublishError::Memory)?;
            Some(Descriptors::new(words))
        }
    };
    let is_replaced = |former: &&Shared| former.signal == signal && std::ptr::eq(former.slots, slots);
    let shared = slots::publish(Shared {
        slots,
        descriptors,
        pool,
        ready: ReadySet::new(slots::flags_in(flags)),
        periods: std::array::from_fn(|index| AtomicU64::new(if index == 0 { aim.period_ns } else { 0 })),
        distance_ns: AtomicU64::new(aim.distance_ns()),
        max_stack: options.max_stack as u64,
        offsets: fields.offsets,
        frozen: fields.frozen,
        compilers: fields.compilers,
        memory_file: memory.proc_self_mem().unwrap_or(-1),
        pauses: AtomicU64::new(1),
        block,
        uses_clock,
        stopping: AtomicBool::new(false),
        is_at_rest: AtomicBool::new(false),
        signal,
        previous,
        former: match former {
            Some(former) if is_replaced(&former) => former.former,
            former => former,
        },
    });
    let rings = RingMemory::new(start, rings).map_err(PublishError::Memory)?;
    Ok((shared, rings))
}

/// Finds the offset on a new thread of the C library, because the calling one may be the process's first.
pub fn block_offset() -> Option<BlockOffset> {
    let thread = std::thread::Builder::new().spawn(own_stack::find).ok()?;
    thread.join().ok().flatten()
}

/// Makes the pool, with the spare slabs of the largest class in service: all classes fall back on it, and unused slabs
/// take no memory.
fn pool_of<'m>(
    slabs: &'m mut [MaybeUninit<u8>],
    classes: &[SlabClass],
) -> Result<SnapshotPool<'m>, PlanError> {
    let pool = SnapshotPool::new(slabs, classes)?;
    pool.grow(classes.len() - 1, usize::MAX);
    Ok(pool)
}

/// Minimum of slabs in all classes but the largest: half a second of two busy processors with 250 ticks a second, if
/// many busy threads keep the sampler waiting.
const MIN_SLABS: usize = 256;

/// Returns the classes of slabs for this number of processors and size of copies; `fixed` is their number in each
/// class, then without spare ones.
///
/// Between two drains there is at most one sample per processor and tick; 128 per processor cover half a second, and
/// more than a second at the default interval. Unused slabs cost only addresses. Typical stacks are below 16 KiB; the
/// larger classes are for deep recursion and the interpreter. Large copies make drains frequent, so the largest class
/// holds 32 ms of samples, or 160 ms with the spare slabs, which are in service from the start.
fn slab_classes(processors: usize, max_stack: usize, fixed: Option<NonZeroUsize>) -> [SlabClass; 5] {
    let processors = processors.clamp(2, 256);
    // `count` slabs are in service for each processor, and `most` at most.
    let class = |bytes, count: usize, most: usize, min: usize| {
        if let Some(count) = fixed {
            return SlabClass::fixed(bytes, count.get());
        }
        let (count, most) = (count * processors, (most * processors).max(min));
        SlabClass { bytes, count, spare: most - count }
    };
    [
        class(512, 128, 160, MIN_SLABS),
        class(8 << 10, 128, 160, MIN_SLABS),
        class(32 << 10, 64, 80, MIN_SLABS),
        class(160 << 10, 16, 40, MIN_SLABS),
        class(max_stack.max(256 << 10) + 4096, 8, 40, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use queue::SLAB_ALIGN;

    #[test]
    fn deep_stacks_find_slabs_before_the_first_drain() {
        let classes = slab_classes(2, 1 << 20, None);
        let mut region = Box::new_uninit_slice(SnapshotPool::bytes_needed(&classes) + SLAB_ALIGN - 1);
        let pool = pool_of(&mut region, &classes).expect("a plan");
        let slabs: Vec<_> = (0..80).map_while(|_| pool.acquire(1 << 20)).collect();
        // Two busy threads take 160 ms for so many at ticks of 4 ms.
        assert!(slabs.len() == 80 && slabs.iter().all(|slab| slab.capacity() > 1 << 20));
    }
}
