//! Memory that signal handlers may touch: one slot for each profiled thread, and data that all slots share.
//!
//! Problem: a timer signal carries a pointer, may arrive late, and can be forged; the handler must check the pointer
//! before it follows it.
//! Approach: all slots lie in one mapping that is never unmapped; a pointer is valid if it points at the start of a
//! slot inside it.
//! A slot is reused by another thread only when its former thread can no more be interrupted for it.
//! After a profile its pages go back to the kernel: they read as zero, which means idle slots, empty queues and a pool
//! without slabs. The next profile of the process uses the same addresses, unless a handler of the former one may still
//! run. A handler that has only just begun then finds another timer in its slot, and samples nothing.
//! Invariant: once [`publish`]ed, [`Shared`] lives until the process ends, and so do its addresses.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use libc::{c_int, c_void, siginfo_t};
use parking_lot::Mutex;
use queue::{ReadySet, SnapshotPool, ThreadQueue};
use stackwalk::{FrozenOffsets, ThreadOffsets};

use crate::clock::descriptors::Descriptors;
use crate::clock::drift::Drift;
use crate::clock::grid::{Grid, KEY_MASK, Key, PERIODS};
use crate::handler::compilation::Compilers;
use crate::handler::draw::Draw;
use crate::handler::own_stack::BlockOffset;
use crate::handler::ucontext;

/// Most threads profiled at once; the mapping costs address space only until a slot is used.
pub const MAX_THREADS: u32 = 1 << 16;

/// The handler's data of one profiled thread. All-zero bytes are a valid idle slot.
#[derive(Default)]
pub struct ThreadSlot {
    /// Requests of this thread.
    pub queue: ThreadQueue,
    /// The thread's `JavaThread*`, 0 while it is not a Java thread.
    /// Release by the registry after the stack bounds; Acquire by the handler.
    pub java_thread: AtomicU64,
    /// The thread's `CompilerThread*`, 0 while it is not known to be one. Relaxed: the handler uses it only if it is what the
    /// VM itself has stored for the running thread.
    pub compiler: AtomicU64,
    /// Lowest address of the thread's stack, 0 if unknown.
    pub stack_low: AtomicU64,
    /// One past the highest address of the thread's stack, 0 if unknown.
    pub stack_high: AtomicU64,
    /// Cycles of the thread's last handler run; only the thread itself touches it.
    pub last_cycles: AtomicU64,
    /// The current timer of the thread, and its periods.
    pub grid: Grid,
    /// Which of the timer's signals become samples.
    pub draw: Draw,
    /// By how much the thread's perf event differs from its clock.
    pub drift: Drift,
    /// Number of that timer ([`Timer::number`](crate::clock::timer::Timer::number)) or event, 0 before the first. Relaxed: written before
    /// the timer is started by a system call.
    pub timer: AtomicI32,
    /// Number of an event that has not expired yet, whose period is the time to its first expiration. Relaxed, as
    /// above.
    pub begins: AtomicI32,
    /// Id of the virtual thread sampled last; only the thread itself touches it.
    pub virtual_thread: AtomicU64,
    /// Samples of that virtual thread in a row; only the thread itself touches it.
    pub virtual_samples: AtomicU64,
    /// True if the handler runs on the thread now. Plain stores, which cost nothing; only the completeness of the last
    /// drain depends on it (`crate::profile::session`).
    pub busy: AtomicBool,
}

const _: () = assert!(align_of::<ThreadSlot>() as u64 > KEY_MASK, "a key fits below a slot's address");

impl ThreadSlot {
    /// Returns the value for the signals of a timer: the address of the slot, and the key in its low bits.
    pub fn signal_value(&'static self, key: Key) -> *mut c_void {
        let slot: *const Self = self;
        slot.cast_mut().cast::<c_void>().wrapping_byte_add(usize::from(key.bits()))
    }

    /// Moves the queue of a slot whose thread has ended to the ring it was offered; for the registry only, which
    /// ensures that no handler of the slot can run.
    pub(crate) fn adopt_ring(&self) {
        // SAFETY: by the caller's check no handler pushes, and the registry's lock orders this before the next owner.
        unsafe { self.queue.adopt() };
    }

    /// Size of a slot in cache lines.
    pub const LINES: usize = size_of::<Self>().div_ceil(64);
}

