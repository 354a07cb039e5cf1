//! Counters of a session, cumulative, so that a repeated or lost statistics message changes nothing.

use proto::v1;
use queue::Histogram;

use crate::validity::unloading::Unloading;

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

/// What of the statistics is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Not enough has happened.
    Nothing,
    /// What is short: counters, and the accounts of threads with many new samples.
    Brief,
    /// Histograms, lists, and all accounts that changed.
    Whole,
}

/// Decides, once a second, which statistics to send, so that they stay a small part of what a sample costs.
#[derive(Debug, Default)]
pub struct StatisticsDue {
    /// Seconds, and samples at the time, since the last of each kind.
    since_any: u64,
    since_whole: u64,
    samples_at_any: u64,
    samples_at_whole: u64,
    begun: bool,
}

impl StatisticsDue {
    /// Some 80 bytes with its acknowledgement.
    const SAMPLES_OF_BRIEF: u64 = 50;
    const LONGEST_BRIEF_S: u64 = 5;
    /// Some kilobyte, and 30 bytes for each thread: what one busy processor yields in ten seconds makes it a byte a
    /// sample.
    const SAMPLES_OF_WHOLE: u64 = 1000;
    const LONGEST_WHOLE_S: u64 = 60;

    /// Another second is over, and this many samples were taken so far.
    pub fn after_round(&mut self, samples: u64) -> Due {
        self.since_any += 1;
        self.since_whole += 1;
        let many = |at: u64, enough: u64| samples - at >= enough;
        let is_whole = !self.begun
            || many(self.samples_at_whole, Self::SAMPLES_OF_WHOLE)
            || self.since_whole >= Self::LONGEST_WHOLE_S;
        let is_any = is_whole
            || many(self.samples_at_any, Self::SAMPLES_OF_BRIEF)
            || self.since_any >= Self::LONGEST_BRIEF_S;
        if is_any {
            (self.since_any, self.samples_at_any) = (0, samples);
        }
        if is_whole {
            (self.since_whole, self.samples_at_whole, self.begun) = (0, samples, true);
        }
        match (is_whole, is_any) {
            (true, _) => Due::Whole,
            (false, true) => Due::Brief,
            (false, false) => Due::Nothing,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each kind was due in a minute of `rate` samples a second, the beginning not counted.
    fn in_a_minute(rate: u64) -> (usize, usize) {
        let mut due = StatisticsDue::default();
        assert_eq!(due.after_round(rate), Due::Whole, "the first second");
        let all: Vec<Due> = (2..62).map(|second| due.after_round(second * rate)).collect();
        let count = |kind| all.iter().filter(|due| **due == kind).count();
        (count(Due::Brief), count(Due::Whole))
    }

    #[test]
    fn statistics_come_with_the_samples_and_never_stay_away() {
        assert_eq!(in_a_minute(0), (11, 1));
        assert_eq!(in_a_minute(10), (11, 1));
        assert_eq!(in_a_minute(100), (54, 6));
        assert_eq!(in_a_minute(10_000), (0, 60));
    }
}
