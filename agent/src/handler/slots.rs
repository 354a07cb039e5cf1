//! The handler's data: one slot for each profiled thread, and what all slots share.
//!
//! Problem: a timer signal carries a pointer, may arrive late and can be forged, so the handler must check the pointer.
//! Approach: all slots lie in one mapping that is never unmapped; a pointer is valid if a slot begins there. A slot is
//! reused only when its former thread can no longer be interrupted for it.
//! After a profile the pages read as zero, which means idle slots, empty queues and a pool without slabs
//! (`crate::guest::mappings`). A late handler that meets the next profile in its slot finds another timer, and samples
//! nothing.
//! Invariant: a [`publish`]ed [`Shared`] and its addresses live until the process ends.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use libc::{c_int, c_void, siginfo_t};
use queue::{ReadySet, SnapshotPool, ThreadQueue};
use stackwalk::{FrozenOffsets, ThreadOffsets};

use crate::clock::descriptors::Descriptors;
use crate::clock::drift::Drift;
use crate::clock::grid::{Grid, KEY_MASK, Key, PERIODS};
use crate::guest::mappings::map_forever;
use crate::handler::compilation::Compilers;
use crate::handler::draw::Draw;
use crate::handler::own_stack::BlockOffset;
use crate::handler::ucontext;

/// Most threads profiled at once; unused slots cost only addresses.
pub const MAX_THREADS: u32 = 1 << 16;

/// The handler's data of one profiled thread. All-zero bytes are a valid idle slot.
#[derive(Default)]
pub struct ThreadSlot {
    /// Requests of this thread.
    pub queue: ThreadQueue,
    /// The thread's `JavaThread*`, 0 while it is not a Java thread. Release by the registry after the stack bounds;
    /// Acquire by the handler.
    pub java_thread: AtomicU64,
    /// The thread's `CompilerThread*`, 0 while it is not known to be one. Relaxed: the handler compares it with the
    /// VM's own value for the running thread.
    pub compiler: AtomicU64,
    /// Lowest address of the thread's stack, 0 if unknown.
    pub stack_low: AtomicU64,
    /// One past the highest address of the thread's stack, 0 if unknown.
    pub stack_high: AtomicU64,
    /// Cycles of the thread's last handler run; only the thread itself touches it.
    pub last_cycles: AtomicU64,
    /// The current timer of the thread, and its periods.
    pub grid: Grid,
    /// The draw of the signals that become samples.
    pub draw: Draw,
    /// By how much the thread's perf event differs from its clock.
    pub drift: Drift,
    /// Number of that timer ([`Timer::number`](crate::clock::timer::Timer::number)) or event, 0 before the first.
    /// Relaxed: written before a system call starts the timer.
    pub timer: AtomicI32,
    /// Number of an event that has not expired yet, whose period is the time to its first expiration. Relaxed,
    /// likewise.
    pub begins: AtomicI32,
    /// Id of the virtual thread sampled last; only the thread itself touches it.
    pub virtual_thread: AtomicU64,
    /// Samples of that virtual thread in a row; only the thread itself touches it.
    pub virtual_samples: AtomicU64,
    /// True while the handler runs on the thread. Only the completeness of the last drain depends on it
    /// (`crate::profile::session`).
    pub busy: AtomicBool,
}

const _: () = assert!(align_of::<ThreadSlot>() as u64 > KEY_MASK, "a key fits below a slot's address");

impl ThreadSlot {
    /// Returns the value for the signals of a timer: the address of the slot, and the key in its low bits.
    pub fn signal_value(&'static self, key: Key) -> *mut c_void {
        let slot: *const Self = self;
        slot.cast_mut().cast::<c_void>().wrapping_byte_add(usize::from(key.bits()))
    }

    /// Moves the queue of an ended thread to the offered ring; for the registry, which ensures that no handler of the
    /// slot can run.
    pub(crate) fn adopt_ring(&self) {
        // SAFETY: no handler pushes, and the registry's lock orders this before the next owner.
        unsafe { self.queue.adopt() };
    }

