//! Compressed blocks of numbers in columns: samples, sums, dictionaries and threads in the store.
//!
//! Approach: each column is a list of LEB128 numbers, ascending ones as differences; zstd removes repetition and adds a
//! checksum. The table of a block determines its columns (`design/store.md`), so blocks contain no names.
//! Invariant: no input, however damaged, causes a panic or an allocation beyond [`MAX_BLOCK_BYTES`].

use std::borrow::Cow;
use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

/// Maximum length of a block before compression; reading rejects longer ones. Folds are forced long before: at most 16
/// million samples and a commit wait for one, which are 30 bytes each in five columns, a dictionary has 256 MiB, and
/// the numbers of a session are 32 million of 15 bytes.
const MAX_BLOCK_BYTES: usize = 1 << 30;

/// zstd's fastest regular level: higher ones save less than a tenth on batches of samples (`design/store.md`).
const LEVEL: i32 = 1;

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    #[error("a block of the store was overwritten: the file is damaged")]
    Compression,
    #[error("a block of the store would exceed 1 GiB")]
    TooLong,
    #[error("a block of the store ends too early: the file is damaged")]
    Truncated,
}

thread_local! {
    /// Context of zstd, created once for each thread instead of each block (figures in `design/store.md`).
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses `bytes`.
///
/// # Errors
/// [`BlockError::TooLong`] for input that [`decompress`] would reject.
pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, BlockError> {
    if bytes.len() > MAX_BLOCK_BYTES {
        return Err(BlockError::TooLong);
    }
    let compress = || {
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.include_checksum(true)?;
        compressor.compress(bytes)
    };
    compress().map_err(|_| BlockError::Compression)
}

/// Decompresses the result of [`compress`], and compares its checksum. Blocks of early versions have none.
pub(super) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, BlockError> {
    let len = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
    let len = len.and_then(|len| usize::try_from(len).ok()).filter(|&len| len <= MAX_BLOCK_BYTES);
    let len = len.ok_or(BlockError::Compression)?;
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let kept = match kept {
            Some(kept) => kept,
            None => kept.insert(Decompressor::new().map_err(|_| BlockError::Compression)?),
        };
        kept.decompress(bytes, len).map_err(|_| BlockError::Compression)
    })
}

#[derive(Default)]
pub(super) struct BlockWriter {
    bytes: Vec<u8>,
}

impl BlockWriter {
    pub(super) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn column(&mut self, values: impl IntoIterator<Item = u64>) {
        for value in values {
            self.number(value);
        }
    }

