//! The queue study: losses, memory and drain times of each cell.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use profile::query::drains::{Distribution, Drains, drains};
use profile::query::summary::Summary;

use super::grid::Cell;
use super::jvm::{Jvm, Run};

/// Measurements of one cell.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// Samples recorded.
    pub samples: u64,
    /// Samples lost by cause.
    pub lost: BTreeMap<String, u64>,
    /// Share of the CPU time whose samples were lost.
    pub lost_share: f64,
    /// Samples with their newest frame only, because there was no memory for a copy of the stack.
    pub without_stack: u64,
    /// Sampled CPU time per call of the work, in nanoseconds.
    pub call_ns: u64,
    /// Peak memory of the request queues, in bytes.
    pub queue_bytes: u64,
    /// Memory of stack copies at the end, in bytes.
    pub pool_bytes: u64,
    /// Entries of the largest queue.
    pub largest: u64,
    /// Number of times queues grew.
    pub grown: u64,
    /// Samples lost by queues that had grown before.
    pub lost_after_growth: u64,
    /// Sizes and times of drains.
    pub drains: Drains,
}

impl Row {
    fn new(cell: Cell, run: &Run) -> Self {
        let summary = Summary::new(&run.profile);
        let lost = run
            .profile
            .session()
            .statistics
            .as_ref()
            .map(|statistics| &statistics.lost[..])
            .unwrap_or_default();
        let lost = lost.iter().filter(|lost| lost.count > 0);
        let calls = run.truth("calls").and_then(|numbers| numbers.first().copied()).unwrap_or(0);
        Self {
            cell,
            samples: summary.samples,
            lost: lost.map(|lost| (lost.cause.clone(), lost.count)).collect(),
            lost_share: profile::text::quantity::share(summary.cpu_ns.lost_ns(), summary.cpu_ns.kernel),
            without_stack: summary.failed.get("pool_exhausted").copied().unwrap_or(0),
            call_ns: summary.cpu_ns.sampled / u64::try_from(calls).unwrap_or(0).max(1),
            queue_bytes: summary.queue.most_bytes,
            pool_bytes: summary.queue.pool_bytes,
            largest: summary.queue.largest,
            grown: summary.queue.grown,
            lost_after_growth: summary.queue.lost_after_growth,
            drains: drains(run.profile.session()),
        }
    }

    /// Returns the samples lost, of all causes.
    pub fn lost_samples(&self) -> u64 {
        self.lost.values().sum()
    }
}

/// Results of a study.
#[derive(Debug)]
pub struct Study {
    /// Measured cells.
    pub rows: Vec<Row>,
    /// Failed cells with their errors.
    pub failed: Vec<(Cell, String)>,
    /// Number of cells that were skipped at the time limit.
    pub skipped: usize,
    /// Name and version of the JVM.
    pub jvm: String,
    /// Tick of the kernel's CPU timers: measured by the agent at its start, else reported by the kernel; 0 if unknown.
    pub tick_ns: u64,
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
                let (samples, lost, cut) = (row.samples, row.lost_samples(), row.without_stack);
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
    /// Returns the settings in the order of the runs, each with its rows.
    pub fn by_settings(&self) -> Vec<(String, Vec<&Row>)> {
        let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            let settings = row.cell.settings();
            match groups.iter_mut().find(|(known, _)| *known == settings) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((settings, vec![row])),
            }
        }
        groups
    }

    /// Writes a header and one line per cell.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut causes: Vec<&str> =
            self.rows.iter().flat_map(|row| row.lost.keys()).map(String::as_str).collect();
        causes.sort_unstable();
        causes.dedup();
        write!(out, "work,threads,depth,interval_ms,queues,drain,call_us,samples,lost_share")?;
        for cause in &causes {
            write!(out, ",lost_{cause}")?;
        }
        write!(out, ",without_stack,lost_after_growth,queue_bytes,pool_bytes,largest_entries,grown")?;
        for what in ["drain_requests", "drain_ns", "walk_ns"] {
            for point in ["count", "p50", "p95", "p99", "max"] {
                write!(out, ",{what}_{point}")?;
            }
        }
        writeln!(out)?;
        for row in &self.rows {
            let Cell { work, threads, depth, interval_ms, queues, drain, .. } = row.cell;
            write!(out, "{work},{threads},{depth},{interval_ms},{queues},{drain},{}", row.call_ns / 1_000)?;
            write!(out, ",{},{:.6}", row.samples, row.lost_share)?;
            for cause in &causes {
                write!(out, ",{}", row.lost.get(*cause).copied().unwrap_or(0))?;
            }
            write!(out, ",{},{}", row.without_stack, row.lost_after_growth)?;
            write!(out, ",{},{},{},{}", row.queue_bytes, row.pool_bytes, row.largest, row.grown)?;
            let Drains { requests, ns, walk_ns } = row.drains;
            for Distribution { count, p50, p95, p99, max } in [requests, ns, walk_ns] {
                write!(out, ",{count},{p50},{p95},{p99},{max}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::grid::quick;
    use super::*;

    /// A study of three cells, the second of which lost samples.
    pub fn small() -> Study {
        let row = |index: usize, lost: u64| Row {
            cell: quick(2)[index],
            samples: 1_000,
            lost: (lost > 0).then(|| ("queue_full".to_owned(), lost)).into_iter().collect(),
            lost_share: lost as f64 / 1_000.0,
            without_stack: 0,
            call_ns: 5_000_000,
            queue_bytes: 20_000,
            pool_bytes: 4 << 20,
            largest: 16,
            grown: lost.min(1),
            lost_after_growth: 0,
            drains: Drains::default(),
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
        assert!(text.lines().nth(2).is_some_and(|line| line.contains(",1000,0.030000,30,")), "{text}");
    }

    #[test]
    fn settings_gather_their_cells() {
        let study = small();
        let groups = study.by_settings();
        let sizes: Vec<_> = groups.iter().map(|(name, rows)| (name.as_str(), rows.len())).collect();
        assert_eq!(sizes, [("shipped", 1), ("shipped, drain paused 300 ms", 2)]);
    }
}