    /// Size of a slot in cache lines.
    pub const LINES: usize = size_of::<Self>().div_ceil(64);
}

/// The data that the handlers of all threads share.
pub struct Shared {
    pub slots: &'static [ThreadSlot],
    /// Memory for stack copies.
    pub pool: SnapshotPool<'static>,
    /// Flags of the queues that have requests.
    pub ready: ReadySet<'static>,
    /// The threads of perf events, by descriptor; `None` with timers.
    pub descriptors: Option<Descriptors>,
    /// Timer periods in nanoseconds, by index; an entry in use does not change.
    pub periods: [AtomicU64; PERIODS],
    /// Mean CPU time between two samples of a thread, in nanoseconds; 0 if every signal is a sample. May change at any
    /// time, because a sample stands for what has expired since the last one.
    pub distance_ns: AtomicU64,
    /// Most stack bytes copied.
    pub max_stack: u64,
    /// Offsets in a `JavaThread`.
    pub offsets: ThreadOffsets,
    /// How compiler threads are read; `None` where that is not known.
    pub compilers: Option<Compilers>,
    /// Offsets for frozen frames of virtual threads; `None` where they cannot be followed.
    pub frozen: Option<&'static FrozenOffsets>,
    /// Descriptor of `/proc/self/mem` for checked reads where `process_vm_readv` is not available, else negative.
    pub memory_file: c_int,
    /// Garbage collection pauses: odd while one may be in progress, and before the VM reports any. The VM's thread adds
    /// one at a safepoint before and after objects are moved.
    pub pauses: AtomicU64,
    /// Offset of the stack's bounds in the C library's description of a thread, if it is known.
    pub block: Option<BlockOffset>,
    /// True if time stamps are those of the monotonic clock instead of the time stamp counter
    /// (`crate::clock::time_source`).
    pub uses_clock: bool,
    /// Set when profiling stops: later expirations count as lost.
    pub stopping: AtomicBool,
    /// Set after the end if no handler runs any more: the memory may be reused.
    pub is_at_rest: AtomicBool,
    pub signal: c_int,
    /// The signal's action before the agent's.
    pub previous: libc::sigaction,
    /// The last earlier profile of this process with other slots or another signal.
    pub former: Option<&'static Shared>,
}

/// The latest [`Shared`]. The first one of a process lies here, so that the handler follows no pointer to it.
struct Published {
    first: OnceLock<Shared>,
    /// The latest one if it is not the first. Release by [`publish`], Acquire by the handler.
    later: AtomicPtr<Shared>,
}

static PUBLISHED: Published =
    Published { first: OnceLock::new(), later: AtomicPtr::new(std::ptr::null_mut()) };

/// Makes `shared` visible to handlers in place of the one before; it is never freed.
pub fn publish(shared: Shared) -> &'static Shared {
    match PUBLISHED.first.set(shared) {
        Ok(()) => PUBLISHED.first.wait(),
        Err(shared) => {
            let shared = Box::leak(Box::new(shared));
            PUBLISHED.later.store(shared, Ordering::Release);
            shared
        }
    }
}

/// Returns the [`Shared`] that was published last. Signal safe.
#[inline]
pub fn shared() -> Option<&'static Shared> {
    let first = PUBLISHED.first.get()?;
    // SAFETY: null, or leaked before it was stored and only read afterwards.
    Some(unsafe { PUBLISHED.later.load(Ordering::Acquire).as_ref() }.unwrap_or(first))
}

impl Shared {
    /// Size in cache lines.
    pub const LINES: usize = size_of::<Self>().div_ceil(64);

