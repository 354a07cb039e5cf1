//! Durations and sizes as users write them, for the command line, the HTTP API and the agent's options.

const NS_PER_S: u64 = 1_000_000_000;

/// Units of time in nanoseconds.
const TIMES: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", NS_PER_S),
    ("m", 60 * NS_PER_S),
    ("h", 3_600 * NS_PER_S),
    ("d", 86_400 * NS_PER_S),
];

/// Units of size in bytes.
const SIZES: [(&str, u64); 5] = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];

/// Reads a duration with its unit, such as `100ms`, `1.5s` or `1h`; in nanoseconds.
pub fn duration_ns(text: &str) -> Option<u64> {
    with_unit(text, &TIMES)
}

/// Reads a duration like [`duration_ns`]; a number alone is a number of seconds.
pub fn duration_or_seconds_ns(text: &str) -> Option<u64> {
    duration_ns(text).or_else(|| with_unit(text, &[("", NS_PER_S)]))
}

/// Reads a size such as `4096`, `512k` or `20G`; in bytes, with units of 1024.
pub fn size_bytes(text: &str) -> Option<u64> {
    with_unit(&text.to_ascii_lowercase(), &SIZES)
}

/// Reads a number with at most nine decimals and a unit, and returns its product with the factor of the unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if decimals.is_empty() || decimals.len() > 9 {
        return None;
    }
    let billionths: u64 = format!("{decimals:0<9}").parse().ok()?;
    let part = u128::from(*factor) * u128::from(billionths) / u128::from(NS_PER_S);
    whole.parse::<u64>().ok()?.checked_mul(*factor)?.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ns = ["100ms", "1.5s", "1h", "2m", "90d", "250us", "7ns"].map(duration_ns);
        let expected =
            [100_000_000, 1_500_000_000, 3_600 * NS_PER_S, 120 * NS_PER_S, 7_776_000 * NS_PER_S, 250_000, 7];
        assert_eq!(ns, expected.map(Some));
        let none = [
            "10",
            "",
            "s",
            "-1s",
            "1.s",
            ".5s",
            "1 s",
            "1.0000000001s",
            "1M",
            "1.2.3s",
            "99999999999999999999s",
        ];
        assert_eq!(none.map(duration_ns), [None; 11]);
        let seconds = ["10", "0.5", "3m"].map(duration_or_seconds_ns);
        assert_eq!(seconds, [10 * NS_PER_S, NS_PER_S / 2, 180 * NS_PER_S].map(Some));
    }

    #[test]
    fn sizes() {
        assert_eq!(["16777216", "16m", "16M"].map(size_bytes), [Some(16 << 20); 3]);
        assert_eq!(
            ["20g", "1T", "512k", "1.5k"].map(size_bytes),
            [20 << 30, 1 << 40, 512 << 10, 1536].map(Some)
        );
        assert_eq!(["G", "", "1kb", "-1", "20000000t"].map(size_bytes), [None; 5]);
    }
}
