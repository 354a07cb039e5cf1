//! UNSIGNED5: the variable-length numbers of HotSpot's debug information and line tables.
//!
//! A byte below 192 ends a number; the others carry six more bits each, least significant first, five bytes at
//! most. From JDK 20 on byte 0 never occurs, so every byte counts one less.
//! The VM's tables do not distinguish the variants, so the release does.
//! Sources: `code/compressedStream.cpp` (JDK 11, 17), `utilities/unsigned5.hpp` (JDK 21, 25).

/// First byte value that another byte follows.
const CONTINUES: u8 = 192;

/// Longest encoding in bytes.
pub(crate) const MAX_BYTES: usize = 5;

/// Variant of the encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unsigned5 {
    excluded: u8,
}

impl Unsigned5 {
    /// The variant a feature release uses.
    pub(crate) fn of_jdk(major: u32) -> Self {
        Self { excluded: u8::from(major >= 20) }
    }

    /// Decodes the number at the start of `bytes`; returns it with its length.
    pub(crate) fn read(self, bytes: &[u8]) -> Option<(u32, usize)> {
        let mut value = 0_u32;
        for (index, &byte) in bytes.iter().take(MAX_BYTES).enumerate() {
            let digit = u32::from(byte.checked_sub(self.excluded)?);
            value = value.wrapping_add(digit << (6 * index));
            if byte < CONTINUES || index + 1 == MAX_BYTES {
                return Some((value, index + 1));
            }
        }
        None
    }

    /// Decodes a number whose lowest bit is its sign.
    pub(crate) fn read_signed(self, bytes: &[u8]) -> Option<(i32, usize)> {
        let (value, length) = self.read(bytes)?;
        Some(((value >> 1).cast_signed() ^ -(value & 1).cast_signed(), length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_both_variants() {
        let old = Unsigned5::of_jdk(17);
        assert_eq!(old.read(&[0]), Some((0, 1)));
        assert_eq!(old.read(&[191]), Some((191, 1)));
        assert_eq!(old.read(&[192, 0]), Some((192, 2)));
        let new = Unsigned5::of_jdk(21);
        assert_eq!(new.read(&[0]), None, "byte 0 is no digit");
        assert_eq!(new.read(&[1]), Some((0, 1)));
        assert_eq!(new.read(&[191]), Some((190, 1)));
        assert_eq!(new.read(&[192, 1]), Some((191, 2)));
        assert_eq!(new.read(&[255; 5]).map(|(_, length)| length), Some(5));
        assert_eq!(new.read(&[255; 3]), None);
        assert_eq!(old.read_signed(&[3]), Some((-2, 1)));
        assert_eq!(old.read_signed(&[4]), Some((2, 1)));
    }
}
