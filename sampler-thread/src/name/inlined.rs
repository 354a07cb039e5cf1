//! Ids of the methods that share a physical frame, found together.
//!
//! Problem: a frame of C2 code stands for three to four methods, and each lookup of an id waits for memory.
//! Approach: the ids of all methods of such a frame are kept in one line of the processor's cache, at a place that a hash of
//! these methods tells. Each line is the only place for its frames; the last one stays.
//! Invariant: two lists of methods, bytecode indexes and kinds are taken as the same if their hashes of 64 bits are equal.

use stackwalk::Frame;

use crate::name::dictionaries::hash_below;

/// Lines at the start, and at most: 8 and 128 KiB. They double when half of them are used.
const LINES: usize = 1 << 7;
const MAX_LINES: usize = 1 << 11;
/// Ids in a line.
const MAX_METHODS: usize = 13;

/// The ids of one physical frame; hash 0 for none.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    hash: u64,
    count: u32,
    ids: [u32; MAX_METHODS],
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Inlined {
    lines: Vec<Line>,
    used: usize,
}

impl Inlined {
    /// Returns how many of the newest of `frames` share a physical frame of compiled code, and their hash; `None` if the
    /// newest is none, or if there are too many.
    pub(super) fn group(frames: &[Frame], has_positions: bool) -> Option<(usize, u64)> {
        let mut hash = 0;
        for (count, frame) in (1..=MAX_METHODS).zip(frames) {
            let Frame::Compiled { method, bci, level, inlined, .. } = frame else { return None };
            let bci = bci.filter(|_| has_positions).map_or(-1, |bci| bci.0);
            let kind = u64::from(level.0) << 1 | u64::from(*inlined);
            hash = hash_below(hash_below(hash, method.0), u64::from(bci.cast_unsigned()) << 32 | kind);
            if !inlined {
                return Some((count, hash));
            }
        }
        None
    }

    fn place(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.lines.len().wrapping_sub(1)
    }

    /// The ids of the frames with this hash, newest first.
    pub(super) fn find(&self, hash: u64) -> Option<&[u32]> {
        let line = self.lines.get(self.place(hash)).filter(|line| line.hash == hash)?;
        line.ids.get(..line.count as usize)
    }

    /// Notes the ids of the frames with this hash.
    pub(super) fn put(&mut self, hash: u64, ids: &[u64]) {
        if self.used >= self.lines.len() / 2 && self.lines.len() < MAX_LINES {
            self.grow();
        }
        let mut line = Line { hash, count: ids.len() as u32, ids: [0; MAX_METHODS] };
        for (place, &id) in line.ids.iter_mut().zip(ids) {
            // Ids have 32 bits.
            *place = id as u32;
        }
        self.put_line(line);
    }

    fn put_line(&mut self, line: Line) {
        let place = self.place(line.hash);
        if let Some(known) = self.lines.get_mut(place) {
            self.used += usize::from(known.count == 0);
            *known = line;
        }
    }

    fn grow(&mut self) {
        let size = LINES.max(2 * self.lines.len());
        self.used = 0;
        for line in std::mem::replace(&mut self.lines, vec![Line::default(); size]) {
            if line.count != 0 {
                self.put_line(line);
            }
        }
    }

    /// Forgets all ids.
    pub(super) fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackwalk::{Bci, CompileLevel, Method, Pc, Place};

    fn frame(method: u64, bci: i32, level: u8, inlined: bool) -> Frame {
        let place = Place { pc: Pc(8), sp: 16, fp: 24 };
        Frame::Compiled {
            method: Method(method),
            bci: Some(Bci(bci)),
            level: CompileLevel(level),
            inlined,
            is_moved: false,
            place,
        }
    }

    #[test]
    fn a_group_ends_with_the_method_that_was_compiled() {
        let frames = [frame(8, 1, 4, true), frame(16, 2, 4, false), frame(24, 3, 4, false)];
        let (count, hash) = Inlined::group(&frames, true).expect("a group");
        assert_eq!(count, 2);
        assert_eq!(Inlined::group(&frames[1..], true).map(|(count, _)| count), Some(1));
        let others = [
            [frame(16, 2, 4, true), frame(8, 1, 4, false)],
            [frame(8, 2, 4, true), frame(16, 2, 4, false)],
            [frame(8, 1, 4, true), frame(16, 3, 4, false)],
            [frame(8, 1, 3, true), frame(16, 2, 3, false)],
            [frame(9, 1, 4, true), frame(16, 2, 4, false)],
        ];
        for other in others {
            let found = Inlined::group(&other, true).expect("a group");
            assert_eq!(found.0, 2);
            assert_ne!(found.1, hash);
        }
        assert_eq!(Inlined::group(&[], true), None);
        assert_eq!(Inlined::group(&[Frame::Entry { place: frames[0].place() }], true), None);
        assert_eq!(Inlined::group(&vec![frame(8, 1, 4, true); 2 * MAX_METHODS], true), None, "too many");
        assert_eq!(Inlined::group(&frames[..1], true), None, "its end is missing");
    }

    #[test]
    fn bytecode_indexes_matter_where_they_are_shown() {
        let [one, other] = [1, 2].map(|bci| [frame(8, bci, 4, false)]);
        assert_ne!(Inlined::group(&one, true), Inlined::group(&other, true));
        assert_eq!(Inlined::group(&one, false), Inlined::group(&other, false));
    }

    #[test]
    fn ids_stay_until_others_take_their_place() {
        let mut inlined = Inlined::default();
        assert_eq!(inlined.find(1 << 32), None);
        inlined.put(1 << 32, &[7, 8]);
        inlined.put(2 << 32, &[9; MAX_METHODS]);
        assert_eq!(inlined.find(1 << 32), Some(&[7, 8][..]));
        assert_eq!(inlined.find(2 << 32), Some(&[9; MAX_METHODS][..]));
        inlined.put((1 << 32) + 1, &[5]);
        assert_eq!((inlined.find(1 << 32), inlined.find((1 << 32) + 1)), (None, Some(&[5][..])));
        inlined.clear();
        assert_eq!(inlined.find(2 << 32), None);
    }

    #[test]
    fn ids_stay_while_the_table_grows() {
        let mut inlined = Inlined::default();
        let half = MAX_LINES as u64 / 2;
        for number in 0..half {
            inlined.put(number << 32 | 1, &[number]);
            assert!((0..=number).all(|known| inlined.find(known << 32 | 1) == Some(&[known as u32][..])));
        }
        (half..3 * MAX_LINES as u64).for_each(|number| inlined.put(number << 32 | 1, &[number]));
        assert_eq!((inlined.lines.len(), inlined.used), (MAX_LINES, MAX_LINES));
    }
}
