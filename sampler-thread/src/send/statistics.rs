//! Counters of a session, cumulative, so that a repeated or lost statistics message changes nothing.

use proto::histogram::Recorder;
use proto::v1;

use crate::proof::unloading::Unloading;

/// Counts of the sampler thread, without the accounts.
#[derive(Default)]
pub struct Stats {
    /// Requests taken out of queues.
    pub requests: u64,
    /// Bytes of their snapshots.
    pub copied_bytes: u64,
    /// Samples put into batches.
    pub samples: u64,
    /// Samples whose stacks were walked to the root.
    pub resolved: u64,
    /// Samples whose newest Java frame is that of a later point.
    pub biased: u64,
    /// The other requests, by cause.
    failed: Vec<(&'static str, u64)>,
    /// Time stamp counter cycles of all handler runs whose length is known.
    pub handler_ticks: u64,
    /// CPU time of drains that found requests, in nanoseconds.
    pub drains_cpu_ns: u64,
    /// Walks by stop reason.
    stops: Vec<(&'static str, u64)>,
    /// Time stamp counter cycles per run of the signal handler.
    pub handler_cycles: Recorder,
    /// Nanoseconds per walked and named sample.
    pub walk_ns: Recorder,
    /// Nanoseconds per drain that found requests.
    pub drain_ns: Recorder,
    /// Requests per drain that found some.
    pub drain_requests: Recorder,
    pub unloaded_frames: u64,
    /// Samples with such a frame.
    pub unloaded_samples: u64,
    /// CPU time of retired threads before their timers were armed, in nanoseconds.
    pub before_timer_ns: u64,
    /// CPU time of retired threads after that, in nanoseconds.
    pub kernel_ns: u64,
    /// CPU time of the samples of retired threads, in nanoseconds.
    pub sampled_ns: u64,
    /// Losses of retired threads by cause.
    pub lost: Vec<v1::Lost>,
}

impl Stats {
    /// Counts the end of one walk.
    pub fn count_stop(&mut self, name: &'static str) {
        add_one(&mut self.stops, name);
    }

    /// Counts a request without a whole stack, or one that is no sample.
    pub fn count_failed(&mut self, cause: &'static str) {
        add_one(&mut self.failed, cause);
    }

    /// Counts the frames of one sample whose methods may have been unloaded.
    pub fn count_unloaded(&mut self, frames: u32) {
        self.unloaded_frames += u64::from(frames);
        self.unloaded_samples += u64::from(frames != 0);
    }

    /// Returns the effects of class unloading, as a message.
    pub fn unloading(&self, unloading: &Unloading) -> v1::Unloading {
        v1::Unloading {
            detector: unloading.detector().name().to_owned(),
            frames: self.unloaded_frames,
            samples: self.unloaded_samples,
            pause_added_ns: Some(unloading.added_ns()),
            pauses_cut_short: unloading.wait().cut_short(),
        }
    }

    /// Returns the number of walks by stop reason, as messages.
    pub fn stops(&self) -> Vec<v1::Counter> {
        messages(&self.stops)
    }

    /// Returns the number of requests without a whole stack by cause, as messages.
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

/// The part of the statistics that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Nothing,
    /// Counters, and the accounts of threads with many new samples.
    Brief,
    /// Histograms, lists, and all accounts that changed.
    Whole,
}

/// Decides once a second which statistics to send, so that they stay small compared to the samples.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Seconds since the last statistics of each kind, and samples at that time.
    since_any: u64,
    since_whole: u64,
    samples_at_any: u64,
    samples_at_whole: u64,
    /// Connections made before the last whole statistics; `None` before the first.
    connections: Option<u64>,
}

impl Schedule {
    /// Brief statistics take some 80 bytes with their acknowledgement.
    const SAMPLES_OF_BRIEF: u64 = 50;
    const LONGEST_BRIEF_S: u64 = 5;
    /// Whole statistics take about a kilobyte, and 30 bytes for each thread: about a byte per sample at a thousand
    /// samples.
    const SAMPLES_OF_WHOLE: u64 = 1000;
    const LONGEST_WHOLE_S: u64 = 60;

    /// Ends a round of a second; `samples` is their number so far, and `connections` that of connections made: after
    /// each, the collector may be another one, which lacks everything that whole statistics have.
    pub fn after_round(&mut self, samples: u64, connections: u64) -> Extent {
        self.since_any += 1;
        self.since_whole += 1;
        let many = |at: u64, enough: u64| samples - at >= enough;
        let is_whole = self.connections != Some(connections)
            || many(self.samples_at_whole, Self::SAMPLES_OF_WHOLE)
            || self.since_whole >= Self::LONGEST_WHOLE_S;
        let is_any = is_whole
            || many(self.samples_at_any, Self::SAMPLES_OF_BRIEF)
            || self.since_any >= Self::LONGEST_BRIEF_S;
        if is_any {
            (self.since_any, self.samples_at_any) = (0, samples);
        }
        if is_whole {
            (self.since_whole, self.samples_at_whole) = (0, samples);
            self.connections = Some(connections);
        }
        match (is_whole, is_any) {
            (true, _) => Extent::Whole,
            (false, true) => Extent::Brief,
            (false, false) => Extent::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often each kind is sent in a minute of `rate` samples a second, after the first second.
    fn in_a_minute(rate: u64) -> (usize, usize) {
        let mut due = Schedule::default();
        assert_eq!(due.after_round(rate, 1), Extent::Whole, "the first second");
        let all: Vec<Extent> = (2..62).map(|second| due.after_round(second * rate, 1)).collect();
        let count = |kind| all.iter().filter(|due| **due == kind).count();
        (count(Extent::Brief), count(Extent::Whole))
    }

    #[test]
    fn statistics_come_with_the_samples_and_never_stay_away() {
        assert_eq!(in_a_minute(0), (11, 1));
        assert_eq!(in_a_minute(10), (11, 1));
        assert_eq!(in_a_minute(100), (54, 6));
        assert_eq!(in_a_minute(10_000), (0, 60));
    }

    #[test]
    fn another_collector_gets_whole_statistics_at_once() {
        let mut due = Schedule::default();
        let extents = [0, 1, 1, 2, 2].map(|connections| due.after_round(0, connections));
        assert_eq!(extents, [Extent::Whole, Extent::Whole, Extent::Nothing, Extent::Whole, Extent::Nothing]);
    }
}
