//! Times of a selection as users write them.

use crate::text::units::duration_ns;

const NS_PER_S: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * NS_PER_S;

/// The accepted forms, for messages.
pub const FORMS: &str = "seconds since the epoch, `now`, a time back such as -90s or -15m, a time after the start such as 3s, \
                         or a time of day such as 14:03:05";

/// A time, absolute or relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds since the epoch.
    At(u64),
    /// Nanoseconds before the last sample of a recording, or before now for a store.
    Before(u64),
    /// Nanoseconds after the start.
    After(u64),
    /// Nanoseconds since midnight (UTC).
    Daily(u64),
}

/// Times that relative ones refer to, as nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub start_ns: u64,
    pub end_ns: u64,
}

impl Moment {
    /// Reads one of [`FORMS`].
    pub fn of(text: &str) -> Option<Moment> {
        if text == "now" {
            return Some(Moment::Before(0));
        }
        if let Some(back) = text.strip_prefix('-') {
            return duration_ns(back).map(Moment::Before);
        }
        if text.contains(':') {
            return time_of_day_ns(text).map(Moment::Daily);
        }
        if let Some(after) = duration_ns(text) {
            return Some(Moment::After(after));
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
            return None;
        }
        let seconds: u64 = whole.parse().ok()?;
        let ns: u64 = format!("{fraction:0<9}").parse().ok()?;
        seconds.checked_mul(NS_PER_S)?.checked_add(ns).map(Moment::At)
    }

    /// Returns the time as nanoseconds since the epoch. A time of day is the last one before the end, unless that is
    /// before the start and the next one is nearer.
    pub fn ns(self, Bounds { start_ns, end_ns }: Bounds) -> u64 {
        match self {
            Moment::At(ns) => ns,
            Moment::Before(ns) => end_ns.saturating_sub(ns),
            Moment::After(ns) => start_ns.saturating_add(ns),
            Moment::Daily(of_day_ns) => {
                let last_ns = match end_ns / DAY_NS * DAY_NS + of_day_ns {
                    today_ns if today_ns <= end_ns => today_ns,
                    today_ns => today_ns.saturating_sub(DAY_NS),
                };
                let next_ns = last_ns.saturating_add(DAY_NS);
                match last_ns < start_ns && next_ns - end_ns < start_ns - last_ns {
                    true => next_ns,
                    false => last_ns,
                }
            }
        }
    }
}

/// Reads `HH:MM` or `HH:MM:SS`, with decimals of the second.
fn time_of_day_ns(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let mut number = |limit: u64| {
        let is_number = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_digit());
        let part = parts.next().filter(is_number)?;
        part.parse().ok().filter(|&number: &u64| number < limit)
    };
    let (hours, minutes) = (number(24)?, number(60)?);
    let seconds_ns = match text.splitn(3, ':').nth(2) {
        None => 0,
        Some(seconds) => duration_ns(&format!("{seconds}s")).filter(|&ns| ns < 60 * NS_PER_S)?,
    };
    Some((hours * 3_600 + minutes * 60) * NS_PER_S + seconds_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (text, expected) in [
            ("now", Some(Moment::Before(0))),
            ("-90s", Some(Moment::Before(90 * NS_PER_S))),
            ("-2h", Some(Moment::Before(7200 * NS_PER_S))),
            ("3s", Some(Moment::After(3 * NS_PER_S))),
            ("1.5m", Some(Moment::After(90 * NS_PER_S))),
            ("00:00", Some(Moment::Daily(0))),
            ("14:03:05.5", Some(Moment::Daily(50_585_500_000_000))),
            ("1795219200", Some(Moment::At(1_795_219_200 * NS_PER_S))),
            ("1.5", Some(Moment::At(1_500_000_000))),
            ("-2", None),
            ("-", None),
            ("-9999999999999d", None),
            ("1e9", None),
            ("1.0000000001", None),
            ("-2µ", None),
            ("24:00", None),
            ("1:2", None),
            ("12:60", None),
            ("12:00:60", None),
            ("12:00:00:00", None),
            ("+1:00", None),
        ] {
            assert_eq!(Moment::of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_time_of_day_is_the_one_in_the_profile_or_the_nearest() {
        let hours = |hours: u64| hours * 3_600 * NS_PER_S;
        // From 14:00 of the tenth day to 16:00.
        let day = 10 * DAY_NS;
        let bounds = Bounds { start_ns: day + hours(14), end_ns: day + hours(16) };
        let at = |hour| Moment::Daily(hours(hour)).ns(bounds);
        assert_eq!(at(15), day + hours(15));
        assert_eq!(at(13), day + hours(13), "just before the start");
        assert_eq!(at(17), day + hours(17), "just after the end");
        let days = Bounds { start_ns: 0, ..bounds };
        assert_eq!(Moment::Daily(hours(17)).ns(days), day - hours(7), "the last one");
        assert_eq!(Moment::After(hours(1)).ns(bounds), day + hours(15));
    }
}