/// The data that the handlers of all threads share.
pub struct Shared {
    /// All slots.
    pub slots: &'static [ThreadSlot],
    /// Memory for stack copies.
    pub pool: SnapshotPool<'static>,
    /// Flags of the queues that have requests.
    pub ready: ReadySet<'static>,
    /// The threads of perf events, by descriptor; `None` with timers.
    pub descriptors: Option<Descriptors>,
    /// Timer periods in nanoseconds, by index; entries that are in use do not change.
    pub periods: [AtomicU64; PERIODS],
    /// Mean CPU time between two samples of a thread, in nanoseconds; 0 if every signal is a sample. May change at any
    /// time: the weight of a sample is what has expired since the last one.
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
    /// Garbage collection pauses: odd while one may be in progress, greater after each begin and end. Odd before the VM
    /// reports pauses. Written by the VM's thread at a safepoint, before and after objects are moved.
    pub pauses: AtomicU64,
    /// Offset of the stack's bounds in the C library's description of a thread, if it is known.
    pub block: Option<BlockOffset>,
    /// True if time stamps are those of the monotonic clock instead of the time stamp counter (`crate::clock::time_source`).
    pub uses_clock: bool,
    /// Set when profiling stops: later expirations count as lost.
    pub stopping: AtomicBool,
    /// Set after the end of the profile if no handler runs any more, so that its memory may be used again.
    pub is_at_rest: AtomicBool,
    /// The timers' signal.
    pub signal: c_int,
    /// The signal's action before the agent's.
    pub previous: libc::sigaction,
    /// The last profile of this process before this one that used other slots or another signal.
    pub former: Option<&'static Shared>,
}

// SAFETY: every field is Sync by itself but `previous`, a plain record that is never written after publication.
unsafe impl Sync for Shared {}

/// The first [`Shared`] of a process, in the library's own data, so that the handler follows no pointer to it.
struct FirstShared {
    /// Release by [`publish`], Acquire by the handler.
    ready: AtomicBool,
    /// The latest one if it is not the first, null in most processes; Release and Acquire as above.
    later: AtomicPtr<Shared>,
    value: UnsafeCell<MaybeUninit<Shared>>,
}

// SAFETY: `value` is written once, before `ready` is set, and only read afterwards.
unsafe impl Sync for FirstShared {}

static PUBLISHED: FirstShared = FirstShared {
    ready: AtomicBool::new(false),
    later: AtomicPtr::new(std::ptr::null_mut()),
    value: UnsafeCell::new(MaybeUninit::uninit()),
};

/// True if [`publish`] was called.
static IS_PUBLISHED: AtomicBool = AtomicBool::new(false);

/// Room for the records of later profiles, which are never freed: a thousand profiles take no further address space.
static LATER: Mutex<&'static mut [MaybeUninit<Shared>]> = Mutex::new(&mut []);
/// Number of records for which room is reserved at once.
const RESERVED_RECORDS: usize = 1024;

/// Makes `shared` visible to handlers in place of the one before; it lives for ever.
///
/// # Errors
/// As mmap(2).
pub fn publish(shared: Shared) -> io::Result<&'static Shared> {
    if IS_PUBLISHED.swap(true, Ordering::Relaxed) {
        let shared = keep(shared)?;
        PUBLISHED.later.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Release);
        return Ok(shared);
    }
    // SAFETY: the swap lets one call through, and readers wait for `ready`.
    let shared = unsafe { (*PUBLISHED.value.get()).write(shared) };
    PUBLISHED.ready.store(true, Ordering::Release);
    Ok(shared)
}

/// Moves a record to memory that is never freed.
fn keep(shared: Shared) -> io::Result<&'static Shared> {
    let mut room = LATER.lock();
    if room.is_empty() {
        let region = map(RESERVED_RECORDS * size_of::<Shared>())?;
        // SAFETY: the region is page-aligned, long enough, and lent to this list alone.
        *room = unsafe { std::slice::from_raw_parts_mut(region.as_mut_ptr().cast(), RESERVED_RECORDS) };
    }
    let (place, rest) = std::mem::take(&mut *room).split_first_mut().ok_or(io::ErrorKind::OutOfMemory)?;
    *room = rest;
    Ok(place.write(shared))
}

/// Returns the one published last. Signal safe.
#[inline]
pub fn shared() -> Option<&'static Shared> {
    if !PUBLISHED.ready.load(Ordering::Acquire) {
        return None;
    }
    let later = PUBLISHED.later.load(Ordering::Acquire);
    if !later.is_null() {
        // SAFETY: it was leaked before it was stored, and is only read afterwards.
        return Some(unsafe { &*later });
    }
    // SAFETY: nothing writes the cell once `ready` is set.
    let value = unsafe { &*PUBLISHED.value.get() };
    // SAFETY: it was written before `ready` was set.
    Some(unsafe { value.assume_init_ref() })
}

