//! A small read cache of aligned lines, for many small reads close together.
//!
//! Problem: naming one method takes some thirty reads of 2 to 8 bytes from half a dozen objects, and outside of the
//! registered ranges each is a system call.
//! Approach: a read fetches the whole aligned line around it, and later reads in that line are served from the copy.
//! Memory that can be loaded directly is not copied.
//! Invariants: a line never crosses a page, so it is readable where any of its bytes is. A copy is as old as its first
//! read: the owner of the lines decides when they are forgotten, and checks that need current words read `beneath`.

use alloc::vec::Vec;
use core::cell::RefCell;

use crate::memory::{Memory, Unreadable};

/// Bytes of a line, the smallest page: 4,096 bytes cost a read by `process_vm_readv` a seventh more than 64.
const LINE: usize = 4096;

/// Capacity in lines; the oldest is replaced. A method's names lie in some eight, which methods of one class share in
/// part.
const LINES: usize = 48;

/// Beginning of a line that could not be read: none begins at an odd address.
const NO_LINE: u64 = 1;

/// Lines in the order of their first use; no memory is needed before the first read.
#[derive(Default)]
pub struct ReadCache(RefCell<Kept>);

#[derive(Default)]
struct Kept {
    /// Address of each line, apart from the bytes: a search touches few lines of the processor's cache.
    starts: Vec<u64>,
    lines: Vec<[u8; LINE]>,
    next: usize,
}

impl ReadCache {
    /// Drops all lines, so that the next reads are of the present memory. Their buffers are used again.
    pub fn forget(&mut self) {
        let Kept { starts, next, .. } = self.0.get_mut();
        starts.fill(NO_LINE);
        *next = 0;
    }
}

impl core::fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReadCache").finish_non_exhaustive()
    }
}

/// A view of `beneath` through lines that were read before.
pub struct CachedMemory<'m, M: ?Sized> {
    beneath: &'m M,
    lines: &'m ReadCache,
}

impl<M: ?Sized> core::fmt::Debug for CachedMemory<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CachedMemory").finish_non_exhaustive()
    }
}

impl<'m, M: Memory + ?Sized> CachedMemory<'m, M> {
    /// A view of `beneath` that reads through `lines`, which are all from this memory.
    #[must_use]
    pub fn new(beneath: &'m M, lines: &'m ReadCache) -> Self {
        Self { beneath, lines }
    }
}

impl<M: Memory + ?Sized> Memory for CachedMemory<'_, M> {
    fn is_loaded_directly(&self, address: u64, length: usize) -> bool {
        self.beneath.is_loaded_directly(address, length)
    }

    fn read_u64(&self, address: u64) -> Result<u64, Unreadable> {
        if self.beneath.is_loaded_directly(address, size_of::<u64>()) {
            return self.beneath.read_u64(address);
        }
        let mut bytes = [0; size_of::<u64>()];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn read_u32(&self, address: u64) -> Result<u32, Unreadable> {
        if self.beneath.is_loaded_directly(address, size_of::<u32>()) {
            return self.beneath.read_u32(address);
        }
        let mut bytes = [0; size_of::<u32>()];
        self.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let start = address & !(LINE as u64 - 1);
        let from = (address - start) as usize;
        let in_line = from.checked_add(into.len()).filter(|&end| end <= LINE);
        let Some(end) = in_line.filter(|_| !self.beneath.is_loaded_directly(address, into.len())) else {
            return self.beneath.read(address, into);
        };
        let Kept { starts, lines, next } = &mut *self.lines.0.borrow_mut();
        let place = match starts.iter().position(|&line| line == start) {
            Some(place) => place,
            None => {
                let place = *next % LINES;
                *next = place + 1;
                if lines.len() <= place {
                    lines.reserve_exact(LINES - lines.len());
                    starts.push(NO_LINE);
                    lines.push([0; LINE]);
                }
                let (kept, line) =
                    starts.get_mut(place).zip(lines.get_mut(place)).ok_or(Unreadable(address))?;
                *kept = NO_LINE;
                // A read may succeed where its line fails: recorded memory has no pages.
                if self.beneath.read(start, line).is_err() {
                    return self.beneath.read(address, into);
                }
                *kept = start;
                place
            }
        };
        let bytes = lines.get(place).and_then(|line| line.get(from..end)).ok_or(Unreadable(address))?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::StackCopy;
    use core::cell::Cell;

    struct Counted<'a> {
        copy: StackCopy<'a>,
        reads: Cell<u32>,
    }

    impl Memory for Counted<'_> {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
            self.reads.set(self.reads.get() + 1);
            self.copy.read(address, into)
        }
    }

    #[test]
    fn reads_in_one_line_are_one_read_with_the_same_result() {
        let bytes: Vec<u8> = (0..=255).cycle().take(4 * LINE).collect();
        let memory = Counted { copy: StackCopy::new(0x1000, &bytes), reads: Cell::new(0) };
        let lines = ReadCache::default();
        let cached = CachedMemory::new(&memory, &lines);
        for at in 0x2000..0x2ff8 {
            assert_eq!(cached.read_u64(at), memory.copy.read_u64(at));
        }
        assert_eq!(memory.reads.get(), 1);
        assert_eq!(cached.read_u64(0x2ffc), memory.copy.read_u64(0x2ffc), "across lines");
        let mut long = [0; 2 * LINE];
        cached.read(0x1010, &mut long).unwrap();
        assert_eq!(long[..], bytes[0x10..0x10 + 2 * LINE]);
        assert_eq!(memory.reads.get(), 3);
    }

    #[test]
    fn missing_bytes_are_unreadable_and_bytes_without_their_line_are_read() {
        let bytes = [7; 40];
        let memory = Counted { copy: StackCopy::new(0x1008, &bytes), reads: Cell::new(0) };
        let lines = ReadCache::default();
        let cached = CachedMemory::new(&memory, &lines);
        assert_eq!(cached.read_u16(0x1008), Ok(0x0707), "its line begins before the copy");
        assert_eq!(cached.read_u8(0x1030), Err(Unreadable(0x1030)));
        assert_eq!(cached.read_u64(u64::MAX - 3), Err(Unreadable(u64::MAX - 3)));
    }

    #[test]
    fn more_lines_than_are_kept() {
        let bytes: Vec<u8> = (0..2 * LINES * LINE).map(|at| (at / LINE) as u8).collect();
        let memory = Counted { copy: StackCopy::new(0, &bytes), reads: Cell::new(0) };
        let lines = ReadCache::default();
        let cached = CachedMemory::new(&memory, &lines);
        for _ in 0..2 {
            for line in 0..2 * LINES {
                assert_eq!(cached.read_u8((line * LINE + 9) as u64), Ok(line as u8));
            }
        }
    }
}
