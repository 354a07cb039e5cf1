//! Ids of the methods that share a physical frame, found together.
//!
//! Problem: a frame of C2 code stands for three to four methods, and each lookup of an id waits for memory.
//! Approach: one line of the processor's cache holds the ids of all methods of such a frame. The number of the decoded
//! pc ([`stackwalk::Group`]) selects the line, and a group replaces the one that was there.

/// Lines at the start, and at most: 8 and 128 KiB. They double when half of them are used.
const LINES: usize = 1 << 7;
const MAX_LINES: usize = 1 << 11;
/// Ids in a line.
const MAX_METHODS: usize = 14;

/// The ids of one physical frame; number 0 for none.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    number: u32,
    count: u32,
    ids: [u32; MAX_METHODS],
}

#[derive(Debug, Default)]
pub(super) struct Groups {
    lines: Vec<Line>,
    used: usize,
}

impl Groups {
    fn place(&self, number: u32) -> usize {
        number as usize & self.lines.len().wrapping_sub(1)
    }

    /// The ids of the frames of the group with this number, newest first.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&[u32]> {
        let line = self.lines.get(self.place(number)).filter(|line| line.number == number && number != 0)?;
        line.ids.get(..line.count as usize)
    }

    /// Notes the ids of the frames of a group, unless it has no number or too many frames.
    pub(super) fn put(&mut self, number: u32, ids: &[u64]) {
        if number == 0 || ids.len() > MAX_METHODS {
            return;
        }
        if self.used >= self.lines.len() / 2 && self.lines.len() < MAX_LINES {
            self.grow();
        }
        let mut line = Line { number, count: ids.len() as u32, ids: [0; MAX_METHODS] };
        for (place, &id) in line.ids.iter_mut().zip(ids) {
            // Ids have 32 bits.
            *place = id as u32;
        }
        self.put_line(line);
    }

    fn put_line(&mut self, line: Line) {
        let place = self.place(line.number);
        if let Some(known) = self.lines.get_mut(place) {
            self.used += usize::from(known.number == 0);
            *known = line;
        }
    }

    fn grow(&mut self) {
        let size = LINES.max(2 * self.lines.len());
        self.used = 0;
        for line in std::mem::replace(&mut self.lines, vec![Line::default(); size]) {
            if line.number != 0 {
                self.put_line(line);
            }
        }
    }

    /// Removes all ids.
    pub(super) fn clear(&mut self) {
        self.lines.fill(Line::default());
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_until_others_take_their_place() {
        let mut groups = Groups::default();
        assert_eq!(groups.find(1), None);
        groups.put(1, &[7, 8]);
        groups.put(2, &[9; MAX_METHODS]);
        assert_eq!(groups.find(1), Some(&[7, 8][..]));
        assert_eq!(groups.find(2), Some(&[9; MAX_METHODS][..]));
        groups.put(1 + LINES as u32, &[5]);
        assert_eq!((groups.find(1), groups.find(1 + LINES as u32)), (None, Some(&[5][..])));
        groups.clear();
        assert_eq!(groups.find(2), None);
    }

    #[test]
    fn groups_without_a_number_and_long_ones_are_not_kept() {
        let mut groups = Groups::default();
        groups.put(1, &[7]);
        groups.put(0, &[7]);
        groups.put(2, &[7; MAX_METHODS + 1]);
        assert_eq!((groups.find(0), groups.find(2)), (None, None));
    }

    #[test]
    fn ids_stay_while_the_table_grows() {
        let mut groups = Groups::default();
        let half = MAX_LINES as u32 / 2;
        for number in 1..=half {
            groups.put(number, &[number.into()]);
            assert!((1..=number).all(|known| groups.find(known) == Some(&[known][..])));
        }
        (half..3 * MAX_LINES as u32).for_each(|number| groups.put(number, &[number.into()]));
        assert_eq!((groups.lines.len(), groups.used), (MAX_LINES, MAX_LINES));
    }
}
