//! Where the functions of a library start, found by address.
//!
//! Problem: libjvm has 45,000 functions. Sorting them takes longer than reading them, and a short program names a hundred.
//! Approach: the starts are put in groups by the high bits of their address, in two passes. A search compares the few starts
//! of one group.
//! Invariant: starts of one group keep their order in the symbol table.

/// Smallest group, as a power of two of bytes: some 14 functions of libjvm.
const LEAST_SHIFT: u32 = 12;

/// Start of a function, and what else its symbol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Start {
    pub(super) address: u32,
    /// Position of its name among the names of its table.
    pub(super) name: u32,
    /// Size in bytes, 0 if unknown, below [`Start::IS_GLOBAL`]; this bit for a global symbol.
    size: u32,
}

impl Start {
    const IS_GLOBAL: u32 = 1 << 31;

    pub(super) fn new(address: u32, size: u64, is_global: bool, name: u32) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX).min(Self::IS_GLOBAL - 1);
        Self { address, name, size: if is_global { size | Self::IS_GLOBAL } else { size } }
    }

    pub(super) fn size(self) -> u64 {
        (self.size & !Self::IS_GLOBAL).into()
    }

    pub(super) fn is_global(self) -> bool {
        self.size & Self::IS_GLOBAL != 0
    }
}

/// The starts of all functions.
#[derive(Debug)]
pub(super) struct Starts {
    /// By group.
    starts: Box<[Start]>,
    /// Position of the first start of each group, and the end of the last.
    groups: Box<[u32]>,
    /// The lowest group.
    lowest: u32,
    shift: u32,
}

impl Starts {
    /// Groups starts; there are at most as many groups as starts, so that a library with large gaps needs no large table.
    pub(super) fn new(all: &[Start]) -> Self {
        let lowest = all.iter().map(|start| start.address).min().unwrap_or(0);
        let highest = all.iter().map(|start| start.address).max().unwrap_or(0);
        let mut shift = LEAST_SHIFT;
        while ((highest >> shift) - (lowest >> shift)) as usize > all.len() {
            shift += 1;
        }
        let lowest = lowest >> shift;
        let count = ((highest >> shift) - lowest) as usize + 1;
        let mut groups = vec![0_u32; count + 1];
        let group = |start: &Start| ((start.address >> shift) - lowest) as usize;
        for start in all {
            groups[group(start) + 1] += 1;
        }
        for at in 1..groups.len() {
            groups[at] += groups[at - 1];
        }
        let mut next = groups.clone();
        let mut starts = vec![Start::default(); all.len()];
        for start in all {
            let place = &mut next[group(start)];
            starts[*place as usize] = *start;
            *place += 1;
        }
        Self { starts: starts.into(), groups: groups.into(), lowest, shift }
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

    /// Returns the number of the group of `address`; `None` if it is below all starts.
    fn number(&self, address: u64) -> Option<usize> {
        let number = (address >> self.shift).checked_sub(self.lowest.into())?;
        Some(usize::try_from(number).unwrap_or(usize::MAX).min(self.groups.len() - 2))
    }

    /// Returns the last start at `address` or before it.
    pub(super) fn last(&self, address: u64) -> Option<u32> {
        (0..=self.number(address)?).rev().find_map(|number| {
            let starts = self.group(number).iter().map(|start| start.address);
            starts.filter(|&start| u64::from(start) <= address).max()
        })
    }

    /// Returns the functions that start at `address`, in the order of their table.
    pub(super) fn all_at(&self, address: u32) -> impl Iterator<Item = Start> {
        let group = self.number(address.into()).map(|number| self.group(number)).unwrap_or_default();
        group.iter().filter(move |start| start.address == address).copied()
    }

    /// Returns the first start after `address`, which is one.
    pub(super) fn next(&self, address: u32) -> Option<u32> {
        (self.number(address.into())?..self.groups.len() - 1).find_map(|number| {
            self.group(number).iter().map(|start| start.address).filter(|&start| start > address).min()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares searches with those of a sorted list.
    #[track_caller]
    fn check(addresses: &[u32]) {
        let all: Vec<Start> =
            addresses.iter().zip(0..).map(|(&address, name)| Start::new(address, 1, false, name)).collect();
        let starts = Starts::new(&all);
        assert!(starts.bytes() <= 20 * all.len() + 64);
        let mut sorted = all.clone();
        sorted.sort_by_key(|start| (start.address, start.name));
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
    fn a_start_keeps_what_its_symbol_says() {
        for (size, kept) in [(0, 0), (77, 77), (u64::MAX, (1 << 31) - 1)] {
            for is_global in [false, true] {
                let start = Start::new(1, size, is_global, 9);
                assert_eq!((start.size(), start.is_global(), start.name), (kept, is_global, 9));
            }
        }
    }
}
