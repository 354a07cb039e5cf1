//! Tables whose entries are lines of the processor's caches.
//!
//! Problem: between two samples the program replaces what the processor's caches hold, so a walk costs what the lines
//! cost that it touches. An allocation need not begin at a line.
//! Approach: one line more than needed is allocated, and entries begin at the first whole line.

use alloc::boxed::Box;
use alloc::vec;

/// Words of a line: 64 bytes on all supported machines.
pub(crate) const LINE: usize = 8;
const LINE_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct Lines {
    words: Box<[u64]>,
    /// The first word of the first line.
    start: usize,
    count: usize,
}

impl Lines {
    /// A table of `count` lines of zeros, none of which is touched; `count` is a power of two.
    pub(crate) fn new(count: usize) -> Self {
        debug_assert!(count.is_power_of_two());
        let words = vec![0_u64; (count + 1) * LINE].into_boxed_slice();
        let start = words.as_ptr().addr().next_multiple_of(LINE_BYTES) - words.as_ptr().addr();
        Self { words, start: start / size_of::<u64>(), count }
    }

    /// The position of the first word of the line for a hash.
    #[inline]
    pub(crate) fn position(&self, hash: u64) -> usize {
        self.start + ((hash >> 32) as usize & (self.count - 1)) * LINE
    }

    #[inline]
    pub(crate) fn line(&self, position: usize) -> Option<&[u64; LINE]> {
        self.words.get(position..)?.first_chunk()
    }

    pub(crate) fn line_mut(&mut self, position: usize) -> Option<&mut [u64; LINE]> {
        self.words.get_mut(position..)?.first_chunk_mut()
    }

    #[inline]
    pub(crate) fn word(&self, position: usize) -> Option<u64> {
        self.words.get(position).copied()
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_at_lines_of_the_processor() {
        for count in [1, 4, 1024] {
            let mut lines = Lines::new(count);
            for hash in (0..count as u64).map(|line| line << 32) {
                let position = lines.position(hash);
                let line = lines.line_mut(position).expect("of eight words");
                assert_eq!(line.as_ptr().addr() % LINE_BYTES, 0);
                assert_eq!(*line, [0; LINE]);
                line.fill(1 + (hash >> 32));
            }
            assert_eq!(lines.word(lines.position(count as u64)), Some(1));
        }
    }
}
