//! `/proc/self/maps`, line by line.
//!
//! Invariant: malformed lines are skipped; parsing never fails.
//! Source: proc_pid_maps(5).

use std::fs::File;
use std::io::{self, Read};

use crate::pacing::Pacer;

/// Bytes that are read between two chances of other threads to run; the kernel returns a page at a time.
const PIECE: usize = 4096;

/// Reads the list of mappings, with pauses in between: that of 10,000 threads has 20,000 lines, which take 10 ms.
///
/// # Errors
/// As opening and reading a file.
pub fn read() -> io::Result<String> {
    let (mut file, mut text, mut pacer) = (File::open("/proc/self/maps")?, Vec::new(), Pacer::start());
    while file.by_ref().take(PIECE as u64).read_to_end(&mut text)? > 0 {
        pacer.rest_if_due();
    }
    Ok(String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'t> {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// True if it can be read.
    pub readable: bool,
    /// True if it can be read and written.
    pub writable: bool,
    /// True if it can be executed.
    pub executable: bool,
    /// Position of `start` in the mapped file.
    pub offset: u64,
    /// Number of the mapped file on its device, 0 for none.
    pub inode: u64,
    /// Path of the file, or a name in brackets; empty for memory without either.
    pub path: &'t str,
}

/// Returns the mappings in `text`, in the order of their addresses.
pub fn parse(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(mapping)
}

/// Returns the mappings with code of libraries in `text`, each with the address of the library's first byte.
pub fn code_of_libraries(text: &str) -> impl Iterator<Item = (Mapping<'_>, u64)> {
    let (mut first, mut pacer): (Option<Mapping<'_>>, _) = (None, Pacer::start());
    parse(text).filter_map(move |mapping| {
        pacer.rest_if_due();
        let has_file = mapping.inode != 0 || mapping.path == "[vdso]";
        if mapping.offset == 0 && has_file {
            first = Some(mapping);
        }
        let first = first.filter(|first| first.inode == mapping.inode && first.path == mapping.path)?;
        mapping.executable.then_some((mapping, first.start))
    })
}

fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        field
    };
    let (start, end) = field().split_once('-')?;
    let access = field();
    let (readable, writable) = (access.starts_with('r'), access.starts_with("rw"));
    let executable = access.contains('x');
    let offset = u64::from_str_radix(field(), 16).ok()?;
    let _device = field();
    let inode = field().parse().ok()?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Some(Mapping { start, end, readable, writable, executable, offset, inode, path: rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_sorts() {
        let text = "7f0000001000-7f0000003000 r-xp 00002000 fe:01 1234    /a path/lib x.so (deleted)\n\
                    7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n\
                    nonsense\n\
                    7f0000003000-7f0000004000 rw-p 00000000 00:00 0 \n";
        let found: Vec<Mapping> = parse(text).collect();
        assert_eq!(found.len(), 3);
        let first = Mapping {
            start: 0x7f00_0000_1000,
            end: 0x7f00_0000_3000,
            readable: true,
            writable: false,
            executable: true,
            offset: 0x2000,
            inode: 1234,
            path: "/a path/lib x.so (deleted)",
        };
        assert_eq!(found[0], first);
        assert_eq!((found[1].path, found[1].executable, found[2].path), ("[stack]", false, ""));
        assert!(found[1].writable);
    }
}
