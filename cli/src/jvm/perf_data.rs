//! The performance data of a running JVM, which the VM publishes in a file that it keeps mapped.
//!
//! Problem: the command line does not show the main class, the release of the JDK, or whether the JVM can be attached
//! to.
//! Approach: read the file that `jps` and `jstat` read. Its path comes from the mappings of the process, so it is not
//! the file of an earlier process with the same id.
//! Invariant: the content may be anything, so every offset is checked.
//! Sources: `runtime/perfMemory.hpp` (prologue and entries), `services/runtimeService.cpp` (`sun.rt.jvmCapabilities`),
//! JDK 11 to 25.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::foreign::{self, Links};
use super::process::{MappedFile, Process, user_name};

/// First bytes of the file.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
/// Most bytes that are read; a file has 32 KiB unless PerfDataMemorySize says otherwise.
const MAX_BYTES: u64 = 4 << 20;
/// Most entries that are read; JDK 25 has some 300.
const MAX_ENTRIES: usize = 10_000;

/// The texts among the performance data.
#[derive(Debug, Default)]
pub struct PerfData {
    texts: HashMap<String, String>,
}

impl PerfData {
    /// Reads the data of a process with these mappings; `None` if it publishes none (`-XX:-UsePerfData`).
    pub fn read(process: Process, mapped: &[MappedFile]) -> Option<Self> {
        let is_data = |file: &&MappedFile| {
            let folder = file.path.parent().and_then(|folder| folder.file_name()?.to_str());
            folder.is_some_and(|folder| folder.starts_with("hsperfdata_"))
        };
        let file = mapped.iter().find(is_data)?;
        let at = |root: &Path| foreign::open(root, &file.path, Links::Refused).ok();
        let is_it = |opened: &File| is_same(opened, file);
        let found = at(&process.root())
            .filter(is_it)
            // In a process with another root directory, the path may begin at ours.
            .or_else(|| at(Path::new("/")).filter(is_it))
            // Only for the superuser, and the only way to a removed file.
            .or_else(|| foreign::open_kernel_link(&process.file("map_files").join(&file.addresses)).ok())
            .filter(is_it)?;
        Self::of(found)
    }

    /// Reads the data of a hidden process of this user, by the name of the file; `None` if there is none.
    pub fn of_hidden(process: Process, user: u32) -> Option<Self> {
        let path = format!("/tmp/hsperfdata_{}/{}", user_name(user), process.id());
        let found = foreign::open(Path::new("/"), Path::new(&path), Links::Refused).ok()?;
        let is_own = found.metadata().is_ok_and(|file| file.uid() == user);
        if is_own { Self::of(found) } else { None }
    }

    fn of(file: File) -> Option<Self> {
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        Self::parse(&bytes)
    }

    /// Reads the content of a file; `None` if it is no such file or not complete yet.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let is_little = *bytes.get(4)? == 1;
        let is_accessible = *bytes.get(7)? == 1;
        if bytes.get(..4)? != MAGIC || !is_accessible || !is_little {
            return None;
        }
        let number = |at: usize| {
            let word = bytes.get(at..at.checked_add(4)?)?;
            usize::try_from(i32::from_le_bytes(word.try_into().ok()?)).ok()
        };
        let (mut at, entries) = (number(24)?, number(28)?);
        let mut texts = HashMap::new();
        for _ in 0..entries.min(MAX_ENTRIES) {
            let Some(length) = number(at).filter(|length| *length >= 20) else { break };
            let Some(entry) = at.checked_add(length).and_then(|end| bytes.get(at..end)) else { break };
            let (name, data) = (number(at + 4)?, number(at + 16)?);
            if entry.get(12) == Some(&b'B')
                && let (Some(name), Some(text)) = (text(entry, name), text(entry, data))
            {
                texts.insert(name, text);
            }
            at += length;
        }
        Some(Self { texts })
    }

    /// Returns whether the VM can be attached to, from the first character of its capabilities; `None` if unknown.
    pub fn can_be_attached_to(&self) -> Option<bool> {
        match self.texts.get("sun.rt.jvmCapabilities")?.chars().next()? {
            '1' => Some(true),
            '0' => Some(false),
            _ => None,
        }
    }

    /// Returns main class, or jar, and arguments of the program.
    pub fn command(&self) -> Option<&str> {
        self.texts.get("sun.rt.javaCommand").map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the release of the JDK, such as `17.0.9`.
    pub fn java_version(&self) -> Option<&str> {
        let names = ["java.property.java.version", "java.property.java.vm.version"];
        names.iter().find_map(|name| self.texts.get(*name)).map(String::as_str)
    }
}

fn is_same(opened: &File, mapped: &MappedFile) -> bool {
    opened.metadata().is_ok_and(|found| found.is_file() && found.ino() == mapped.inode)
}

/// Returns the text at `offset`, which ends with a zero byte.
fn text(entry: &[u8], offset: usize) -> Option<String> {
    let rest = entry.get(offset..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = vec![0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
        bytes.extend([0; 16]);
        bytes.extend(32_i32.to_le_bytes());
        bytes.extend(i32::try_from(entries.len()).expect("few").to_le_bytes());
        for (name, value) in entries {
            let data = 20 + name.len() + 1;
            let length = (data + value.len() + 1).next_multiple_of(8);
            let start = bytes.len();
            for number in [length, 20, value.len() + 1] {
                bytes.extend(i32::try_from(number).expect("short").to_le_bytes());
            }
            bytes.extend([b'B', 0, 5, 1]);
            bytes.extend(i32::try_from(data).expect("short").to_le_bytes());
            bytes.extend(name.bytes().chain([0]).chain(value.bytes()));
            bytes.resize(start + length, 0);
        }
        bytes
    }

    #[test]
    fn texts() {
        let capabilities = "0110000000000000000000000000000000000000000000000000000000000000";
        let bytes = file(&[
            ("sun.rt.jvmCapabilities", capabilities),
            ("sun.rt.javaCommand", "shop.Main --port 80"),
            ("java.property.java.version", "17.0.9"),
        ]);
        let data = PerfData::parse(&bytes).expect("well formed");
        assert_eq!(data.can_be_attached_to(), Some(false));
        assert_eq!(data.command(), Some("shop.Main --port 80"));
        assert_eq!(data.java_version(), Some("17.0.9"));
    }

    #[test]
    fn damaged_files_are_read_as_far_as_they_go() {
        let bytes = file(&[("sun.rt.javaCommand", "Main"), ("x", "y")]);
        for length in 0..bytes.len() {
            // Whatever is cut, nothing panics.
            let _ = PerfData::parse(&bytes[..length]);
        }
        let mut wild = bytes.clone();
        for at in 24..wild.len() {
            let before = std::mem::replace(&mut wild[at], 0xff);
            let _ = PerfData::parse(&wild);
            wild[at] = before;
        }
        assert!(PerfData::parse(b"#!/bin/sh").is_none());
    }
}
