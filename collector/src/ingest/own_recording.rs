//! The recording of a command that profiles one program.
//!
//! Problem: an agent repeats what its collector could not store, and waits for it at the end of the program. A command
//! whose disk is full would only delay the program that it profiles.
//! Approach: after the first error, one line tells it, and everything that follows is accepted and dropped. What was
//! written before stays; a file without content is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use profile::source::recording::RecordingWriter;

use super::refusal::Refusal;
use super::sink::SessionSink;

/// A recording that ends at the first error.
pub(super) struct OwnRecording {
    path: PathBuf,
    /// `None` after an error.
    writer: Option<RecordingWriter>,
    last_sequence: u64,
    is_empty: bool,
}

impl OwnRecording {
    /// Begins the recording at `path`; an existing one is kept as `FILE.1`.
    pub(super) fn create(path: &Path) -> Self {
        let created = RecordingWriter::create_beside_existing(path);
        let mut recording = Self { path: path.to_owned(), writer: None, last_sequence: 0, is_empty: true };
        match created {
            Ok(writer) => recording.writer = Some(writer),
            Err(error) => recording.end(&error),
        }
        recording
    }

    /// Takes a recording that was begun on an earlier connection.
    pub(super) fn resumed(path: &Path, writer: RecordingWriter) -> Self {
        Self { path: path.to_owned(), writer: Some(writer), last_sequence: 0, is_empty: false }
    }

    fn end(&mut self, error: &io::Error) {
        self.writer = None;
        tracing::error!(
            "cannot write {}: {error}; the profile ends here, and the program goes on",
            self.path.display()
        );
        if self.is_empty && self.path.is_file() {
            // What cannot be removed stays; the line above is the cause.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl SessionSink for OwnRecording {
    fn append(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> Result<u64, Refusal> {
        let mut seen = self.last_sequence;
        let mut messages = messages.inspect(|(sequence, _)| seen = seen.max(*sequence));
        let stored = match &mut self.writer {
            Some(writer) => writer.append(&mut messages),
            None => Ok(0),
        };
        // Those that nobody has asked for as well.
        messages.for_each(drop);
        self.last_sequence = seen;
        match stored {
            Ok(stored) => self.is_empty &= stored == 0,
            Err(error) => self.end(&error),
        }
        Ok(self.last_sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(recording: &mut OwnRecording, sequence: u64, bytes: &[u8]) -> u64 {
        recording.append(&mut [(sequence, bytes)].into_iter()).expect("accepted")
    }

    #[test]
    fn messages_are_accepted_after_an_error() {
        let mut recording = OwnRecording::create(Path::new("/dev/full"));
        assert!(recording.writer.is_some());
        recording.is_empty = false;
        assert_eq!(append(&mut recording, 3, b"first"), 3);
        assert!(recording.writer.is_none());
        assert_eq!(append(&mut recording, 4, b"second"), 4);
        let mut refused = OwnRecording::create(Path::new("/nowhere/a.tickwalk"));
        assert_eq!(append(&mut refused, 7, b"first"), 7);
    }

    #[test]
    fn what_was_written_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.tickwalk");
        let mut recording = OwnRecording::create(&path);
        recording.end(&io::ErrorKind::StorageFull.into());
        assert!(!path.exists(), "it is empty");
        let mut recording = OwnRecording::create(&path);
        assert_eq!(append(&mut recording, 1, b"first"), 1);
        recording.end(&io::ErrorKind::StorageFull.into());
        assert_eq!(append(&mut recording, 2, b"second"), 2);
        assert_eq!(fs::read(&path).expect("a file"), b"first");
    }
}
