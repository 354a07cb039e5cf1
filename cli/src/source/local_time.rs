//! Times of a selection as users write them on the command line: dates and times of day are local.

use chrono::{DateTime, Local, NaiveDateTime, NaiveTime, TimeZone, Utc};
use profile::query::selection::Selection;

/// The accepted forms.
const FORMS: &str = "write `now`, a time before the end such as -90s or -15m, a time after the start such as 3s, a local time of day \
                     such as 14:03:05, a date such as 2026-11-29T14:03 (local, or with Z or +02:00), or seconds since the \
                     epoch; a time that a change of the clocks skips does not exist";

/// Checks a time and returns it as questions have it: a time of day is UTC, a date is seconds since the epoch.
pub fn moment(text: &str) -> Result<String, &'static str> {
    let text = in_utc(text).ok_or(FORMS)?;
    Selection::of(&[("from".to_owned(), text.clone())]).map_err(|_| FORMS)?;
    Ok(text)
}

/// Converts a date, or a time of day, from local time; others stay as they are. A time of day has today's distance from
/// UTC. Returns `None` for a local time that does not exist.
fn in_utc(text: &str) -> Option<String> {
    const DATES: [&str; 4] =
        ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    const TIMES: [&str; 2] = ["%H:%M:%S%.f", "%H:%M"];
    if let Ok(date) = DateTime::parse_from_rfc3339(text) {
        return Some(since_epoch(&date));
    }
    if let Some(date) = DATES.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok()) {
        return Local.from_local_datetime(&date).earliest().as_ref().map(since_epoch);
    }
    let Some(time) = TIMES.iter().find_map(|form| NaiveTime::parse_from_str(text, form).ok()) else {
        return Some(text.to_owned());
    };
    let today = Local.from_local_datetime(&Local::now().date_naive().and_time(time)).earliest()?;
    Some(today.with_timezone(&Utc).format("%H:%M:%S%.f").to_string())
}

fn since_epoch<Z: TimeZone>(date: &DateTime<Z>) -> String {
    format!("{}.{:09}", date.timestamp(), date.timestamp_subsec_nanos())
}
