//! Cache of unwind rules by pc.
//!
//! Problem: a walk must not allocate, and a small program should not pay for the pcs of a large one.
//! Approach: a table of indexes by address refers to rules that are appended to memory reserved at the start, whose
//! pages take no memory until they are used.
//! Invariant: nothing is allocated after [`Rules::default`].

use super::unwind::Rule;

/// Most rules, 48 bytes each. A profile of a JVM under load needs some thousands.
const RULES: usize = 1 << 12;

/// Rules by pc; a pc replaces another one with the same index.
#[derive(Debug)]
pub struct Rules {
    /// Indexes in `rules`, counted from 1; 0 for none.
    indexes: Box<[u16]>,
    rules: Vec<(u64, Rule)>,
}

const _: () = assert!(RULES <= u16::MAX as usize, "indexes fit");

impl Default for Rules {
    fn default() -> Self {
        Self { indexes: vec![0; RULES].into_boxed_slice(), rules: Vec::with_capacity(RULES) }
    }
}

impl Rules {
    pub fn of(&self, pc: u64) -> Option<Rule> {
        let index = *self.indexes.get(slot_of(pc))?;
        let (known, rule) = self.rules.get(usize::from(index).checked_sub(1)?)?;
        (*known == pc).then_some(*rule)
    }

    /// Caches the rule of `pc`.
    pub fn put(&mut self, pc: u64, rule: Rule) {
        let Some(index) = self.indexes.get_mut(slot_of(pc)) else { return };
        match usize::from(*index).checked_sub(1).and_then(|at| self.rules.get_mut(at)) {
            Some(displaced) => *displaced = (pc, rule),
            // Each index is used for at most one entry, so that the vector does not grow.
            None => {
                self.rules.push((pc, rule));
                *index = self.rules.len() as u16;
            }
        }
    }

    /// Removes all rules.
    pub fn forget(&mut self) {
        self.indexes.fill(0);
        self.rules.clear();
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.indexes) + size_of_val(&*self.rules)
    }
}

/// Returns the slot of a pc; neighbouring return addresses have different slots.
fn slot_of(pc: u64) -> usize {
    let mixed = pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or(0) % RULES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_of_a_slot_is_kept_without_growing() {
        let mut rules = Rules::default();
        let capacity = rules.rules.capacity();
        let rule = |pc: u64| Rule::Offsets {
            register: 7,
            offset: (pc / 16) as i32,
            saved: [super::super::unwind::Saved::Same; stackwalk::DWARF_SAVED.len()],
        };
        for pc in (0..10 * RULES as u64).map(|number| 16 * number) {
            rules.put(pc, rule(pc));
            assert_eq!(rules.of(pc), Some(rule(pc)));
        }
        assert_eq!((rules.rules.len(), rules.rules.capacity()), (RULES, capacity));
        assert_eq!(rules.of(0), None, "replaced");
        rules.forget();
        assert!(rules.of(16 * (10 * RULES as u64 - 1)).is_none());
    }
}
