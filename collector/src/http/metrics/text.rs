//! The text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;

/// A metric. It is a counter if its name ends with `_total`, else a gauge.
pub(super) struct Metric<'v> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    /// Values by the values of the labels; a metric without any is left out.
    values: Vec<(Vec<&'v str>, f64)>,
}

impl<'v> Metric<'v> {
    /// Returns the metric described by `text`: its name, a space and its help text.
    pub fn new(
        text: &'static str,
        labels: &'static [&'static str],
        values: impl IntoIterator<Item = (Vec<&'v str>, f64)>,
    ) -> Self {
        let (name, help) = text.split_once(' ').unwrap_or((text, ""));
        Metric { name, help, labels, values: values.into_iter().collect() }
    }

    /// Returns a metric without labels.
    pub fn plain(text: &'static str, value: f64) -> Self {
        Metric::new(text, &[], [(Vec::new(), value)])
    }

    pub fn write_to(&self, out: &mut String) {
        if self.values.is_empty() {
            return;
        }
        let kind = if self.name.ends_with("_total") { "counter" } else { "gauge" };
        write_head(out, self.name, self.help, kind);
        for (values, value) in &self.values {
            let labels = self.labels.iter().copied().zip(values.iter().copied());
            write_sample(out, self.name, labels, *value);
        }
    }
}

/// Upper bounds of the buckets for the duration of a query, in seconds.
const SECONDS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Default)]
struct Durations {
    /// Queries by the first bucket that they fit in; longer ones are in the count only.
    buckets: [u64; SECONDS.len()],
    count: u64,
    seconds: f64,
}

/// Durations of queries by the name of the query.
#[derive(Default)]
pub(super) struct QueryDurations(Mutex<BTreeMap<&'static str, Durations>>);

impl QueryDurations {
    pub fn record(&self, query: &'static str, time: Duration) {
        let mut all = self.0.lock();
        let durations = all.entry(query).or_default();
        durations.count += 1;
        durations.seconds += time.as_secs_f64();
        if let Some(bucket) = SECONDS.iter().position(|bound| time.as_secs_f64() <= *bound) {
            durations.buckets[bucket] += 1;
        }
    }

    pub fn write_to(&self, out: &mut String) {
        const NAME: &str = "tickwalk_query_duration_seconds";
        let all = self.0.lock();
        if all.is_empty() {
            return;
        }
        write_head(out, NAME, "Duration of queries", "histogram");
        for (query, durations) in &*all {
            let mut sum = 0;
            for (bound, count) in SECONDS.iter().zip(durations.buckets) {
                sum += count;
                let labels = [("query", *query), ("le", &*bound.to_string())];
                write_sample(out, &format!("{NAME}_bucket"), labels, sum as f64);
            }
            let count = durations.count as f64;
            write_sample(out, &format!("{NAME}_bucket"), [("query", *query), ("le", "+Inf")], count);
            write_sample(out, &format!("{NAME}_sum"), [("query", *query)], durations.seconds);
            write_sample(out, &format!("{NAME}_count"), [("query", *query)], count);
        }
    }
}

fn write_head(out: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn write_sample<'l>(
    out: &mut String,
    name: &str,
    labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    value: f64,
) {
    out.push_str(name);
    let mut separator = '{';
    for (label, text) in labels {
        let text = text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
        let _ = write!(out, "{separator}{label}=\"{text}\"");
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(write: impl FnOnce(&mut String)) -> String {
        let mut text = String::new();
        write(&mut text);
        text
    }

    #[test]
    fn label_values_are_escaped() {
        let metric = Metric::new("a_total Things", &["x", "y"], [(vec!["a\"b\\c\nd", ""], 1.5)]);
        let expected =
            "# HELP a_total Things\n# TYPE a_total counter\na_total{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1.5\n";
        assert_eq!(text_of(|out| metric.write_to(out)), expected);
    }

    #[test]
    fn a_metric_without_values_is_left_out() {
        assert_eq!(text_of(|out| Metric::new("a Things", &["x"], []).write_to(out)), "");
    }

    #[test]
    fn buckets_hold_all_shorter_durations() {
        let durations = QueryDurations::default();
        for milliseconds in [1, 20, 21, 60_000] {
            durations.record("top", Duration::from_millis(milliseconds));
        }
        let text = text_of(|out| durations.write_to(out));
        for line in [
            "# TYPE tickwalk_query_duration_seconds histogram",
            "tickwalk_query_duration_seconds_bucket{query=\"top\",le=\"0.001\"} 1",
            "tickwalk_query_duration_seconds_bucket{query=\"top\",le=\"0.02\"} 2",
            "tickwalk_query_duration_seconds_bucket{query=\"top\",le=\"30\"} 3",
            "tickwalk_query_duration_seconds_bucket{query=\"top\",le=\"+Inf\"} 4",
            "tickwalk_query_duration_seconds_sum{query=\"top\"} 60.042",
            "tickwalk_query_duration_seconds_count{query=\"top\"} 4",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
        }
    }
}
