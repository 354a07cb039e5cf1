//! Times of a selection as users write them.

use crate::text::units::duration_ns;

pub(super) const NS_PER_S: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * NS_PER_S;

/// The accepted forms, for messages.
pub const FORMS: &str = "seconds since the epoch, `now`, a time before the end such as -90s or -15m, a time after the start such as 3s, \
                         or a time of day in UTC such as 14:03:05";

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

/// Times that relative ones refer to, in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The start of the source; `None` if it is unknown because the source has not been read.
    pub start_ns: Option<u64>,
    /// The end of the source, or now.
    pub end_ns: u64,
    /// True for a recording; false for a store and a lake, which get further samples.
    pub has_ended: bool,
}

/// A selected time. An end that is not selected, or that depends on an unknown start, is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
}

impl Limits {
    /// Resolves a selected time. With a start, a time of day for the end is the first one after it.
    pub fn of(from: Option<Moment>, to: Option<Moment>, bounds: Bounds) -> Limits {
        let from_ns = from.and_then(|from| from.ns(bounds));
        let to_ns = match (from, to) {
            (Some(_), Some(Moment::Daily(of_day_ns))) => {
                from_ns.map(|from_ns| first_after(from_ns, of_day_ns))
            }
            _ => to.and_then(|to| to.ns(bounds)),
        };
        Limits { from_ns, to_ns }
    }
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

    /// Returns the time in nanoseconds since the epoch; `None` if it depends on an unknown start.
    fn ns(self, bounds: Bounds) -> Option<u64> {
        match self {
            Moment::At(ns) => Some(ns),
            Moment::Before(ns) => Some(bounds.end_ns.saturating_sub(ns)),
            Moment::After(ns) => Some(bounds.start_ns?.saturating_add(ns)),
            Moment::Daily(of_day_ns) => Some(nearest(of_day_ns, bounds)),
        }
    }
}

/// Returns the last time of this time of day before the end; in a source that has ended, the next one if the last one
/// is before the start and the next one is nearer.
fn nearest(of_day_ns: u64, Bounds { start_ns, end_ns, has_ended }: Bounds) -> u64 {
    let last_ns = match (end_ns / DAY_NS * DAY_NS).saturating_add(of_day_ns) {
        today_ns if today_ns <= end_ns => today_ns,
        today_ns => today_ns.saturating_sub(DAY_NS),
    };
    let next_ns = last_ns.saturating_add(DAY_NS);
    let is_next = |start_ns| last_ns < start_ns && next_ns.saturating_sub(end_ns) < start_ns - last_ns;
    if has_ended && start_ns.is_some_and(is_next) { next_ns } else { last_ns }
}

/// Returns the first time of this time of day after `start_ns`.
fn first_after(start_ns: u64, of_day_ns: u64) -> u64 {
    let same_day_ns = (start_ns / DAY_NS * DAY_NS).saturating_add(of_day_ns);
    if same_day_ns > start_ns { same_day_ns } else { same_day_ns.saturating_add(DAY_NS) }
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

    const fn hours(hours: u64) -> u64 {
        hours * 3_600 * NS_PER_S
    }

    const DAY: u64 = 10 * DAY_NS;
    /// A recording from 14:00 of the tenth day to 16:00.
    const BOUNDS: Bounds =
        Bounds { start_ns: Some(DAY + hours(14)), end_ns: DAY + hours(16), has_ended: true };

    #[test]
    fn a_time_of_day_is_the_one_in_the_profile_or_the_nearest() {
        let at = |hour| Moment::Daily(hours(hour)).ns(BOUNDS);
        assert_eq!(at(15), Some(DAY + hours(15)));
        assert_eq!(at(13), Some(DAY + hours(13)), "just before the start");
        assert_eq!(at(17), Some(DAY + hours(17)), "just after the end");
        let days = Bounds { start_ns: Some(0), ..BOUNDS };
        assert_eq!(Moment::Daily(hours(17)).ns(days), Some(DAY - hours(7)), "the last one");
        let store = Bounds { has_ended: false, ..BOUNDS };
        assert_eq!(Moment::Daily(hours(17)).ns(store), Some(DAY - hours(7)), "no time to come");
        assert_eq!(Moment::After(hours(1)).ns(BOUNDS), Some(DAY + hours(15)));
        let latest = Bounds { end_ns: u64::MAX, ..BOUNDS };
        assert!(Moment::Daily(hours(23)).ns(latest).is_some_and(|ns| ns > u64::MAX - 2 * DAY_NS));
    }

    #[test]
    fn a_time_of_day_for_the_end_is_the_first_after_the_start() {
        let daily = |hour| Some(Moment::Daily(hours(hour)));
        let limits = |from, to, now_ns| {
            // The start of a store is known after it has been read only.
            let read = Bounds { start_ns: Some(DAY), end_ns: now_ns, has_ended: false };
            let unread = Bounds { start_ns: None, ..read };
            assert_eq!(Limits::of(from, to, read), Limits::of(from, to, unread));
            Limits::of(from, to, read)
        };
        let between = |from_ns, to_ns| Limits { from_ns: Some(from_ns), to_ns: Some(to_ns) };
        let half_past_two_ns = DAY + hours(14) + 1_800 * NS_PER_S;
        assert_eq!(limits(daily(14), daily(15), half_past_two_ns), between(DAY + hours(14), DAY + hours(15)));
        assert_eq!(
            limits(daily(23), daily(1), half_past_two_ns),
            between(DAY - hours(1), DAY + hours(1)),
            "over midnight"
        );
        let yesterday = Some(Moment::At(DAY - hours(12)));
        assert_eq!(
            limits(yesterday, daily(15), half_past_two_ns),
            between(DAY - hours(12), DAY - hours(9)),
            "of the day of the start"
        );
        let until = Limits { from_ns: None, to_ns: Some(DAY - hours(9)) };
        assert_eq!(limits(None, daily(15), half_past_two_ns), until);
        let after = Some(Moment::After(NS_PER_S));
        let unknown = Bounds { start_ns: None, ..BOUNDS };
        let none = Limits { from_ns: None, to_ns: None };
        assert_eq!(Limits::of(after, daily(15), unknown), none, "the start is unknown");
    }
}
