//! The last copy of a thread's stack.
//!
//! Problem: copies of one stack mostly differ at their beginning, where the newest frames are, and each is kept for the comparison
//! with the next. Most of what would be written is there already.
//! Approach: the copy lies at the end of a buffer, so that bytes at equal distance from the stack's base stay where they are.

/// The copy.
#[derive(Debug, Default)]
pub(super) struct TailCopy {
    buffer: Vec<u8>,
    begin: usize,
}

impl TailCopy {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.begin..).unwrap_or_default()
    }

    /// Returns the bytes of memory in use.
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Replaces the copy by another one, the last `same` bytes of which are those of this one.
    pub(super) fn replace(&mut self, copy: &[u8], same: usize) {
        let Self { buffer, begin } = self;
        let mut new = copy.len() - same.min(copy.len()).min(buffer.len() - *begin);
        if copy.len() > buffer.len() {
            // A quarter more, so that a stack that becomes deeper moves rarely.
            *buffer = vec![0; copy.len() + copy.len() / 4];
            new = copy.len();
        }
        *begin = buffer.len() - copy.len();
        let (from, into) = (copy.get(..new), buffer.get_mut(*begin..*begin + new));
        if let (Some(from), Some(into)) = (from, into) {
            into.copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_last_copy_whatever_the_two_have_in_common() {
        let mut kept = TailCopy::default();
        let mut copy: Vec<u8> = Vec::new();
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        for number in 0..2_000 {
            let same = next(copy.len() + 1);
            let mut newer = vec![number as u8; next(400)];
            newer.extend_from_slice(&copy[copy.len() - same..]);
            // Sometimes less is known to be the same than is.
            kept.replace(&newer, next(same + 1));
            assert_eq!(kept.bytes(), newer);
            copy = newer;
            copy.drain(..copy.len() / 3);
            kept.replace(&copy, copy.len());
            assert_eq!(kept.bytes(), copy);
        }
        kept.replace(&[], 0);
        assert_eq!(kept.bytes(), []);
    }
}
