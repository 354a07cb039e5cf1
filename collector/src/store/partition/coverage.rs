//! The time and the resolution of a partition's contents.

use super::super::rollup::Level;

/// What a partition holds, by time and resolution. Seconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Coverage {
    /// Opened at.
    pub(in super::super) created_s: u64,
    /// Earliest and latest minute with samples, the latter exclusive.
    pub(in super::super) first_s: u64,
    pub(in super::super) end_s: u64,
    /// Up to here each level is complete, by [`Level`]; minutes always are.
    pub(in super::super) rolled_s: [u64; Level::COUNT],
    /// Levels, finest first, that retention has removed: 0 none, 1 single samples, 2 minutes as well, 3 hours.
    pub(in super::super) removed: u64,
}
