//! Functions of a library, found by address.
//!
//! Problem: libjvm has 45,000 functions, of which a short program names some hundred, in random order. Each would take
//! a system call for its symbol and one for its name.
//! Approach: 12 bytes are kept of each function, all but its name. They are sorted by pages of code first: sorting all
//! of them at once would take longer than reading the file.
//! Invariant: no two functions begin at the same address.

use std::cmp::Reverse;
use std::ops::Range;

/// A function as its symbol describes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Start {
    address: u32,
    /// Twice the size, and one more for a global symbol: of several functions at an address the largest counts, then a
    /// global one.
    rank: u32,
    /// Position of its name.
    name: u32,
}

impl Start {
    /// A function of `size` bytes, 0 if that is unknown, whose name is at a position in the file's names.
    pub(super) fn new(address: u32, size: u64, is_global: bool, name: u32) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX).min(u32::MAX >> 1);
        Self { address, rank: size << 1 | u32::from(is_global), name }
    }
}

/// Bits of an address below the number of its page.
const PAGE_BITS: u32 = 12;

/// All functions, sorted by address.
#[derive(Debug)]
pub(super) struct Starts(Box<[Start]>);

impl Starts {
    /// Sorts the functions; `None` if there are none. Of equal ones at an address that with the first name counts.
    pub(super) fn new(starts: &[Start]) -> Option<Self> {
        let mut sorted = by_page(starts);
        for page in sorted.chunk_by_mut(|one, other| page_of(one) == page_of(other)) {
            page.sort_unstable_by_key(|start| (start.address, Reverse(start.rank), start.name));
        }
        sorted.dedup_by_key(|start| start.address);
        (!sorted.is_empty()).then(|| Self(sorted.into()))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns the last function that begins at `address` or before it: its addresses up to the next function, and the
    /// position of its name. A function of unknown size has `unsized_bytes` bytes at most.
    pub(super) fn last(&self, address: u64, unsized_bytes: u64) -> Option<(Range<u64>, u32)> {
        let after = self.0.partition_point(|start| u64::from(start.address) <= address);
        let Start { address: begin, rank, name } = *self.0.get(after.checked_sub(1)?)?;
        let next = self.0.get(after).map_or(u64::MAX, |next| next.address.into());
        // Assembler sources often leave the size out.
        let size = if rank >> 1 == 0 { unsized_bytes } else { (rank >> 1).into() };
        let begin = u64::from(begin);
        Some((begin..(begin + size).min(next), name))
    }
}

fn page_of(start: &Start) -> usize {
    (start.address >> PAGE_BITS) as usize
}

/// Returns the functions in the order of their pages.
fn by_page(starts: &[Start]) -> Vec<Start> {
    let pages = starts.iter().map(page_of).max().map_or(0, |last| last + 1);
    let mut places = vec![0_usize; pages + 1];
    starts.iter().for_each(|start| places[page_of(start) + 1] += 1);
    (1..=pages).for_each(|page| places[page] += places[page - 1]);
    let mut sorted = vec![Start::default(); starts.len()];
    for start in starts {
        let place = &mut places[page_of(start)];
        sorted[*place] = *start;
        *place += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares searches with those of a list.
    #[track_caller]
    fn check(addresses: &[u32]) {
        let start = |(&address, name): (&u32, u32)| Start::new(address, 8, name % 2 == 0, name);
        let all: Vec<Start> = addresses.iter().zip(0..).map(start).collect();
        let starts = Starts::new(&all).expect("not empty");
        let around = |address: u32| [-4097, -1, 0, 1, 4096].map(|by| i64::from(address) + by);
        for address in addresses.iter().flat_map(|&address| around(address)).filter(|&address| address >= 0) {
            let address = address.cast_unsigned();
            let before = all.iter().filter(|start| u64::from(start.address) <= address);
            let last = before.max_by_key(|start| (start.address, start.name % 2 == 0, Reverse(start.name)));
            let next = all.iter().map(|start| u64::from(start.address)).filter(|&at| at > address).min();
            let expected = last.map(|start| {
                let begin = u64::from(start.address);
                (begin..(begin + 8).min(next.unwrap_or(u64::MAX)), start.name)
            });
            assert_eq!(starts.last(address, 4096), expected, "at {address:#x}");
        }
    }

    #[test]
    fn searches_are_those_of_a_list() {
        let mut address = 1_u32;
        let scattered: Vec<u32> = std::iter::repeat_with(|| {
            address = address.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            address
        })
        .take(300)
        .collect();
        check(&scattered);
        let dense: Vec<u32> = scattered.iter().map(|address| 0x10_0000 + address % 0x4000).collect();
        check(&dense);
        let same: Vec<u32> = scattered.iter().map(|address| 0x40 * (address % 50)).collect();
        check(&same);
        check(&[0]);
        check(&[u32::MAX, 0]);
        check(&[5, 5, 0x3000, 0x1000, 0x1000, 5]);
    }

    #[test]
    fn the_largest_of_several_counts_and_an_unknown_size_ends_at_the_next() {
        let start = |address, size, name| Start::new(address, size, true, name);
        let starts = [start(0x20, 8, 1), start(0x20, 16, 2), start(0x40, 0, 3), start(0x50, 0, 4)];
        let starts = Starts::new(&starts).expect("not empty");
        assert_eq!(starts.bytes(), 3 * 12);
        assert_eq!(starts.last(0x3f, 64), Some((0x20..0x30, 2)), "behind its end");
        assert_eq!(starts.last(0x40, 64), Some((0x40..0x50, 3)));
        assert_eq!(starts.last(0x60, 64), Some((0x50..0x90, 4)));
    }

    #[test]
    fn a_library_without_functions_has_no_starts() {
        assert!(Starts::new(&[]).is_none());
    }
}
