//! Starts of a library's functions, found by address.
//!
//! Problem: libjvm has 45,000 functions, of which a short program names a hundred.
//! Approach: 8 bytes are kept of each, sorted by address; sorting takes a millisecond.
//! Invariant: functions that start at the same address keep the order of the symbol table.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) address: u32,
    /// Number of its symbol in the table.
    pub(super) symbol: u32,
}

/// The starts of all functions, sorted.
#[derive(Debug)]
pub(super) struct Starts(Box<[Start]>);

impl Starts {
    /// Sorts the starts; `None` if there are none.
    pub(super) fn new(mut starts: Vec<Start>) -> Option<Self> {
        starts.sort_unstable_by_key(|start| u64::from(start.address) << 32 | u64::from(start.symbol));
        (!starts.is_empty()).then(|| Self(starts.into()))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns the number of starts at `address` or before it.
    fn up_to(&self, address: u64) -> usize {
        self.0.partition_point(|start| u64::from(start.address) <= address)
    }

    /// Returns the last start at `address` or before it.
    pub(super) fn last(&self, address: u64) -> Option<u32> {
        Some(self.0.get(self.up_to(address).checked_sub(1)?)?.address)
    }

    /// Returns the functions that start at `address`, in the order of their table.
    pub(super) fn all_at(&self, address: u32) -> impl Iterator<Item = Start> {
        let begin = self.0.partition_point(|start| start.address < address);
        self.0.get(begin..self.up_to(address.into())).unwrap_or_default().iter().copied()
    }

    /// Returns the first start after `address`.
    pub(super) fn next(&self, address: u32) -> Option<u32> {
        Some(self.0.get(self.up_to(address.into()))?.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares searches with those of a list.
    #[track_caller]
    fn check(addresses: &[u32]) {
        let all: Vec<Start> =
            addresses.iter().zip(0..).map(|(&address, symbol)| Start { address, symbol }).collect();
        let starts = Starts::new(all.clone()).expect("not empty");
        assert_eq!(starts.bytes(), 8 * all.len());
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
    fn a_library_without_functions_has_no_starts() {
        assert!(Starts::new(Vec::new()).is_none());
    }
}
