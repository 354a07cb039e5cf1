//! Where the functions of a library start, found by address.
//!
//! Problem: libjvm has 45,000 functions. Sorting them takes longer than reading them, new pages for them longer than
//! both, and a short program names a hundred.
//! Approach: 8 bytes are kept of each, in groups by the high bits of the address. The table of symbols is visited
//! twice: once to count the starts of each group, once to put them there. A search compares the few starts of one
//! group.
//! Invariant: starts of one group keep their order in the symbol table.

use std::io;
use std::ops::Range;

/// Smallest group, as a power of two of bytes: some 14 functions of libjvm.
const LEAST_SHIFT: u32 = 12;

/// Start of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Start {
    pub(super) address: u32,
    /// Number of its symbol in the table.
    pub(super) symbol: u32,
}

/// The starts of all functions.
#[derive(Debug)]
pub(super) struct Starts {
    /// By group.
    starts: Box<[Start]>,
    /// Position of the first start of each group, and the end of the last.
    groups: Box<[u32]>,
    /// Number of the lowest group, which also has what lies below it; the highest has what lies above.
    lowest: u32,
    shift: u32,
}

impl Starts {
    /// Groups the starts that `visit` shows, the same ones at each call; `None` if there are none. Most of them lie in
    /// `code`, and there are at most `most`.
    ///
    /// There are at most as many groups as starts, so that a library with large gaps needs no large table.
    pub(super) fn new(
        code: Range<u32>,
        most: usize,
        mut visit: impl FnMut(&mut dyn FnMut(Start)) -> io::Result<()>,
    ) -> Option<Self> {
        let mut shift = LEAST_SHIFT;
        let end = code.end.max(code.start);
        while ((end >> shift) - (code.start >> shift)) as usize >= most.max(1) {
            shift += 1;
        }
        let lowest = code.start >> shift;
        let last = ((end >> shift) - lowest) as usize;
        let group = |address: u32| ((address >> shift).saturating_sub(lowest) as usize).min(last);
        let mut groups = vec![0_u32; last + 2];
        visit(&mut |start| groups[group(start.address) + 1] += 1).ok()?;
        for at in 1..groups.len() {
            groups[at] += groups[at - 1];
        }
        let count = groups.last().copied().filter(|&count| count > 0)?;
        let mut next = groups.clone();
        let mut starts = vec![Start::default(); count as usize];
        visit(&mut |start| {
            let place = &mut next[group(start.address)];
            // A file that has changed meanwhile may show more.
            if let Some(free) = starts.get_mut(*place as usize) {
                *free = start;
                *place += 1;
            }
        })
        .ok()?;
        Some(Self { starts: starts.into(), groups: groups.into(), lowest, shift })
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.groups)
    }

    fn group(&self, number: usize) -> &[Start] {
        match self.groups.get(number..) {
            Some(&[from, to, ..]) => self.starts.get(from as usize..to as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Returns the number of the group of `address`.
    fn number(&self, address: u64) -> usize {
        let number = (address >> self.shift).saturating_sub(self.lowest.into());
        usize::try_from(number).unwrap_or(usize::MAX).min(self.groups.len() - 2)
    }

    /// Returns the last start at `address` or before it.
    pub(super) fn last(&self, address: u64) -> Option<u32> {
        (0..=self.number(address)).rev().find_map(|number| {
            let starts = self.group(number).iter().map(|start| start.address);
            starts.filter(|&start| u64::from(start) <= address).max()
        })
    }

    /// Returns the functions that start at `address`, in the order of their table.
    pub(super) fn all_at(&self, address: u32) -> impl Iterator<Item = Start> {
        self.group(self.number(address.into())).iter().filter(move |start| start.address == address).copied()
    }

    /// Returns the first start after `address`, which is one.
    pub(super) fn next(&self, address: u32) -> Option<u32> {
        (self.number(address.into())..self.groups.len() - 1).find_map(|number| {
            self.group(number).iter().map(|start| start.address).filter(|&start| start > address).min()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(all: &[Start], code: Range<u32>) -> Option<Starts> {
        Starts::new(code, all.len(), |show| {
            all.iter().for_each(|&start| show(start));
            Ok(())
        })
    }

    /// Compares searches with those of a sorted list.
    #[track_caller]
    fn check_within(addresses: &[u32], code: Range<u32>) {
        let all: Vec<Start> =
            addresses.iter().zip(0..).map(|(&address, symbol)| Start { address, symbol }).collect();
        let starts = starts(&all, code).expect("not empty");
        assert!(starts.bytes() <= 16 * all.len() + 64);
        let mut sorted = all.clone();
        sorted.sort_by_key(|start| (start.address, start.symbol));
        let around = |address: u32| [-4097, -1, 0, 1, 4096].map(|by| i64::from(address) + by);
        for address in addresses.iter().flat_map(|&address| around(address)).filter(|&address| address >= 0) {
            let address = address.cast_unsigned();
            let last = sorted.iter().rev().map(|start| start.address).find(|&at| u64::from(at) <= address);
            assert_eq!(starts.last(address), last, "last at {address:#x}");
            let Some(begin) = last else { continue };
            let same = sorted.iter().filter(|start| start.address == begin).copied();
            assert!(starts.all_at(begin).eq(same), "functions at {begin:#x}");
            let next = sorted.iter().map(|start| start.address).find(|&at| at > begin);
            assert_eq!(starts.next(begin), next, "next after {begin:#x}");
        }
    }

    /// Where the starts lie, and where only some or none of them do.
    #[track_caller]
    fn check(addresses: &[u32]) {
        let bounds = |list: &[u32]| list.iter().min().copied().zip(list.iter().max().copied());
        let (lowest, highest) = bounds(addresses).expect("not empty");
        let middle = lowest + (highest - lowest) / 2;
        for code in [lowest..highest, lowest..middle, middle..highest, 0..0, u32::MAX - 9..u32::MAX] {
            check_within(addresses, code);
        }
    }

    #[test]
    fn searches_are_those_of_a_sorted_list() {
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
    fn a_table_that_changes_or_is_empty_or_unreadable_is_none() {
        assert!(starts(&[], 0..100).is_none());
        assert!(Starts::new(0..100, 1, |_| Err(io::ErrorKind::UnexpectedEof.into())).is_none());
        let mut calls = 0;
        let grown = Starts::new(0..100, 1, |show| {
            calls += 1;
            (0..calls).for_each(|symbol| show(Start { address: 50, symbol }));
            Ok(())
        });
        assert_eq!(grown.expect("the first start").all_at(50).count(), 1);
    }
}
