//! The queue study: losses, memory and drain times of each cell.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use profile::histogram::quantile;
use profile::query::summary::Summary;
use profile::session::Session;
use profile::text::quantity::share;
use serde_json::{Map, Value, json};

use super::grid::Cell;
use super::jvm::{Jvm, Run};

/// The page that shows a study; `{{data}}` stands for its JSON.
const PAGE: &str = include_str!("page.html");

/// Measurements of one cell.
#[derive(Clone, Debug)]
pub struct Row {
    cell: Cell,
    samples: u64,
    lost: BTreeMap<String, u64>,
    /// Samples with their newest frame only, because there was no memory for a copy of the stack.
    without_stack: u64,
    /// The other columns of the table, in their order.
    measured: Vec<(String, Value)>,
}

impl Row {
    fn new(cell: Cell, run: &Run) -> Self {
        let summary = Summary::new(&run.profile);
        let statistics = run.profile.session().statistics.clone().unwrap_or_default();
        let calls = run.truth("calls").and_then(|numbers| numbers.first().copied()).unwrap_or(0);
        let call_ns = summary.cpu_ns.sampled / u64::try_from(calls).unwrap_or(0).max(1);
        let lost_share = share(summary.cpu_ns.lost_ns(), summary.cpu_ns.kernel);
        let queue = &summary.queue;
        let mut measured = vec![
            ("call_us".to_owned(), json!(call_ns / 1_000)),
            ("lost_share".to_owned(), json!((lost_share * 1e6).round() / 1e6)),
            ("lost_after_growth".to_owned(), json!(queue.lost_after_growth)),
            ("queue_bytes".to_owned(), json!(queue.most_bytes)),
            ("pool_bytes".to_owned(), json!(queue.pool_bytes)),
            ("largest_entries".to_owned(), json!(queue.largest)),
            ("grown".to_owned(), json!(queue.grown)),
        ];
        measured.extend(drains(run.profile.session()));
        let lost = statistics.lost.into_iter().filter(|lost| lost.count > 0);
        Self {
            cell,
            samples: summary.samples,
            lost: lost.map(|lost| (lost.cause, lost.count)).collect(),
            without_stack: summary.failed.get("pool_exhausted").copied().unwrap_or(0),
            measured,
        }
    }

    /// Returns the columns of the table, with one for each of `causes` of losses.
    fn columns(&self, causes: &BTreeSet<&str>) -> Vec<(String, Value)> {
        let Cell { work, threads, depth, interval_ms, queues, drain, .. } = self.cell;
        let mut columns = vec![
            ("work".to_owned(), json!(work.to_string())),
            ("threads".to_owned(), json!(threads)),
            ("depth".to_owned(), json!(depth)),
            ("interval_ms".to_owned(), json!(interval_ms)),
            ("queues".to_owned(), json!(queues.to_string())),
            ("drain".to_owned(), json!(drain.to_string())),
            ("samples".to_owned(), json!(self.samples)),
            ("without_stack".to_owned(), json!(self.without_stack)),
        ];
        let lost = |cause: &str| json!(self.lost.get(cause).copied().unwrap_or(0));
        columns.extend(causes.iter().map(|cause| (format!("lost_{cause}"), lost(cause))));
        columns.extend(self.measured.iter().cloned());
        columns
    }
}

/// Returns count, quantiles and maximum of the drains that found requests, and of the walks.
fn drains(session: &Session) -> impl Iterator<Item = (String, Value)> + use<> {
    let statistics = session.statistics.clone().unwrap_or_default();
    let histograms = [
        ("drain_requests", statistics.drain_requests),
        ("drain_ns", statistics.drain_ns),
        ("walk_ns", statistics.walk_ns),
    ];
    histograms.into_iter().flat_map(|(name, histogram)| {
        let of = histogram.unwrap_or_default();
        let points =
            [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)].map(|(point, part)| (point, quantile(&of, part)));
        let all = [("count", of.count)].into_iter().chain(points).chain([("max", of.max)]);
        all.map(move |(point, value)| (format!("{name}_{point}"), json!(value)))
    })
}

#[derive(Debug)]
pub struct Study {
    pub rows: Vec<Row>,
    /// Failed cells with their errors.
    pub failed: Vec<(Cell, String)>,
    skipped: usize,
    jvm: String,
    /// Tick of the kernel's CPU timers: measured by the agent at its start, else reported by the kernel; 0 if unknown.
    tick_ns: u64,
}

