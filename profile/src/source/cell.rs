//! Sums of samples.

/// A number of samples and their CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// CPU time that the samples represent.
    pub cpu_ns: u64,
    /// Number of samples.
    pub samples: u64,
}

impl Cell {
    /// Adds `other`. Sums saturate, because agents may send any number.
    pub fn add(&mut self, other: Cell) {
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.samples = self.samples.saturating_add(other.samples);
    }
}
