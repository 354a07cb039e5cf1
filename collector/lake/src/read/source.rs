//! A lake as a source: each question reads its selection, which is kept for a minute.
//!
//! A page has several questions about one selection at the same time; they are answered from one reading.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profile::source::{Part, ReadError, SharedSource, Source, Wanted};
use proto::framing::FramingError;

use super::fetch::{Fetcher, Progress};
use super::times::Times;
use super::{Index, Limits, Selected, repeated_if_gone};
use crate::storage::{Lake, LakeError};

/// Time for which readings are kept; collectors add intervals once a minute.
const KEPT: Duration = Duration::from_secs(60);

/// Most readings of a kind that are kept.
const MOST_KEPT: usize = 4;

/// A lake as a source, which is read for each question.
pub struct LakeSource {
    lake: Lake,
    timeout: Duration,
    report: Box<dyn Fn(Option<Progress>) + Send + Sync>,
    /// Held while the lake is read, so that it is read once for several questions.
    recent: Mutex<Recent>,
}

/// Readings by their selection, the latest last.
#[derive(Default)]
struct Recent {
    /// By times and processes.
    indexes: Vec<Reading<(Times, Vec<String>), Index>>,
    /// By times and sessions.
    samples: Vec<Reading<(Times, Vec<u64>), Selected>>,
}

/// A reading and what it is of.
struct Reading<K, T> {
    begin: Instant,
    key: K,
    content: Arc<T>,
}

fn find<K: PartialEq, T>(readings: &mut Vec<Reading<K, T>>, key: &K) -> Option<Arc<T>> {
    readings.retain(|reading| reading.begin.elapsed() < KEPT);
    readings.iter().find(|reading| reading.key == *key).map(|reading| Arc::clone(&reading.content))
}

fn keep<K, T>(readings: &mut Vec<Reading<K, T>>, begin: Instant, key: K, content: &Arc<T>) {
    readings.push(Reading { begin, key, content: Arc::clone(content) });
    readings.drain(..readings.len().saturating_sub(MOST_KEPT));
}

impl LakeSource {
    /// Returns `lake` as a source that is read for at most `timeout` for each question. Meanwhile, `report` is called
    /// several times a second, and with `None` at the end.
    pub fn new(
        lake: Lake,
        timeout: Duration,
        report: impl Fn(Option<Progress>) + Send + Sync + 'static,
    ) -> LakeSource {
        LakeSource { lake, timeout, report: Box::new(report), recent: Mutex::default() }
    }

    fn read(&self, wanted: &Wanted<'_>) -> Result<Arc<Selected>, LakeError> {
        let report = |progress| (self.report)(Some(progress));
        let fetcher =
            Fetcher { lake: &self.lake, is_over: wanted.is_over, report: &report, done: Cell::default() };
        let mut recent = self.recent.lock();
        if (wanted.is_over)() {
            return Err(LakeError::Late);
        }
        let selected = repeated_if_gone(|| {
            let selected = recent.read(&fetcher, wanted);
            if matches!(selected, Err(LakeError::Gone(_))) {
                // The list of files in memory is out of date.
                *recent = Recent::default();
            }
            selected
        });
        (self.report)(None);
        let Progress { requests, bytes, files } = fetcher.done.get();
        tracing::debug!(requests, bytes, files, "read from the lake");
        selected
    }
}

impl Recent {
    fn read(&mut self, fetcher: &Fetcher<'_>, wanted: &Wanted<'_>) -> Result<Arc<Selected>, LakeError> {
        let (begin, limits) = (Instant::now(), Limits::default());
        let key = (Times::of(wanted.ranges_ns), wanted.processes.to_vec());
        let index = match find(&mut self.indexes, &key) {
            Some(index) => index,
            None => {
                let index = Arc::new(Index::read(fetcher, wanted, limits)?);
                keep(&mut self.indexes, begin, key, &index);
                index
            }
        };
        let sessions = index.selected(wanted);
        if !wanted.has_samples {
            return Ok(Arc::new(Selected::of_index(fetcher, &index, sessions, wanted, limits)?));
        }
        let key = (index.times.clone(), sessions.keys().copied().collect());
        if let Some(known) = find(&mut self.samples, &key) {
            return Ok(known);
        }
        // Together, the samples that are kept take no more memory than one selection may have.
        let kept = |samples: &[Reading<_, Selected>]| {
            samples.iter().map(|reading| reading.content.samples.len()).sum::<usize>()
        };
        let selected = Arc::new(Selected::of_index(fetcher, &index, sessions, wanted, limits)?);
        while !self.samples.is_empty() && kept(&self.samples) + selected.samples.len() > limits.samples {
            self.samples.remove(0);
        }
        keep(&mut self.samples, begin, key, &selected);
        Ok(selected)
    }
}

impl Source for LakeSource {
    /// Questions are answered by the parts that [`read_part`](Source::read_part) returns.
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        Vec::new()
    }

    fn end_ns(&self) -> Option<u64> {
        None
    }

    fn cut(&self) -> Option<FramingError> {
        None
    }

    fn usual_time(&self) -> Option<&'static str> {
        Some("-1h")
    }

    fn read_part(&self, wanted: &Wanted<'_>) -> Result<Option<SharedSource>, ReadError> {
        let end = Instant::now() + self.timeout;
        let is_over = || (wanted.is_over)() || Instant::now() >= end;
        let selected = self.read(&Wanted { is_over: &is_over, ..wanted.clone() });
        Ok(Some(selected.map_err(|error| ReadError(error.to_string()))?))
    }
}
