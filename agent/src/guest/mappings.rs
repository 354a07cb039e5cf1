//! Memory for signal handlers, which is never unmapped.
//!
//! Problem: a handler of a profile that has ended may still run, because its thread was preempted. Its memory must stay
//! readable, but a program with a thousand profiles must not grow.
//! Approach: after a profile its pages go back to the kernel and read as zeros. The next profile gets the same
//! addresses, unless such a handler may exist.

use std::io;
use std::mem::MaybeUninit;

use parking_lot::Mutex;

/// Size of a huge page with pages of 4 KB; where pages are larger, the kernel refuses the advice.
const HUGE_PAGE: usize = 2 << 20;

/// The smallest page of any supported machine.
const SMALLEST_PAGE: usize = 4 << 10;

/// A multiple of the page size: aarch64 has kernels with pages of 4, 16 and 64 KB. The kernel rounds the length of an
/// advice up to whole pages, so smaller parts must not be given back.
pub const PAGE: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { SMALLEST_PAGE };

/// Mappings of this profile, and free ones of earlier profiles.
struct Mappings {
    used: Vec<Mapping>,
    free: Vec<Mapping>,
}

#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    bytes: usize,
}

static MAPPINGS: Mutex<Mappings> = Mutex::new(Mappings { used: Vec::new(), free: Vec::new() });

/// Gives the pages of all mappings of the ended profile back to the kernel.
///
/// If they are `reusable`, the next profile gets the addresses; otherwise a handler may still run, which then reads
/// zeros, and its writes are never read. The mapping around the address `prepared` belongs to the next profile and
/// stays as it is.
pub fn release_former(reusable: bool, prepared: Option<usize>) {
    let mut mappings = MAPPINGS.lock();
    let is_prepared = |mapping: &Mapping| {
        let place = prepared.and_then(|address| address.checked_sub(mapping.start));
        place.is_some_and(|place| place < mapping.bytes)
    };
    let (kept, used): (Vec<_>, _) = std::mem::take(&mut mappings.used).into_iter().partition(is_prepared);
    mappings.used = kept;
    for mapping in used {
        let start = mapping.start as *mut libc::c_void;
        // SAFETY: our own private anonymous mapping, which stays mapped. References into it are to atomics, slabs and
        // rings, for all of which zero bytes are valid. A refusal changes nothing.
        let outcome = unsafe { libc::madvise(start, mapping.bytes, libc::MADV_DONTNEED) };
        if reusable && outcome == 0 {
            mappings.free.push(mapping);
        }
    }
}

/// Returns `bytes` zeroed bytes that are never unmapped; a page takes memory once it is touched.
///
/// # Errors
/// As mmap(2).
pub fn map_forever(bytes: usize) -> io::Result<&'static mut [MaybeUninit<u8>]> {
    let mut mappings = MAPPINGS.lock();
    let start = match mappings.free.iter().position(|free| free.bytes == bytes) {
        Some(place) => mappings.free.swap_remove(place).start,
        None => map(bytes)?,
    };
    mappings.used.push(Mapping { start, bytes });
    // SAFETY: a mapping of this size, writable and never unmapped. Nothing else refers to it: it is new, or the
    // references of the former profile are not used any more.
    Ok(unsafe { std::slice::from_raw_parts_mut(start as *mut MaybeUninit<u8>, bytes) })
}

/// Maps `bytes` zeroed bytes and returns their address.
fn map(bytes: usize) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}

/// Maps like [`map_forever`] and touches the first huge page: one translation covers it, and handlers cause no page
/// faults there.
///
/// # Errors
/// As mmap(2).
pub fn map_forever_hot(bytes: usize) -> io::Result<&'static mut [MaybeUninit<u8>]> {
    let region = map_forever(bytes.saturating_add(HUGE_PAGE))?;
    let skip = region.as_ptr().align_offset(HUGE_PAGE);
    let region = region.get_mut(skip..).unwrap_or_default();
    let hot = region.len().min(HUGE_PAGE);
    // SAFETY: part of our own mapping; the advice changes no content, and a refusal changes nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps bytes that no other test releases.
    fn mapped(bytes: usize) -> &'static mut [MaybeUninit<u8>] {
        let start = map(bytes).expect("mapped") as *mut MaybeUninit<u8>;
        // SAFETY: a new mapping of this size.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }

    #[test]
    fn memory_prepared_for_the_next_profile_is_kept() {
        const BYTES: usize = 1 << 20;
        let former = map_forever(BYTES).expect("mapped");
        let prepared = map_forever_hot(BYTES).expect("mapped");
        former[0].write(7);
        prepared[0].write(7);
        release_former(true, Some(prepared.as_ptr() as usize));
        // SAFETY: a byte that was written, or one of the kernel's zeros.
        assert_eq!(unsafe { former[0].assume_init() }, 0);
        // SAFETY: as for the other mapping.
        assert_eq!(unsafe { prepared[0].assume_init() }, 7);
        let next = map_forever_hot(BYTES).expect("mapped");
        assert_ne!(next.as_ptr(), prepared.as_ptr());
        // The profile has ended.
        release_former(true, Some(next.as_ptr() as usize));
        // SAFETY: as for the other mapping.
        assert_eq!(unsafe { prepared[0].assume_init() }, 0);
    }

    #[test]
    fn whole_pages_lie_inside_for_every_page_size() {
        let region = mapped(1 << 20);
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
    fn released_pages_read_as_zero_and_their_neighbours_stay() {
        const BYTES: usize = 4 * (64 << 10);
        let region = mapped(BYTES);
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
