//! A file that is read in blocks.
//!
//! Problem: the section headers of a library, their names and its notes are some fifty reads of a few bytes, each two
//! system calls.
//! Approach: a read fetches the block around it, and the last blocks are kept: headers and notes lie at the beginning
//! of a file, section headers and their names at its end.
//! Invariant: reads that exceed a block are not kept.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::ReadCache;

/// Bytes of a block; the section headers of libjvm take 3 KB.
const BLOCK: usize = 8 << 10;
/// Blocks that are kept.
const BLOCKS: usize = 4;

/// An object file whose structure is read through blocks.
pub(crate) type ObjectFile = ReadCache<Blocks>;

/// A file and the blocks that were read last.
#[derive(Debug)]
pub(crate) struct Blocks {
    file: File,
    length: u64,
    position: u64,
    /// Beginning and content of each block.
    kept: Vec<(u64, Box<[u8]>)>,
    next: usize,
}

impl Blocks {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn open(path: &Path) -> io::Result<ObjectFile> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(ReadCache::new(Self { file, length, position: 0, kept: Vec::new(), next: 0 }))
    }

    /// Returns the bytes from `at` to the end of their block.
    fn block(&mut self, at: u64) -> io::Result<&[u8]> {
        let start = at - at % BLOCK as u64;
        let place = match self.kept.iter().position(|(kept, _)| *kept == start) {
            Some(place) => place,
            None => {
                let mut bytes = vec![0; BLOCK];
                let length = self.file.read_at(&mut bytes, start)?;
                bytes.truncate(length);
                let place = self.next % BLOCKS;
                self.next += 1;
                if place < self.kept.len() {
                    self.kept.remove(place);
                }
                self.kept.insert(place, (start, bytes.into_boxed_slice()));
                place
            }
        };
        let (_, bytes) = &self.kept[place];
        Ok(bytes.get((at - start) as usize..).unwrap_or_default())
    }
}

impl Read for Blocks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at = self.position;
        let length =
            if into.len() > BLOCK { self.file.read_at(into, at)? } else { self.block(at)?.read(into)? };
        self.position = at.saturating_add(length as u64);
        Ok(length)
    }
}

impl Seek for Blocks {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn reads_are_those_of_the_file() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let bytes: Vec<u8> = (0..6 * BLOCK + 100).map(|at| (at / 7) as u8).collect();
        file.write_all(&bytes).expect("written");
        let mut blocks = Blocks {
            file: File::open(file.path()).expect("opened"),
            length: bytes.len() as u64,
            position: 0,
            kept: Vec::new(),
            next: 0,
        };
        let mut step = 1_usize;
        for _ in 0..2_000 {
            step = step.wrapping_mul(0x9e37_79b9).wrapping_add(12_345) % (bytes.len() + 50);
            let length = [3, 64, BLOCK, 2 * BLOCK][step % 4];
            blocks.seek(SeekFrom::Start(step as u64)).expect("in the file");
            let mut into = vec![0; length];
            let mut read = 0;
            while let Ok(more @ 1..) = blocks.read(&mut into[read..]) {
                read += more;
            }
            let expected = bytes.get(step..).unwrap_or_default();
            assert_eq!(into[..read], expected[..length.min(expected.len())], "{length} at {step}");
        }
        assert_eq!(blocks.seek(SeekFrom::End(-1)).expect("in the file"), bytes.len() as u64 - 1);
        assert!(blocks.seek(SeekFrom::Start(0)).is_ok() && blocks.seek(SeekFrom::Current(-1)).is_err());
    }
}
