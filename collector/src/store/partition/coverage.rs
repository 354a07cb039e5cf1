//! The time and the resolution of a partition's contents, and how far they are written.

use super::super::dictionary::RowCounts;
use super::super::rollup::Level;

/// The contents of a partition by time and resolution. Times are seconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Coverage {
    /// When it was created.
    pub(in super::super) created_s: u64,
    /// Start of the first minute with samples, and end of the last one.
    pub(in super::super) first_s: u64,
    pub(in super::super) end_s: u64,
    /// End of the part that is rolled up, by [`Level`]; unused for minutes.
    pub(in super::super) rolled_s: [u64; Level::COUNT],
    /// Number of levels removed by retention: 1 single samples, 2 also minutes, 3 also hours.
    pub(in super::super) removed: u64,
}

/// Contents of the file that the next writes continue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// Rows of the dictionary.
    pub(super) rows: RowCounts,
    /// Number of the next fold.
    pub(super) fold: u64,
    /// Number of the next entry of the journal.
    pub(super) journal: u64,
}
