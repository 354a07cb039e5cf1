//! Records of different sizes in memory of a fixed size, which gives up what was not used for longest.
//!
//! Problem: decoded code is to stay while it is used, in bounded memory that costs nothing before it is needed.
//! Approach: records are appended at the head. Once the memory is full, the oldest record makes room; if it was used
//! since it was written or last kept, it is appended again instead (second chance).
//! Invariants: nothing is allocated after [`Ring::new`]; cells behind the head of the first round are never written.
//! Making room for a record keeps at most [`MAX_KEPT`] others, so its cost is bounded.

use alloc::boxed::Box;
use alloc::vec;

/// Unit of memory: positions and lengths count cells.
pub(crate) type Cell = [u8; 8];

/// Records that are kept for their use while room is made for one: a few microseconds of copying.
const MAX_KEPT: u32 = 64;

/// Bits of a record's first cell: its length, then flags, then its owner.
const LENGTH: u64 = 0xff_ffff;
const LIVE: u64 = 1 << 24;
const USED: u64 = 1 << 25;
const OWNER_SHIFT: u32 = 32;

/// The fate of a record when room was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reclaimed {
    /// It lies elsewhere.
    Moved { from: u32, to: u32 },
    /// It was given up; its cells are intact until the next call.
    Evicted(u32),
}

#[derive(Debug)]
pub(crate) struct Ring {
    cells: Box<[Cell]>,
    /// Start of the next record.
    head: usize,
    /// The oldest record.
    tail: usize,
    /// Cells from the tail to the head.
    used: usize,
    /// Records kept since the last one was appended.
    kept: u32,
}

