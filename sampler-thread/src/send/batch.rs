//! Samples on their way out: columns of one [`SampleBatch`] message.

use proto::v1::SampleBatch;

pub use proto::rows::BIASED as FLAG_BIASED;

/// Set on a sample whose stack copy was cut at `maxstack` or by an exhausted pool.
pub const FLAG_TRUNCATED: u32 = 1;
/// Set on a sample whose walk did not reach a root.
pub const FLAG_INCOMPLETE: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// CLOCK_MONOTONIC at the expiration, in nanoseconds.
    pub time_ns: u64,
    /// Wire number of the thread.
    pub thread: u32,
    /// Number of the stack.
    pub stack: u64,
    /// CPU time this sample stands for, in nanoseconds.
    pub cpu_ns: u64,
    /// `FLAG_*` bits.
    pub flags: u32,
    /// Samples merged into it.
    pub count: u64,
}

/// A batch being filled.
#[derive(Debug, Default)]
pub struct Batch {
    samples: Vec<Sample>,
}

impl Batch {
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Takes the samples as a message, if there are any; columns with default values are left empty.
    pub fn take(&mut self) -> Option<SampleBatch> {
        let samples = &mut self.samples;
        // Queues are drained one after the other; ascending times take two bytes instead of four.
        samples.sort_by_key(|sample| sample.time_ns);
        let first_time_ns = samples.first()?.time_ns;
        let cpu_unit_ns = samples.iter().fold(0, |unit, sample| common_divisor(sample.cpu_ns, unit));
        let is_usual = |sample: &Sample| sample.cpu_ns == cpu_unit_ns;
        let mut batch = SampleBatch { first_time_ns, cpu_unit_ns, ..SampleBatch::default() };
        if !samples.iter().all(is_usual) {
            // All CPU times are 0 if their divisor is.
            let units = samples.iter().map(|sample| sample.cpu_ns / cpu_unit_ns.max(1));
            batch.cpu_units = units.collect();
        }
        if samples.iter().any(|sample| sample.flags != 0) {
            batch.flags = samples.iter().map(|sample| sample.flags).collect();
        }
        if samples.iter().any(|sample| sample.count != 1) {
            batch.count = samples.iter().map(|sample| sample.count).collect();
        }
        batch.thread = samples.iter().map(|sample| sample.thread).collect();
        batch.node = samples.iter().map(|sample| u32::try_from(sample.stack).unwrap_or(0)).collect();
        let mut last_us = 0;
        batch.time_delta_us.extend(samples.iter().map(|sample| {
            let us = (sample.time_ns - first_time_ns) / 1000;
            us - std::mem::replace(&mut last_us, us)
        }));
        samples.clear();
        Some(batch)
    }
}

/// Returns the greatest common divisor; CPU times are multiples of one interval, so one step is nearly always enough.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proto::rows::{Row, has_equal_columns, rows};

    use super::*;

    fn sample(time_ns: u64, cpu_ns: u64) -> Sample {
        Sample { time_ns, thread: 1, stack: 2, cpu_ns, flags: 0, count: 1 }
    }

    fn batch(samples: &[Sample]) -> SampleBatch {
        let mut batch = Batch::default();
        samples.iter().for_each(|sample| batch.push(*sample));
        let message = batch.take().expect("filled");
        assert!(batch.is_empty() && batch.take().is_none());
        assert!(has_equal_columns(&message));
        message
    }

    #[test]
    fn samples_come_back_by_time_to_the_microsecond() {
        let samples = [
            Sample { count: 7, ..sample(51_999, 20) },
            Sample { flags: FLAG_TRUNCATED, ..sample(40_000, 30) },
            Sample { thread: 9, stack: 1 << 20, ..sample(42_500, 20) },
        ];
        let row = |sample: Sample| {
            let Sample { time_ns, thread, stack, cpu_ns, flags, count } = sample;
            let time_ns = 40_000 + (time_ns - 40_000) / 1000 * 1000;
            Row { time_ns, thread, stack: stack as u32, cpu_ns, flags, count }
        };
        let message = batch(&samples);
        assert_eq!(rows(&message).collect::<Vec<_>>(), [1, 2, 0].map(|index| row(samples[index])));
        assert_eq!((message.cpu_unit_ns, &message.cpu_units[..]), (10, &[3, 2, 2][..]));
    }

    #[test]
    fn columns_with_equal_values_are_left_out() {
        let message = batch(&[sample(5, 20), sample(6, 20)]);
        assert_eq!(message.cpu_unit_ns, 20);
        assert!(message.cpu_units.is_empty() && message.flags.is_empty() && message.count.is_empty());
        let nothing = batch(&[sample(5, 0), sample(u64::MAX, 0)]);
        assert_eq!(rows(&nothing).map(|row| row.cpu_ns).collect::<Vec<_>>(), [0, 0]);
    }
}