impl Shared {
    /// Size in cache lines.
    pub const LINES: usize = size_of::<Self>().div_ceil(64);

    /// Makes every expiration from now on a lost one. A handler that has begun before may still read the `JavaThread`
    /// of the thread it runs on, which cannot end meanwhile.
    pub fn silence(&self) {
        // Release: a thread that learns of the end by a lock sees this in its handlers.
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns the time stamp for a reading of the processor's counter: this reading, or the kernel's clock where the
    /// counters of two processors may differ. Signal safe.
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
        // An earlier profile may have used another signal, on which our handler still is installed.
        let Some(user) = self.all().find(|shared| shared.signal == signal) else { return };
        // SAFETY: by the caller's promise.
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

/// Size of a huge page with pages of 4 KB; where pages are larger, the advice for one is refused.
const HUGE_PAGE: usize = 2 << 20;

/// The smallest page of any supported machine.
const SMALLEST_PAGE: usize = 4 << 10;

/// A multiple of the size of a page: aarch64 has kernels with pages of 4, 16 and 64 KB. The kernel rounds the length of an
/// advice up to whole pages, so smaller parts must not be given back.
pub const PAGE: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { SMALLEST_PAGE };

/// Mappings of the present profile and free ones of earlier profiles, as addresses and sizes.
struct Mappings {
    used: Vec<(usize, usize)>,
    free: Vec<(usize, usize)>,
}

static MAPPINGS: Mutex<Mappings> = Mutex::new(Mappings { used: Vec::new(), free: Vec::new() });

/// Gives the pages of all mappings back to the kernel; the profile they were made for has ended.
///
/// The addresses stay mapped. If they are `reusable`, the next profile gets them; else a handler of the ended profile may
/// still run, because it was preempted: it reads zeros, and what it writes is never read. The mapping that contains the
/// address `prepared` is the next profile's, made before this call, and stays as it is.
pub fn release_former(reusable: bool, prepared: Option<usize>) {
    let mut mappings = MAPPINGS.lock();
    let is_prepared = |&(start, bytes): &(usize, usize)| {
        prepared.is_some_and(|address| (start..start.saturating_add(bytes)).contains(&address))
    };
    let (kept, used): (Vec<_>, _) = std::mem::take(&mut mappings.used).into_iter().partition(is_prepared);
    mappings.used = kept;
    for (address, bytes) in used {
        // SAFETY: our own private anonymous mapping, which stays mapped. References into it are to atomics, slabs and
        // rings, for all of which zero bytes are valid. A refusal changes nothing.
        let outcome = unsafe { libc::madvise(address as *mut c_void, bytes, libc::MADV_DONTNEED) };
        if reusable && outcome == 0 {
            mappings.free.push((address, bytes));
        }
    }
}

/// Returns `bytes` zeroed bytes that are never unmapped; a page costs memory once it is touched.
///
/// # Errors
/// As mmap(2).
pub fn map_forever(bytes: usize) -> io::Result<&'static mut [MaybeUninit<u8>]> {
    let mut mappings = MAPPINGS.lock();
    let region = match mappings.free.iter().position(|&(_, size)| size == bytes) {
        Some(place) => {
            let (address, bytes) = mappings.free.swap_remove(place);
            // SAFETY: the mapping of a former profile, whose references are not used any more.
            unsafe { std::slice::from_raw_parts_mut(address as *mut MaybeUninit<u8>, bytes) }
        }
        None => map(bytes)?,
    };
    mappings.used.push((region.as_ptr() as usize, bytes));
    Ok(region)
}

/// Maps `bytes` zeroed bytes.
fn map(bytes: usize) -> io::Result<&'static mut [MaybeUninit<u8>]> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is `bytes` long, writable, not referred to elsewhere and never unmapped.
    Ok(unsafe { std::slice::from_raw_parts_mut(address.cast(), bytes) })
}

/// As [`map_forever`], with the first huge page touched: one translation covers it, and the handler causes no page
/// fault there.
///
/// # Errors
/// As mmap(2).
pub fn map_forever_hot(bytes: usize) -> io::Result<&'static mut [MaybeUninit<u8>]> {
    let region = map_forever(bytes.saturating_add(HUGE_PAGE))?;
    let skip = region.as_ptr().align_offset(HUGE_PAGE);
    let region = region.get_mut(skip..).unwrap_or_default();
    let hot = region.len().min(HUGE_PAGE);
    // SAFETY: the range is part of our own mapping; the advice changes no content, and a refusal changes nothing.
    unsafe { libc::madvise(region.as_mut_ptr().cast(), hot, libc::MADV_HUGEPAGE) };
    for page in region.iter_mut().take(hot).step_by(SMALLEST_PAGE) {
        page.write(0);
    }
    Ok(region)
}

