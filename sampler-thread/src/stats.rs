//! Counters of a session, cumulative, so that a repeated or lost statistics message changes nothing.

use proto::v1;
use queue::Histogram;

use crate::unloading::Unloading;

/// What the sampler thread counts besides the accounts.
pub struct Stats {
    /// Requests taken out of queues.
    pub requests: u64,
    /// Samples put into batches.
    pub samples: u64,
    /// Requests whose stacks were walked to their roots.
    pub resolved: u64,
    /// The others, by what was in the way.
    failed: Vec<(&'static str, u64)>,
    /// Cycles of all handler runs that were told of.
    pub handler_ticks: u64,
    /// CPU time of drains that found requests, in nanoseconds.
    pub drains_cpu_ns: u64,
    /// Walks by stop reason.
    stops: Vec<(&'static str, u64)>,
    /// Time stamp counter cycles per run of the signal handler.
    pub handler_cycles: Histogram,
    /// Nanoseconds per walked and named sample.
    pub walk_ns: Histogram,
    /// Nanoseconds per drain that found requests.
    pub drain_ns: Histogram,
    /// Requests found by each of them.
    pub drain_requests: Histogram,
    /// Frames shown as unloaded.
    pub unloaded_frames: u64,
    /// Samples with such a frame.
    pub unloaded_samples: u64,
    /// CPU time before timers ran, of threads that were retired.
    pub before_timer_ns: u64,
    /// Losses of retired threads by cause.
    pub lost: Vec<v1::Lost>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            requests: 0,
            samples: 0,
            resolved: 0,
            failed: Vec::new(),
            handler_ticks: 0,
            drains_cpu_ns: 0,
            stops: Vec::new(),
            handler_cycles: Histogram::new(),
            walk_ns: Histogram::new(),
            drain_ns: Histogram::new(),
            drain_requests: Histogram::new(),
            unloaded_frames: 0,
            unloaded_samples: 0,
            before_timer_ns: 0,
            lost: Vec::new(),
        }
    }
}

impl Stats {
    /// Counts the end of one walk.
    pub fn count_stop(&mut self, name: &'static str) {
        add_one(&mut self.stops, name);
    }

    /// Counts a request that became no whole stack, or no sample at all.
    pub fn count_failed(&mut self, cause: &'static str) {
        add_one(&mut self.failed, cause);
    }

    /// Counts the frames of one sample whose methods may have been unloaded.
    pub fn count_unloaded(&mut self, frames: u32) {
        self.unloaded_frames += u64::from(frames);
        self.unloaded_samples += u64::from(frames != 0);
    }

    /// What became of names in the face of class unloading, as a message.
    pub fn unloading(&self, unloading: &Unloading) -> v1::Unloading {
        v1::Unloading {
            detector: unloading.detector().name().to_owned(),
            frames: self.unloaded_frames,
            samples: self.unloaded_samples,
            pause_added_ns: Some(histogram_message(unloading.added_ns())),
            pauses_cut_short: unloading.cut_short(),
        }
    }

    /// Walks by stop reason, as messages.
    pub fn stops(&self) -> Vec<v1::Counter> {
        messages(&self.stops)
    }

    /// Requests that became no whole stack, by cause, as messages.
    pub fn failed(&self) -> Vec<v1::Counter> {
        messages(&self.failed)
    }
}

fn add_one(counts: &mut Vec<(&'static str, u64)>, name: &'static str) {
    match counts.iter_mut().find(|(known, _)| *known == name) {
        Some((_, count)) => *count += 1,
        None => counts.push((name, 1)),
    }
}

fn messages(counts: &[(&'static str, u64)]) -> Vec<v1::Counter> {
    counts.iter().map(|(name, count)| v1::Counter { name: (*name).to_owned(), count: *count }).collect()
}

/// A histogram as a message, empty buckets left out.
pub fn histogram_message(histogram: &Histogram) -> v1::Histogram {
    let mut message = v1::Histogram { count: 0, max: histogram.snapshot().max(), ..v1::Histogram::default() };
    let snapshot = histogram.snapshot();
    for (bucket, count) in snapshot.iter() {
        message.count += count;
        message.bucket.push(bucket as u32);
        message.bucket_count.push(count);
    }
    message
}