    /// Makes every later expiration a lost one. A handler that has begun may still read the `JavaThread` of its thread,
    /// which cannot end meanwhile.
    pub fn silence(&self) {
        // Release: pairs with the locks by which threads learn of the end.
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns the time stamp for a reading of the processor's counter: the reading, or the kernel's clock where the
    /// counters of processors may differ. Signal safe.
    #[inline(always)]
    pub fn time_stamp(&self, cycles: u64) -> u64 {
        if self.uses_clock { ucontext::monotonic() } else { cycles }
    }

    /// Returns the timer period with this index, in nanoseconds. Signal safe.
    #[inline]
    pub fn period_ns(&self, index: u8) -> u64 {
        // Relaxed: written before the first timer with this index was made.
        self.periods.get(usize::from(index)).map_or(0, |period| period.load(Ordering::Relaxed))
    }

    /// Returns the slot at `pointer` with its index; `None` if none begins there. Signal safe.
    pub fn slot_at(&self, pointer: *const c_void) -> Option<(u32, &'static ThreadSlot)> {
        let offset = (pointer as usize).checked_sub(self.slots.as_ptr() as usize)?;
        let index = offset.checked_div(size_of::<ThreadSlot>())?;
        let slot = self.slots.get(index)?;
        let exact = std::ptr::eq(std::ptr::from_ref(slot).cast(), pointer);
        exact.then_some((index as u32, slot))
    }

    /// Returns this profile and the earlier ones of the process. Signal safe.
    pub fn all(&'static self) -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(self), |shared| shared.former)
    }

    /// Calls the handler that was installed before ours, as the kernel would have. Signal safe.
    ///
    /// # Safety
    /// The arguments are those the kernel passed to our handler.
    pub unsafe fn forward(&'static self, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        // Our handler may still be installed for the other signal of an earlier profile.
        let Some(user) = self.all().find(|shared| shared.signal == signal) else { return };
        // SAFETY: the arguments are the kernel's, and the action was read from the kernel.
        unsafe { call_action(&user.previous, signal, info, context) }
    }
}

/// Calls the handler of an action, if it has one. Signal safe as far as that handler is.
///
/// # Safety
/// The action was read from the kernel, for this signal; the other arguments are those the kernel passed to a handler.
pub unsafe fn call_action(
    action: &libc::sigaction,
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    let handler = action.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return;
    }
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: SA_SIGINFO says that it takes three arguments.
        let call: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { std::mem::transmute(handler) };
        call(signal, info, context);
    } else {
        // SAFETY: without SA_SIGINFO it takes the signal number.
        let call: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
        call(signal);
    }
}

/// Makes a clear flag of each byte of `region`.
pub fn flags_in(region: &'static mut [MaybeUninit<u8>]) -> &'static [AtomicU8] {
    region.iter_mut().for_each(|byte| {
        byte.write(0);
    });
    // SAFETY: every byte was just written, and is a valid AtomicU8 without other references.
    unsafe { std::slice::from_raw_parts(region.as_ptr().cast(), region.len()) }
}

/// Maps `count` zero words; unused pages take no memory.
///
/// # Errors
/// As mmap(2).
pub fn map_words(count: usize) -> io::Result<&'static [AtomicU32]> {
    let region = map_forever(count.saturating_mul(size_of::<AtomicU32>()))?;
    let words: *const AtomicU32 = region.as_ptr().cast();
    // SAFETY: the region is zeroed, page-aligned, long enough and never unmapped.
    Ok(unsafe { std::slice::from_raw_parts(words, count) })
}

/// Maps idle slots for [`MAX_THREADS`] threads.
///
/// # Errors
/// As mmap(2).
pub fn map_slots() -> io::Result<&'static [ThreadSlot]> {
    let region = map_forever(size_of::<ThreadSlot>().saturating_mul(MAX_THREADS as usize))?;
    let slots: *const ThreadSlot = region.as_ptr().cast();
    // SAFETY: the region is zeroed, page-aligned, long enough and never unmapped; a zeroed slot is valid.
    Ok(unsafe { std::slice::from_raw_parts(slots, MAX_THREADS as usize) })
}
