//! Unwind rules by the rows of the tables that they come from.
//!
//! Problem: finding the row of a new pc takes a search in the library's tables, and most new pcs are in a known row:
//! behind the first instructions of a function, one row often covers the rest.
//! Approach: rules are kept with the addresses of their row, and found by the line of code of the pc; the oldest is
//! replaced when the memory is full.
//! Invariants: nothing is allocated after [`RowRules::default`]. A rule is used only inside its row, so an index may be
//! stale.

use std::ops::Range;

use stackwalk::DWARF_SAVED;

use super::unwind::Rule;

/// Most rules, 48 bytes each on x86-64, 72 on aarch64, which saves more registers.
const RULES: usize = 1 << 12;
/// Indexes by line: two megabytes of code.
const LINES: usize = 1 << 15;
/// Bytes of a line, as a power of two.
const LINE_SHIFT: u32 = 6;
/// Most lines of a row in front of the pc that has found it, and behind it.
const LINES_AROUND: u64 = 32;

#[derive(Debug)]
pub struct RowRules {
    /// Indexes in `rules` by line of code, counted from 1; 0 for none.
    lines: Box<[u16]>,
    rules: Vec<RowRule>,
    /// Next to be replaced, once there are [`RULES`].
    oldest: usize,
}

#[derive(Debug, Clone, Copy)]
struct RowRule {
    start: u64,
    length: u32,
    rule: Rule,
}

impl RowRule {
    fn covers(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.start) < u64::from(self.length)
    }
}

const _: () = {
    assert!(RULES <= u16::MAX as usize, "indexes fit");
    assert!(size_of::<RowRule>() <= 24 + 4 * DWARF_SAVED.len());
};

impl Default for RowRules {
    fn default() -> Self {
        Self { lines: vec![0; LINES].into_boxed_slice(), rules: Vec::with_capacity(RULES), oldest: 0 }
    }
}

impl RowRules {
    /// Returns the rule of a known row that contains all of `pcs`.
    pub fn of(&self, pcs: [u64; 2]) -> Option<Rule> {
        let index = *self.lines.get(slot_of(pcs[0] >> LINE_SHIFT))?;
        let known = self.rules.get(usize::from(index).checked_sub(1)?)?;
        pcs.iter().all(|&pc| known.covers(pc)).then_some(known.rule)
    }

    /// Keeps the rule of a row that contains `pc`.
    pub fn put(&mut self, pc: u64, row: &Range<u64>, rule: Rule) {
        let length = u32::try_from(row.end.saturating_sub(row.start)).unwrap_or(0);
        let index = self.add(RowRule { start: row.start, length, rule });
        let line = pc >> LINE_SHIFT;
        let first = (row.start >> LINE_SHIFT).max(line.saturating_sub(LINES_AROUND));
        let last = (row.end.saturating_sub(1) >> LINE_SHIFT).min(line.saturating_add(LINES_AROUND));
        for line in first..=last {
            if let Some(slot) = self.lines.get_mut(slot_of(line)) {
                *slot = index;
            }
        }
    }

    /// Adds a rule; returns its index, counted from 1.
    fn add(&mut self, known: RowRule) -> u16 {
        if self.rules.len() < RULES {
            self.rules.push(known);
            return self.rules.len() as u16;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % RULES;
        if let Some(replaced) = self.rules.get_mut(at) {
            *replaced = known;
        }
        at as u16 + 1
    }

    /// Removes all rules.
    pub fn forget(&mut self) {
        self.lines.fill(0);
        self.rules.clear();
        self.oldest = 0;
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.rules)
    }
}

/// Returns the slot of a line; those of one function are side by side.
fn slot_of(line: u64) -> usize {
    usize::try_from(line).unwrap_or(0) % LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(offset: i32) -> Rule {
        let saved = [super::super::unwind::Saved::Same; stackwalk::DWARF_SAVED.len()];
        Rule::Offsets { register: 7, offset, saved }
    }

    #[test]
    fn a_row_is_used_for_pcs_inside_of_it_only() {
        let mut rules = RowRules::default();
        rules.put(0x1080, &(0x1010..0x1200), rule(8));
        for pc in 0x1000..0x1210 {
            let is_inside = (0x1010..0x11ff).contains(&pc);
            assert_eq!(rules.of([pc, pc + 1]), is_inside.then(|| rule(8)), "{pc:#x}");
        }
        assert_eq!(rules.of([0x11ff, 0x11ff]), Some(rule(8)), "interrupted");
        // The same line of code, of another row.
        rules.put(0x1000, &(0x1000..0x1010), rule(16));
        assert_eq!(rules.of([0x1004, 0x1005]), Some(rule(16)));
        assert_eq!(rules.of([0x1020, 0x1021]), None, "its line is another row's");
        assert_eq!(rules.of([0x1040, 0x1041]), Some(rule(8)));
        rules.forget();
        assert_eq!(rules.of([0x1040, 0x1041]), None);
    }

    #[test]
    fn the_newest_rows_are_kept_without_growing() {
        let mut rules = RowRules::default();
        let (lines, capacity) = (LINES as u64, rules.rules.capacity());
        for number in 0..3 * lines {
            let start = number << LINE_SHIFT;
            rules.put(start + 8, &(start..start + 64), rule(number as i32));
            assert_eq!(rules.of([start + 60, start + 61]), Some(rule(number as i32)));
        }
        assert_eq!((rules.rules.len(), rules.rules.capacity()), (RULES, capacity));
        for number in 0..3 * lines {
            let start = number << LINE_SHIFT;
            let is_kept = number >= 3 * lines - RULES as u64;
            assert_eq!(rules.of([start, start]), is_kept.then(|| rule(number as i32)));
        }
        rules.put(10, &(0..u64::MAX), rule(1));
        assert_eq!(rules.of([10, 10]), None, "no row is so long");
    }
}
