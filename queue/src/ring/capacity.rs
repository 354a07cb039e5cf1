//! Number of requests that a ring holds, chosen at run time.
//!
//! Problem: an idle thread should cost little memory and a busy one must not lose samples, but the ring below fixes its
//! size at compile time.
//! Approach: powers of two from 16 to 2048 entries, each a ring type whose size is erased after creation.

/// Ring sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capacity {
    /// 16 requests: 160 ms of one busy thread at a 10 ms period.
    Entries16,
    /// 32 requests.
    Entries32,
    /// 64 requests.
    Entries64,
    /// 128 requests.
    Entries128,
    /// 256 requests.
    Entries256,
    /// 512 requests.
    Entries512,
    /// 1024 requests.
    Entries1024,
    /// 2048 requests: 2 s of one busy thread at a 1 ms period.
    Entries2048,
}

/// Loom explores every interleaving, so its rings are an eighth of the size: a full ring and wrap-around are a few
/// pushes away.
const MODEL_SHRINK: usize = if cfg!(loom) { 8 } else { 1 };

impl Capacity {
    /// All classes, smallest first.
    pub const ALL: [Self; 8] = [
        Self::Entries16,
        Self::Entries32,
        Self::Entries64,
        Self::Entries128,
        Self::Entries256,
        Self::Entries512,
        Self::Entries1024,
        Self::Entries2048,
    ];

    /// The smallest class with at least `entries` entries, or the largest class if there is none.
    pub fn at_least(entries: usize) -> Self {
        Self::ALL.into_iter().find(|class| class.entries() >= entries).unwrap_or(Self::Entries2048)
    }

    /// Requests a ring of this class holds.
    pub const fn entries(self) -> usize {
        (16 << self as usize) / MODEL_SHRINK
    }
}