impl Ring {
    /// Memory of `capacity` cells, none of which is touched.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { cells: vec![[0; 8]; capacity].into_boxed_slice(), head: 0, tail: 0, used: 0, kept: 0 }
    }

    pub(crate) fn clear(&mut self) {
        (self.head, self.tail, self.used) = (0, 0, 0);
    }

    fn header(&self, at: usize) -> u64 {
        self.cells.get(at).map_or(0, |cell| u64::from_ne_bytes(*cell))
    }

    fn set_header(&mut self, at: usize, header: u64) {
        if let Some(cell) = self.cells.get_mut(at) {
            *cell = header.to_ne_bytes();
        }
    }

    fn length(header: u64) -> usize {
        (header & LENGTH) as usize
    }

    /// The position that lies `length` cells behind `at`.
    fn after(&self, at: usize, length: usize) -> usize {
        let next = at + length;
        if next >= self.cells.len() { 0 } else { next }
    }

    /// Makes room for a record of `length` cells in all, one step at a time; `None` when there is room.
    pub(crate) fn make_room(&mut self, length: usize) -> Option<Reclaimed> {
        loop {
            let to_end = self.cells.len() - self.head;
            let needed = if length <= to_end { length } else { to_end + length };
            if length > self.cells.len() / 2 || self.used == 0 || self.used + needed <= self.cells.len() {
                return None;
            }
            let (from, header) = (self.tail, self.header(self.tail));
            let length = Self::length(header).max(1);
            self.tail = self.after(from, length);
            self.used = self.used.saturating_sub(length);
            if header & LIVE == 0 {
                continue;
            }
            if header & USED == 0 || self.kept >= MAX_KEPT {
                self.set_header(from, header & !LIVE);
                return Some(Reclaimed::Evicted(from as u32));
            }
            self.kept += 1;
            // The room of the record itself was just freed, so there is enough for it in one piece.
            let to = self.place(length);
            self.cells.copy_within(from..from + length, to);
            self.set_header(to, header & !USED);
            return Some(Reclaimed::Moved { from: from as u32, to: to as u32 });
        }
    }

    /// Advances the head by a record of `length` cells; returns where the record begins.
    fn place(&mut self, length: usize) -> usize {
        let to_end = self.cells.len() - self.head;
        if length > to_end {
            self.set_header(self.head, to_end as u64);
            self.used += to_end;
            self.head = 0;
        }
        let at = self.head;
        self.head = self.after(at, length);
        self.used += length;
        at
    }

    /// Appends a record with room for `payload` cells, for which room was made; `None` if it can never fit.
    pub(crate) fn append(&mut self, owner: u32, payload: usize) -> Option<u32> {
        let length = payload + 1;
        if length > self.cells.len() / 2 {
            return None;
        }
        self.kept = 0;
        if self.used == 0 {
            (self.head, self.tail) = (0, 0);
        }
        let at = self.place(length);
        self.set_header(at, length as u64 | LIVE | (u64::from(owner) << OWNER_SHIFT));
        u32::try_from(at).ok()
    }

    /// Gives a record up.
    pub(crate) fn remove(&mut self, at: u32) {
        let header = self.header(at as usize);
        self.set_header(at as usize, header & !LIVE);
    }

    /// Notes that a record was used.
    pub(crate) fn touch(&mut self, at: u32) {
        let header = self.header(at as usize);
        if header & USED == 0 {
            self.set_header(at as usize, header | USED);
        }
    }

    pub(crate) fn owner(&self, at: u32) -> u32 {
        (self.header(at as usize) >> OWNER_SHIFT) as u32
    }

    /// The record's cells behind its header.
    pub(crate) fn payload(&self, at: u32) -> &[Cell] {
        let start = at as usize;
        self.cells.get(start + 1..start + Self::length(self.header(start))).unwrap_or_default()
    }

    pub(crate) fn payload_mut(&mut self, at: u32) -> &mut [Cell] {
        let start = at as usize;
        let end = start + Self::length(self.header(start));
        self.cells.get_mut(start + 1..end).unwrap_or_default()
    }

    /// The word in a cell, wherever it lies.
    #[inline]
    pub(crate) fn word(&self, at: u32) -> Option<u64> {
        self.cells.get(at as usize).map(|cell| u64::from_ne_bytes(*cell))
    }

    /// `count` words from a cell on, wherever they lie; fewer at the end of the memory.
    #[inline]
    pub(crate) fn words(&self, at: u32, count: u32) -> impl ExactSizeIterator<Item = u64> + '_ {
        let cells = self.cells.get(at as usize..).unwrap_or_default();
        let cells = cells.get(..count as usize).unwrap_or(cells);
        cells.iter().map(|cell| u64::from_ne_bytes(*cell))
    }

    /// Positions of all records that were not given up.
    pub(crate) fn live(&self) -> impl Iterator<Item = u32> + '_ {
        let mut left = self.used;
        let mut at = self.tail;
        core::iter::from_fn(move || {
            while left != 0 {
                let header = self.header(at);
                let (here, length) = (at, Self::length(header).max(1));
                at = self.after(at, length);
                left = left.saturating_sub(length);
                if header & LIVE != 0 {
                    return Some(here as u32);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const CAPACITY: usize = 256;

    fn append(ring: &mut Ring, model: &mut BTreeMap<u32, (u32, Vec<Cell>)>, owner: u32, payload: &[Cell]) {
        while let Some(reclaimed) = ring.make_room(payload.len() + 1) {
            match reclaimed {
                Reclaimed::Moved { from, to } => {
                    let record = model.remove(&from).expect("it was live");
                    assert!(model.insert(to, record).is_none());
                }
                Reclaimed::Evicted(at) => drop(model.remove(&at).expect("it was live")),
            }
        }
        let at = ring.append(owner, payload.len()).expect("it fits");
        ring.payload_mut(at).copy_from_slice(payload);
        assert!(model.insert(at, (owner, payload.to_vec())).is_none());
    }

    proptest! {
        #[test]
        fn records_are_intact_until_they_are_given_up(
            actions in prop::collection::vec((0..5_u8, 0..60_usize, any::<u64>()), 1..400),
        ) {
            let mut ring = Ring::new(CAPACITY);
            let mut model = BTreeMap::new();
            for (number, (action, length, value)) in actions.into_iter().enumerate() {
                let chosen = model.keys().nth(length % model.len().max(1)).copied();
                match (action, chosen) {
                    (0, Some(at)) => {
                        ring.remove(at);
                        model.remove(&at);
                    }
                    (1, Some(at)) => ring.touch(at),
                    _ => append(&mut ring, &mut model, number as u32, &std::vec![value.to_ne_bytes(); length]),
                }
                let mut live: Vec<u32> = ring.live().collect();
                live.sort_unstable();
                prop_assert!(live.iter().eq(model.keys()));
                for (&at, (owner, payload)) in &model {
                    prop_assert_eq!((ring.owner(at), ring.payload(at)), (*owner, &payload[..]));
                }
                prop_assert!(ring.used <= CAPACITY);
            }
        }
    }

    #[test]
    fn used_records_survive_a_flood_of_unused_ones() {
        let mut ring = Ring::new(CAPACITY);
        let mut model = BTreeMap::new();
        append(&mut ring, &mut model, 1, &[[7; 8]; 3]);
        for number in 0..1000 {
            let kept = *model.iter().find(|(_, (owner, _))| *owner == 1).expect("it is used").0;
            ring.touch(kept);
            append(&mut ring, &mut model, 2 + number, &[[9; 8]; 5]);
        }
        assert!(ring.append(0, CAPACITY).is_none(), "larger than the memory");
    }
}