/// Gives the whole pages inside `bytes` back to the kernel; they stay mapped, and their content is lost.
pub fn release_pages(bytes: &mut [MaybeUninit<u8>]) {
    let pages = whole_pages(bytes, PAGE);
    // SAFETY: the pages are lent exclusively and may hold anything; the advice keeps the mapping. A refusal, as for an
    // empty range, changes nothing.
    unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_DONTNEED) };
}

/// Returns the pages of this size that lie wholly inside `bytes`.
fn whole_pages(bytes: &mut [MaybeUninit<u8>], page: usize) -> &mut [MaybeUninit<u8>] {
    let skip = bytes.as_ptr().align_offset(page);
    let pages = bytes.get_mut(skip..).unwrap_or_default();
    let length = pages.len() / page * page;
    pages.split_at_mut(length).0
}

/// Makes one clear flag of each byte of `region`.
pub fn flags_in(region: &'static mut [MaybeUninit<u8>]) -> &'static [AtomicU8] {
    region.iter_mut().for_each(|byte| {
        byte.write(0);
    });
    // SAFETY: every byte was just written, and is a valid AtomicU8 without other references.
    unsafe { std::slice::from_raw_parts(region.as_ptr().cast(), region.len()) }
}

/// Maps `count` words that are zero; a page costs memory once it is used.
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
    let region = map_forever(MAX_THREADS as usize * size_of::<ThreadSlot>())?;
    let slots: *const ThreadSlot = region.as_ptr().cast();
    // SAFETY: the region is zeroed, page-aligned, long enough and never unmapped; a zeroed slot is valid.
    Ok(unsafe { std::slice::from_raw_parts(slots, MAX_THREADS as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_next_profile_has_prepared_is_no_former_memory() {
        const BYTES: usize = 1 << 20;
        let former = map_forever(BYTES).expect("mapped");
        let prepared = map_forever_hot(BYTES).expect("mapped");
        former[0].write(7);
        prepared[0].write(7);
        release_former(true, Some(prepared.as_ptr() as usize));
        // SAFETY: a byte that was written, or one of the kernel's zeros.
        assert_eq!(unsafe { former[0].assume_init() }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { prepared[0].assume_init() }, 7);
        let next = map_forever_hot(BYTES).expect("mapped");
        assert_ne!(next.as_ptr(), prepared.as_ptr());
        // The profile has ended.
        release_former(true, Some(next.as_ptr() as usize));
        // SAFETY: as above.
        assert_eq!(unsafe { prepared[0].assume_init() }, 0);
    }

    #[test]
    fn whole_pages_lie_inside_whatever_the_size_of_a_page() {
        let region = map(1 << 20).expect("mapped");
        let start = region.as_ptr() as usize;
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for (from, to) in
                [(0, 1 << 20), (64, 200_000), (65_536, 131_072), (4_096, 69_632), (1, 4_097), (9, 9)]
            {
                let pages = whole_pages(&mut region[from..to], page);
                if pages.is_empty() {
                    let first = (start + from).next_multiple_of(page) - start;
                    assert!(first + page > to, "{page}: a page fits into {from}..{to}");
                    continue;
                }
                let first = pages.as_ptr() as usize - start;
                let end = first + pages.len();
                let whole = |at: usize| (start + at).is_multiple_of(page);
                assert!(whole(first) && whole(end) && from <= first && end <= to, "{page} {from}..{to}");
                assert!(first - from < page && to - end < page, "{page} {from}..{to}: none is left out");
            }
        }
    }

    #[test]
    fn what_is_given_back_reads_as_zero_and_its_neighbours_stay() {
        const BYTES: usize = 4 * (64 << 10);
        let region = map(BYTES).expect("mapped");
        region.iter_mut().for_each(|byte| _ = byte.write(0xaa));
        let start = region.as_ptr() as usize;
        let part = &mut region[100..BYTES - 100];
        let pages = whole_pages(part, PAGE);
        let first = pages.as_ptr() as usize - start;
        let released = first..first + pages.len();
        assert!(released.len() >= 2 * (64 << 10));
        release_pages(part);
        // SAFETY: every byte was written, or is one of the kernel's zeros.
        let bytes = unsafe { std::slice::from_raw_parts(region.as_ptr().cast::<u8>(), BYTES) };
        for (at, &byte) in bytes.iter().enumerate() {
            assert_eq!(byte, if released.contains(&at) { 0 } else { 0xaa }, "at {at} of {released:?}");
        }
    }
}
