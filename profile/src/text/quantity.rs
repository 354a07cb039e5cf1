//! Formats numbers for people: times in s or ms, percentages with one decimal, counts with commas.

/// Formats a duration: from 10 s in seconds with one decimal, from 1 s with two, else in milliseconds.
pub fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        10_000_000_000.. => format!("{seconds:.1} s"),
        1_000_000_000.. => format!("{seconds:.2} s"),
        100_000_000.. | 0 => format!("{:.0} ms", ns as f64 / 1e6),
        1_000_000.. => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.3} ms", ns as f64 / 1e6),
    }
}

/// Formats a share of 0 to 1 in percent. Only exactly 1 becomes 100.0 %, and only exactly 0 becomes 0.0 %.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 99.9 && share < 1.0 {
        return "99.9 %".into();
    }
    if percent < 0.05 && share > 0.0 {
        return "<0.1 %".into();
    }
    format!("{percent:.1} %")
}

/// Formats a count with commas.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Adds figures of agents, which may be any numbers, saturating at the maximum.
pub fn total(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, u64::saturating_add)
}

/// Returns `part / whole`, or 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Formats `part / whole` in percent.
pub fn percent_of(part: u64, whole: u64) -> String {
    percent(share(part, whole))
}

/// Returns an upper bound for the memory in bytes of a hash table with `entries` of type `T`: after growth, seven of
/// sixteen slots are used, each slot has a control byte, and during growth the old table exists too.
pub fn table_bytes<T>(entries: usize) -> usize {
    entries * (size_of::<T>() + 1) * 16 / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_take_no_more_than_is_said_and_half_of_it_at_least() {
        type Row = (u32, u32, u32);
        let mut table: hashbrown::HashTable<Row> = hashbrown::HashTable::new();
        for number in 0..200_000u32 {
            let hash = |row: &Row| u64::from(row.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let row = (number, 0, 0);
            table.insert_unique(hash(&row), row, hash);
            let (said, real) = (table_bytes::<Row>(table.len()), table.allocation_size());
            // Small tables have a fixed overhead.
            if number > 100 {
                assert!(said + 64 >= real && said <= 2 * real, "{said} for {real} bytes of {number}");
            }
        }
    }

    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ms"),
            (1_500, "0.002 ms"),
            (4_000_000, "4.0 ms"),
            (120_000_000, "120 ms"),
            (1_230_000_000, "1.23 s"),
            (123_456_000_000, "123.5 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn percentages_are_rounded_to_100_or_0_only_if_exact() {
        for (share, text) in
            [(0.0, "0.0 %"), (0.0001, "<0.1 %"), (0.123, "12.3 %"), (0.99999, "99.9 %"), (1.0, "100.0 %")]
        {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn counts() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), text);
        }
    }
}
