//! The stack of a thread whose bounds the VM does not know, from the C library's description of the thread.
//!
//! Problem: GC, compiler and native threads are found without the bounds of their stacks, and the kernel returns them
//! only by a system call.
//! Approach: the thread pointer leads to the C library's description of the running thread, which has start and size of
//! the block of its stack. Their offset is not part of an interface: it is found once, on a thread whose bounds the
//! library returns ([`find`]). The first thread of a process has no block; the end of its stack is read once from the
//! kernel.
//! Invariant: the description lies at the high end of the block and lives as long as its thread, so everything from an
//! sp inside the block up to the thread pointer is mapped. Stacks of coroutines and alternate stacks have no bounds.
//! Sources: glibc `nptl/{descr.h,allocatestack.c,pthread_getattr_np.c}`, musl `src/internal/pthread_impl.h`.

use core::mem::MaybeUninit;

use sampler_thread::native::maps;

use super::cpu::{OFFSET_IS_BELOW_POINTER, thread_description};
use super::ucontext::load;

/// Bytes of a description that are searched for the block; glibc's has 2,304, and the block at 1,700.
const DESCRIPTION_BYTES: u64 = 4096;

/// Bytes below the end of the first thread's stack where the kernel maps nothing else (`MIN_GAP` in Linux
/// `arch/x86/mm/mmap.c` is 128 MiB).
const FIRST_STACK: u64 = 64 << 20;

/// Places of the bounds of the running thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOffset {
    /// From [`thread_description`] to start and size of the thread's block.
    offset: u32,
    /// End of the stack of the process's first thread, 0 if it is unknown.
    first_stack_end: u64,
}

/// Returns the lowest and one past the highest address of the running thread's stack: those given, or those of its
/// block if `high` is 0; zeros if they are unknown. Signal safe.
#[inline(always)]
pub fn bounds(low: u64, high: u64, sp: u64, block: Option<BlockOffset>) -> (u64, u64) {
    match block {
        Some(block) if high == 0 => own(sp, block).unwrap_or((0, 0)),
        _ => (low, high),
    }
}

#[cold]
fn own(sp: u64, BlockOffset { offset, first_stack_end }: BlockOffset) -> Option<(u64, u64)> {
    let first = (first_stack_end.saturating_sub(FIRST_STACK), first_stack_end);
    if (first.0..first.1).contains(&sp) {
        return Some(first);
    }
    let description = thread_description(DESCRIPTION_BYTES);
    // SAFETY: the C library has the field there in the description of each thread.
    let start: u64 = unsafe { load(description, offset) };
    // SAFETY: the size follows the start.
    let size: u64 = unsafe { load(description, offset.checked_add(8)?) };
    let end = start.checked_add(size)?;
    // The description begins here, or between here and the field.
    let top = if OFFSET_IS_BELOW_POINTER { description.checked_add(offset.into())? } else { description };
    let is_inside = start != 0 && start <= sp && sp < top && top < end;
    is_inside.then_some((start, top & !7))
}

/// Finds the offset on the calling thread, which the C library made; `None` if its description is of another form.
pub fn find() -> Option<BlockOffset> {
    let description = thread_description(DESCRIPTION_BYTES);
    let (low, high) = library_bounds()?;
    if !(low..high).contains(&description) {
        return None;
    }
    let last = high.saturating_sub(description).min(DESCRIPTION_BYTES).checked_sub(16)?;
    let offsets = (0..=u32::try_from(last).ok()?).step_by(8);
    let mut found = offsets.filter(|&offset| {
        // SAFETY: between the thread's description and the end of the thread's own stack.
        let start: u64 = unsafe { load(description, offset) };
        // SAFETY: the search ends 16 bytes before the end of the stack.
        let size: u64 = unsafe { load(description, offset.saturating_add(8)) };
        // The block may begin with a guard.
        start != 0 && start <= low && start.checked_add(size) == Some(high)
    });
    // Frames of the running functions may lie between here and the description, with such values of their own.
    let offset = if OFFSET_IS_BELOW_POINTER { found.last() } else { found.next() };
    let maps = maps::read().unwrap_or_default();
    let first_stack = maps::parse(&maps).find(|mapping| mapping.path == "[stack]");
    Some(BlockOffset { offset: offset?, first_stack_end: first_stack.map_or(0, |mapping| mapping.end) })
}

/// Returns the bounds of the calling thread's stack from the C library.
fn library_bounds() -> Option<(u64, u64)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::zeroed();
    // SAFETY: the calling thread always exists.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the attributes are writable.
    if unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut low, mut size) = (core::ptr::null_mut(), 0_usize);
    // SAFETY: the call above filled the attributes.
    let outcome = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size) };
    // SAFETY: filled attributes, which are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    let low = low as u64;
    (outcome == 0 && low != 0).then_some((low, low.checked_add(size as u64)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_library_describe_their_stacks() {
        let local = 0_u8;
        let sp = core::ptr::from_ref(&local) as u64;
        let block = find();
        assert!(block.is_some(), "glibc and musl keep start and size of the block together");
        let there = std::thread::spawn(move || {
            let local = 0_u8;
            let sp = core::ptr::from_ref(&local) as u64;
            (sp, bounds(0, 0, sp, block), library_bounds())
        });
        let (other, (low, high), library) = there.join().unwrap_or_default();
        let (library_low, library_high) = library.unwrap_or_default();
        assert!((low..high).contains(&other), "{other:x} in {low:x}..{high:x}");
        assert!(low <= library_low && high <= library_high);
        assert!(high > library_high.saturating_sub(DESCRIPTION_BYTES));
        assert!(!(low..high).contains(&sp), "another thread's stack");
        assert_eq!(bounds(0, 0, other, block), (0, 0), "an sp outside of the block");
        assert_eq!(bounds(5, 9, sp, block), (5, 9), "given bounds are kept");
        assert_eq!(bounds(0, 0, sp, None), (0, 0));
    }
}
