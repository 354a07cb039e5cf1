//! Frozen frames of a virtual thread, copied from the heap when the sample was taken.
//!
//! Problem: the frames of one logical stack lie in several places, each with addresses of its own.
//! Approach: every `StackChunk` is one [`StackCopy`] at the address its words had, newest chunk first; each begins with
//! the frame record below its newest frame, which holds that frame's fp and pc, and ends where its oldest frame ends.
//! Invariant: plain data; the walk checks every word before it uses it.

use crate::limits::MAX_CHUNKS;
use crate::memory::StackCopy;

/// The frozen part of one stack.
#[derive(Clone, Copy, Debug)]
pub struct Frozen<'a> {
    chunks: [StackCopy<'a>; MAX_CHUNKS],
    count: usize,
    whole: bool,
    /// True if a chunk without frames comes before the first copied.
    emptied: bool,
    /// End of the frames of the oldest copied chunk; not above the end of its copy unless that is cut.
    end: u64,
}

impl<'a> Frozen<'a> {
    /// No frozen frame was copied; a stack that has some ends at the return barrier.
    pub const NONE: Self =
        Self { chunks: [StackCopy::EMPTY; MAX_CHUNKS], count: 0, whole: false, emptied: false, end: 0 };

    /// Copies in the order from the newest chunk to the oldest; `whole` is set if no older chunk is missing.
    /// More than [`MAX_CHUNKS`] are cut.
    #[must_use]
    pub fn new(copies: impl IntoIterator<Item = StackCopy<'a>>, whole: bool) -> Self {
        let mut frozen = Self { whole, ..Self::NONE };
        for copy in copies {
            match frozen.chunks.get_mut(frozen.count) {
                Some(chunk) => *chunk = copy,
                None => {
                    frozen.whole = false;
                    break;
                }
            }
            frozen.count += 1;
        }
        frozen
    }

    /// The same, with the frames of the oldest copied chunk ending at `end`: if that is above its copy, the copy is
    /// cut.
    #[must_use]
    pub fn ending_at(mut self, end: u64) -> Self {
        let copied =
            self.count.checked_sub(1).and_then(|last| self.chunk(last)).map_or(u64::MAX, |last| last.end());
        self.end = end;
        self.whole &= end <= copied;
        self
    }

    /// The same, with `emptied` set if the thread's newest chunk has no frames: all of them may be being thawed.
    #[must_use]
    pub fn emptied(self, emptied: bool) -> Self {
        Self { emptied, ..self }
    }

    pub(crate) fn is_emptied(&self) -> bool {
        self.emptied
    }

    /// End of the frames of the chunk at `index`, copied or not.
    pub(crate) fn end_of(&self, index: usize) -> u64 {
        let copied = self.chunk(index).map_or(0, |chunk| chunk.end());
        if index.saturating_add(1) == self.count { copied.max(self.end) } else { copied }
    }

    /// The copy number `index`, counted from the newest.
    #[must_use]
    pub fn chunk(&self, index: usize) -> Option<StackCopy<'a>> {
        self.chunks.get(..self.count)?.get(index).copied()
    }

    /// Returns whether the oldest frozen frame is among the copies.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole && self.count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_chunks_are_cut() {
        let copy = StackCopy::new(0x1000, &[0; 8]);
        let frozen = Frozen::new(core::iter::repeat_n(copy, MAX_CHUNKS), true);
        assert!(frozen.is_whole() && frozen.chunk(MAX_CHUNKS - 1).is_some());
        let frozen = Frozen::new(core::iter::repeat_n(copy, MAX_CHUNKS + 1), true);
        assert!(!frozen.is_whole() && frozen.chunk(MAX_CHUNKS).is_none());
        assert!(!Frozen::new([], true).is_whole() && Frozen::NONE.chunk(0).is_none());
    }
}