/// Runs `cells` until `budget` is used up and calls `progress` with a line for each.
pub fn study(jvm: &Jvm, cells: &[Cell], budget: Option<Duration>, progress: &mut dyn FnMut(&str)) -> Study {
    let start = Instant::now();
    let mut study =
        Study { rows: Vec::new(), failed: Vec::new(), skipped: 0, jvm: String::new(), tick_ns: 0 };
    for (number, &cell) in cells.iter().enumerate() {
        if budget.is_some_and(|budget| start.elapsed() >= budget) {
            study.skipped = cells.len() - number;
            progress(&format!("the time limit is reached, {} cells are skipped", study.skipped));
            break;
        }
        let left = start.elapsed().as_secs_f64() / number.max(1) as f64 * (cells.len() - number) as f64;
        let place = format!("{}/{}", number + 1, cells.len());
        let minutes = if number == 0 { String::new() } else { format!(", about {left:.0} s left") };
        match jvm.run(&cell.options(), &cell.arguments()) {
            Ok(run) => {
                let hello = run.profile.hello();
                study.jvm = format!("{} {}", hello.jvm_name, hello.jvm_version);
                study.tick_ns = hello.kernel_tick_ns;
                let row = Row::new(cell, &run);
                let (samples, lost, cut) = (row.samples, row.lost.values().sum::<u64>(), row.without_stack);
                let cut = if cut == 0 { String::new() } else { format!(", {cut} without stack") };
                progress(&format!("{place} {cell}: {samples} samples, {lost} lost{cut}{minutes}"));
                study.rows.push(row);
            }
            Err(error) => {
                progress(&format!("{place} {cell}: failed: {error:#}"));
                study.failed.push((cell, format!("{error:#}")));
            }
        }
    }
    study
}

impl Study {
    /// Returns the causes of losses in any cell.
    fn causes(&self) -> BTreeSet<&str> {
        self.rows.iter().flat_map(|row| row.lost.keys()).map(String::as_str).collect()
    }

    /// Writes a header and one line for each cell, as CSV.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let causes = self.causes();
        for (number, row) in self.rows.iter().enumerate() {
            let (names, values): (Vec<_>, Vec<_>) = row.columns(&causes).into_iter().unzip();
            if number == 0 {
                writeln!(out, "{}", names.join(","))?;
            }
            let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            writeln!(out, "{}", values.into_iter().map(text).collect::<Vec<_>>().join(","))?;
        }
        Ok(())
    }

    /// Returns the study as JSON: a cell has the columns of the CSV file, its settings, and all of it in words.
    pub fn to_json(&self) -> Value {
        let causes = self.causes();
        let cells = self.rows.iter().map(|row| {
            let texts = [("cell", row.cell.to_string()), ("settings", row.cell.settings())];
            let texts = texts.map(|(name, text)| (name.to_owned(), json!(text)));
            Value::Object(row.columns(&causes).into_iter().chain(texts).collect::<Map<_, _>>())
        });
        let failed =
            self.failed.iter().map(|(cell, error)| json!({ "cell": cell.to_string(), "error": error }));
        json!({
            "jvm": self.jvm, "tick_ns": self.tick_ns, "skipped": self.skipped,
            "failed": failed.collect::<Vec<_>>(), "cells": cells.collect::<Vec<_>>(),
        })
    }

    /// Returns a page that shows the study; it has all of its data.
    pub fn page(&self) -> String {
        PAGE.replace("{{data}}", &profile::ui::standalone::escape_json(&self.to_json().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use proto::v1::{Histogram, Statistics};

    use super::super::grid::quick;
    use super::*;

    /// A study of three cells, the second of which lost samples.
    fn small() -> Study {
        let row = |index: usize, lost: u64| Row {
            cell: quick(2)[index],
            samples: 1_000,
            lost: (lost > 0).then(|| ("queue_full".to_owned(), lost)).into_iter().collect(),
            without_stack: 0,
            measured: drains(&Session::default()).collect(),
        };
        let rows = vec![row(0, 0), row(12, 30), row(13, 0)];
        Study { rows, failed: Vec::new(), skipped: 2, jvm: "Test VM <1>".to_owned(), tick_ns: 4_000_000 }
    }

    #[test]
    fn cells_are_lines_of_equal_length() {
        let mut csv = Vec::new();
        small().write_csv(&mut csv).expect("memory");
        let text = String::from_utf8(csv).expect("text");
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [columns[0]; 4]);
        assert!(text.lines().nth(2).is_some_and(|line| line.contains(",1000,0,30,")), "{text}");
    }

    #[test]
    fn drains_have_a_count_quantiles_and_a_maximum() {
        let requests =
            Histogram { count: 100, max: 7, bucket: vec![1, 2, 3, 7], bucket_count: vec![50, 45, 4, 1] };
        let mut session = Session::default();
        session.add_statistics(Statistics { drain_requests: Some(requests), ..Statistics::default() });
        let found: Vec<String> = drains(&session).map(|(name, value)| format!("{name}={value}")).collect();
        let points = ["count=100", "p50=1", "p95=2", "p99=3", "max=7"];
        assert_eq!(found[..5], points.map(|point| format!("drain_requests_{point}")));
        assert_eq!(found[5], "drain_ns_count=0");
    }

    #[test]
    fn the_page_has_the_data_and_needs_nothing_from_outside() {
        let study = small();
        let page = study.page();
        assert!(
            page.contains("Test VM \\u003c1\\u003e") && page.contains("\"lost_queue_full\":30"),
            "{page}"
        );
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http:") && !outside.contains("https:") && !outside.contains("src="));
        let cell = &study.to_json()["cells"][1];
        assert_eq!(
            (&cell["settings"], &cell["skipped"]),
            (&json!("shipped, drain paused 300 ms"), &Value::Null)
        );
        assert_eq!(study.to_json()["skipped"], 2);
    }
}
