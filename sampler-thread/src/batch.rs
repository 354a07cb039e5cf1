//! Samples on their way out: columns of one [`SampleBatch`] message.

use proto::v1::SampleBatch;

/// Set on a sample whose stack copy was cut at `maxstack` or by an exhausted pool.
pub const FLAG_TRUNCATED: u32 = 1;
/// Set on a sample whose walk did not reach a root.
pub const FLAG_INCOMPLETE: u32 = 2;

/// One sample, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// CLOCK_MONOTONIC at the expiration, in nanoseconds.
    pub time_ns: u64,
    /// Wire number of the thread.
    pub thread: u32,
    /// Stack id.
    pub stack: u64,
    /// CPU time this sample stands for, in nanoseconds.
    pub cpu_ns: u64,
    /// `FLAG_*` bits.
    pub flags: u32,
}

/// A batch being filled.
#[derive(Debug, Default)]
pub struct Batch {
    columns: SampleBatch,
    last_time_ns: u64,
}

impl Batch {
    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        if self.columns.thread.is_empty() {
            self.columns.first_time_ns = sample.time_ns;
            self.last_time_ns = sample.time_ns;
        }
        let delta = sample.time_ns.wrapping_sub(self.last_time_ns).cast_signed();
        self.last_time_ns = sample.time_ns;
        self.columns.time_delta_ns.push(delta);
        self.columns.thread.push(sample.thread);
        self.columns.stack.push(sample.stack);
        self.columns.cpu_ns.push(sample.cpu_ns);
        self.columns.flags.push(sample.flags);
    }

    /// Samples in the batch.
    pub fn len(&self) -> usize {
        self.columns.thread.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.columns.thread.is_empty()
    }

    /// Takes the message out, if there is one.
    pub fn take(&mut self) -> Option<SampleBatch> {
        (!self.is_empty()).then(|| std::mem::take(&mut self.columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_in_any_order() {
        let mut batch = Batch::default();
        let times = [50, 40, 41, u64::MAX, 3];
        for time_ns in times {
            batch.push(Sample { time_ns, thread: 1, stack: 2, cpu_ns: 3, flags: 0 });
        }
        let columns = batch.take().expect("filled");
        let mut now = columns.first_time_ns;
        let read: Vec<u64> = columns
            .time_delta_ns
            .iter()
            .map(|delta| {
                now = now.wrapping_add(delta.cast_unsigned());
                now
            })
            .collect();
        assert_eq!(read, times);
        assert!(batch.is_empty() && batch.take().is_none());
    }
}
