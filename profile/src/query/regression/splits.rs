//! Divisions of the runs of a comparison into two sides, for a permutation test.

/// Maximum number of divisions that are all visited; of more, this many are drawn.
const MOST: usize = 20_000;

/// Returns the number of ways to divide `before + after` runs into two sides.
pub fn ways(before: usize, after: usize) -> f64 {
    (1..=after).map(|taken| (before + taken) as f64 / taken as f64).product()
}

/// Returns the lowest probability that a test in both directions of `before` and `after` runs can show. Between
/// sides of equal size, the division with the sides exchanged has the same differences.
pub fn least_probability(before: usize, after: usize) -> f64 {
    let equal = if before == after { 2.0 } else { 1.0 };
    equal / ways(before, after).min((MOST + 1) as f64)
}

/// Returns for each division whether a run is on the second side. The first division is the real one: the runs
/// before come first.
pub fn splits(before: usize, after: usize) -> Vec<Vec<bool>> {
    let total = before + after;
    // From the last combination to the first.
    let mut second_side: Vec<usize> = (before..total).collect();
    let to_flags = |chosen: &[usize]| {
        let mut is_after = vec![false; total];
        chosen.iter().for_each(|&run| is_after[run] = true);
        is_after
    };
    let mut all = vec![to_flags(&second_side)];
    if ways(before, after) > MOST as f64 {
        let mut dice = Dice::default();
        all.extend((0..MOST).map(|_| to_flags(&dice.draw(total, after))));
        return all;
    }
    while let Some(place) = (0..after).find(|&place| second_side[place] > place) {
        second_side[place] -= 1;
        for below in (0..place).rev() {
            second_side[below] = second_side[below + 1] - 1;
        }
        all.push(to_flags(&second_side));
    }
    all
}

/// Random numbers that are the same each time (xorshift64*), so that equal recordings have equal verdicts.
struct Dice(u64);

impl Default for Dice {
    fn default() -> Self {
        Dice(0x9e37_79b9_7f4a_7c15)
    }
}

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * end as u128) >> 64) as usize
    }

    /// Draws `count` different numbers below `total`.
    fn draw(&mut self, total: usize, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..total).collect();
        for place in 0..count {
            let other = place + self.below(total - place);
            numbers.swap(place, other);
        }
        numbers.truncate(count);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn few_divisions_are_all_visited_once_and_the_real_one_is_first() {
        for (before, after, count) in [(5, 5, 252), (1, 1, 2), (3, 4, 35), (19, 1, 20), (1, 19, 20)] {
            let all = splits(before, after);
            let different: BTreeSet<&Vec<bool>> = all.iter().collect();
            assert_eq!((all.len(), different.len()), (count, count), "{before} and {after}");
            assert!((ways(before, after) - count as f64).abs() < 1e-6);
            assert!(all.iter().all(|one| one.iter().filter(|&&is_after| is_after).count() == after));
            assert!(all[0].iter().enumerate().all(|(run, &is_after)| is_after == (run >= before)));
        }
    }

    #[test]
    fn divisions_are_drawn_if_there_are_many() {
        let all = splits(12, 12);
        assert_eq!(all.len(), MOST + 1);
        assert!(all.iter().all(|one| one.iter().filter(|&&is_after| is_after).count() == 12));
        let last = all.iter().filter(|one| one[23]).count() as f64 / all.len() as f64;
        assert!((last - 0.5).abs() < 0.02, "each run is on the second side half of the time: {last}");
        assert!(least_probability(12, 12) < 1e-4 && least_probability(5, 5) > 1e-3);
    }
}