    /// Writes a column whose numbers mostly ascend, as differences; any order is possible by wrapping.
    pub(super) fn ascending(&mut self, values: impl IntoIterator<Item = u64>) {
        let mut last = 0u64;
        for value in values {
            let delta = value.wrapping_sub(last) as i64;
            self.number(((delta << 1) ^ (delta >> 63)) as u64);
            last = value;
        }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, BlockError> {
        compress(&self.bytes)
    }
}

pub(super) struct BlockReader {
    bytes: Vec<u8>,
    position: usize,
}

impl BlockReader {
    pub(super) fn new(compressed: &[u8]) -> Result<Self, BlockError> {
        Ok(BlockReader { bytes: decompress(compressed)?, position: 0 })
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, BlockError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        // Most numbers have one byte: differences of threads, counts.
        if let Some(&byte) = rest.first().filter(|&&byte| byte < 0x80) {
            self.position += 1;
            return Ok(byte.into());
        }
        let mut value = 0u64;
        for (index, &byte) in rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index as u32).min(63);
            if byte < 0x80 {
                self.position += index + 1;
                return Ok(value);
            }
        }
        Err(BlockError::Truncated)
    }

    pub(super) fn text(&mut self) -> Result<Cow<'_, str>, BlockError> {
        let len = usize::try_from(self.number()?).map_err(|_| BlockError::Truncated)?;
        let end = self.position.checked_add(len).ok_or(BlockError::Truncated)?;
        let bytes = self.bytes.get(self.position..end).ok_or(BlockError::Truncated)?;
        self.position = end;
        Ok(String::from_utf8_lossy(bytes))
    }

    /// Returns the number of rows, checked against the remaining bytes: a row has at least one.
    pub(super) fn rows(&mut self) -> Result<usize, BlockError> {
        let rows = usize::try_from(self.number()?).map_err(|_| BlockError::Truncated)?;
        if rows > self.bytes.len() - self.position { Err(BlockError::Truncated) } else { Ok(rows) }
    }

    /// Skips `rows` numbers.
    pub(super) fn skip(&mut self, rows: usize) -> Result<(), BlockError> {
        if rows == 0 {
            return Ok(());
        }
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let mut ends = rest.iter().enumerate().filter(|&(_, &byte)| byte < 0x80);
        let (last, _) = ends.nth(rows - 1).ok_or(BlockError::Truncated)?;
        self.position += last + 1;
        Ok(())
    }

    pub(super) fn column(&mut self, rows: usize) -> Result<Vec<u64>, BlockError> {
        (0..rows).map(|_| self.number()).collect()
    }

    pub(super) fn narrow(&mut self, rows: usize) -> Result<Vec<u32>, BlockError> {
        (0..rows).map(|_| Ok(self.number()? as u32)).collect()
    }

    pub(super) fn ascending(&mut self, rows: usize) -> Result<Vec<u64>, BlockError> {
        let mut values = Vec::with_capacity(rows);
        self.each_ascending(rows, |value| values.push(value))?;
        Ok(values)
    }

    /// Visits the numbers of a column of differences.
    pub(super) fn each_ascending(
        &mut self,
        rows: usize,
        mut visit: impl FnMut(u64),
    ) -> Result<(), BlockError> {
        let mut last = 0u64;
        for _ in 0..rows {
            let coded = self.number()?;
            let delta = (coded >> 1) as i64 ^ -((coded & 1) as i64);
            last = last.wrapping_add(delta as u64);
            visit(last);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn oversized_blocks_are_not_written() {
        // Untouched pages take no memory.
        let bytes = vec![0; MAX_BLOCK_BYTES + 1];
        assert_eq!(compress(&bytes), Err(BlockError::TooLong));
    }

    proptest! {
        #[test]
        fn columns_round_trip(values in proptest::collection::vec(any::<u64>(), 0..200), text in ".{0,20}") {
            let mut block = BlockWriter::default();
            block.number(values.len() as u64);
            block.column(values.iter().copied());
            block.ascending(values.iter().copied());
            block.text(&text);
            let bytes = block.finish().expect("compression of a short block");
            let mut block = BlockReader::new(&bytes).expect("own block");
            let rows = block.rows().expect("rows");
            prop_assert_eq!(block.column(rows).expect("column"), values.clone());
            prop_assert_eq!(block.ascending(rows).expect("column"), values.clone());
            prop_assert_eq!(block.text().expect("text"), text);
            prop_assert_eq!(block.number(), Err(BlockError::Truncated));
            let mut block = BlockReader::new(&bytes).expect("own block");
            let rows = block.rows().expect("rows");
            block.skip(rows / 2).expect("numbers");
            prop_assert_eq!(block.column(rows - rows / 2).expect("column"), values[rows / 2..].to_vec());
            prop_assert_eq!(block.skip(bytes.len() + 40 * rows + 100), Err(BlockError::Truncated));
        }

        #[test]
        fn damaged_bytes_are_an_error_or_other_numbers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packed) = compress(&bytes) {
                let mut block = BlockReader::new(&packed).expect("own block");
                if let Ok(rows) = block.rows() {
                    let _ = block.ascending(rows);
                    let _ = block.text();
                }
            }
            prop_assert!(BlockReader::new(&bytes).is_err() || bytes.len() > 4);
        }
    }
}
