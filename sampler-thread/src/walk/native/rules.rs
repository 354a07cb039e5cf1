//! Unwind rules of the pcs that walks have met.
//!
//! Problem: a walk must not allocate, and memory for all the pcs of a large program should not be spent on a small one.
//! Approach: a table of numbers by address leads to rules that are appended to memory reserved at the start, whose
//! pages cost nothing until they are reached.
//! Invariant: nothing is allocated after [`Rules::default`].

use super::unwind::Rule;

/// Rules remembered: a pc of a native frame each, 48 bytes. A profile of a JVM under load meets some thousands.
const RULES: usize = 1 << 12;

/// Rules by pc; a pc displaces another one of the same place.
#[derive(Debug)]
pub struct Rules {
    /// Numbers in `known`, counted from 1; 0 for none.
    places: Box<[u16]>,
    known: Vec<(u64, Rule)>,
}

const _: () = assert!(RULES <= u16::MAX as usize, "numbers of rules fit");

impl Default for Rules {
    fn default() -> Self {
        Self { places: vec![0; RULES].into_boxed_slice(), known: Vec::with_capacity(RULES) }
    }
}

impl Rules {
    /// The rule of `pc`, if it is remembered.
    pub fn of(&self, pc: u64) -> Option<Rule> {
        let number = *self.places.get(place(pc))?;
        let (known, rule) = self.known.get(usize::from(number).checked_sub(1)?)?;
        (*known == pc).then_some(*rule)
    }

    /// Remembers the rule of `pc`.
    pub fn put(&mut self, pc: u64, rule: Rule) {
        let Some(number) = self.places.get_mut(place(pc)) else { return };
        match usize::from(*number).checked_sub(1).and_then(|index| self.known.get_mut(index)) {
            Some(displaced) => *displaced = (pc, rule),
            // A place brings one entry at most, so there is room without growing.
            None => {
                self.known.push((pc, rule));
                *number = self.known.len() as u16;
            }
        }
    }

    /// Forgets all rules.
    pub fn forget(&mut self) {
        self.places.fill(0);
        self.known.clear();
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.known)
    }
}

/// Where the rule of a pc is remembered: neighbouring return addresses go to different places.
fn place(pc: u64) -> usize {
    let mixed = pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or(0) % RULES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_place_is_remembered_without_growing() {
        let mut rules = Rules::default();
        let capacity = rules.known.capacity();
        let rule = |pc: u64| Rule::Offsets {
            register: 7,
            offset: (pc / 16) as i32,
            saved: [super::super::unwind::Saved::Same; 7],
        };
        for pc in (0..10 * RULES as u64).map(|number| 16 * number) {
            rules.put(pc, rule(pc));
            assert_eq!(rules.of(pc), Some(rule(pc)));
        }
        assert_eq!((rules.known.len(), rules.known.capacity()), (RULES, capacity));
        assert_eq!(rules.of(0), None, "displaced");
        rules.forget();
        assert!(rules.of(16 * (10 * RULES as u64 - 1)).is_none());
    }
}
