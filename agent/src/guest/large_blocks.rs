//! The agent's allocator, which maps large blocks itself.
//!
//! Problem: whenever a mapped block is freed, glibc raises the size from which it maps blocks (mallopt(3),
//! `M_MMAP_THRESHOLD`). The tables of one profile would raise it for the whole program, and those of later ones would
//! lie in malloc's arenas, each of which would keep some MiB (`design/measured/attach.md`).
//! Approach: blocks from [`LEAST`] bytes are mappings; smaller ones are malloc's.
//! Invariant: size and alignment of a block decide who made it and who frees it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// Size from which blocks are mapped: where glibc begins to.
const LEAST: usize = 128 << 10;
/// Alignment of mappings on every CPU.
const PAGE: usize = 4 << 10;

#[derive(Debug)]
pub struct LargeBlocks;

#[global_allocator]
static ALLOCATOR: LargeBlocks = LargeBlocks;

fn is_mapped(size: usize, layout: Layout) -> bool {
    size >= LEAST && layout.align() <= PAGE
}

/// Returns the address as Rust's allocators do: null for a failure.
fn or_null(address: *mut libc::c_void) -> *mut u8 {
    if address == libc::MAP_FAILED { ptr::null_mut() } else { address.cast() }
}

// SAFETY: a mapping has the requested size, is aligned to pages, and its own until it is unmapped; all other blocks are
// the system allocator's.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout) {
            // SAFETY: a new mapping is zeroed, more than `alloc` promises.
            return unsafe { self.alloc_zeroed(layout) };
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout) {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
            return or_null(unsafe { libc::mmap(ptr::null_mut(), layout.size(), protection, flags, -1, 0) });
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout.size(), layout) {
            // SAFETY: a block of this layout is a mapping of this size, and the caller uses it no more.
            unsafe { libc::munmap(block.cast(), layout.size()) };
        } else {
            // SAFETY: the caller keeps the contract of `GlobalAlloc`.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_mapped(layout.size(), layout), is_mapped(size, layout)) {
            // SAFETY: the caller keeps the contract of `GlobalAlloc`.
            (false, false) => unsafe { System.realloc(block, layout, size) },
            (true, true) => {
                // SAFETY: a block of this layout is a mapping of this size; the caller uses the old address no more.
                or_null(unsafe { libc::mremap(block.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) })
            }
            _ => {
                // SAFETY: the caller promises that the size is valid for the alignment.
                let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
                // SAFETY: sizes are above zero by the caller's promise.
                let moved = unsafe { self.alloc(wanted) };
                if !moved.is_null() {
                    // SAFETY: both blocks have at least the smaller size, and a new block overlaps no other.
                    unsafe { ptr::copy_nonoverlapping(block, moved, size.min(layout.size())) };
                    // SAFETY: the caller uses the old block no more.
                    unsafe { self.dealloc(block, layout) };
                }
                moved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks keep their content as they grow and shrink across the limit.
    #[test]
    fn blocks_move_with_their_content() {
        let mut bytes: Vec<u8> = Vec::new();
        for size in [10, LEAST - 1, LEAST, 5 * LEAST, 2 * LEAST, LEAST - 1, 100] {
            bytes.resize(size, 7);
            bytes.shrink_to_fit();
            assert!(bytes.iter().all(|&byte| byte == 7), "{size}");
            assert_eq!(bytes.capacity(), size);
        }
        assert!(vec![0_u64; LEAST].iter().all(|&word| word == 0));
    }

    /// Mappings begin with a page. A block of malloc has its header before it: one may lie at the begin of a page by
    /// chance, in an arena, but not each of several that exist at once.
    #[test]
    fn large_blocks_alone_are_mappings() {
        for size in [100, LEAST - 1, LEAST, 5 * LEAST] {
            let blocks: Vec<Vec<u8>> = (0..8).map(|_| Vec::with_capacity(size)).collect();
            let aligned = blocks.iter().filter(|block| block.as_ptr().align_offset(PAGE) == 0).count();
            if size >= LEAST {
                assert_eq!(aligned, blocks.len(), "{size}: every mapping begins with a page");
            } else {
                assert!(aligned < blocks.len(), "{size}: blocks of malloc have a header");
            }
        }
    }
}
