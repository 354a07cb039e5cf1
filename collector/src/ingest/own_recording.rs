//! The recording of a command that profiles one program.
//!
//! An agent repeats what its collector could not store, and waits for it at the end of the program; a command whose
//! disk is full would delay the program that it profiles. So after the first error, one line reports it, and all
//! further messages are accepted and dropped. The file keeps what was written before; an empty file is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use profile::source::recording::{RecordingWriter, keep_existing};
use proto::framing::FramedMessage;

/// A recording that ends at the first error.
pub(super) struct OwnRecording {
    path: PathBuf,
    /// `None` after an error.
    writer: Option<RecordingWriter>,
    last_sequence: u64,
    is_empty: bool,
}

impl OwnRecording {
    /// Begins the recording at `path`; an existing one is renamed to `FILE.1`.
    pub(super) fn create(path: &Path) -> Self {
        let created = keep_existing(path).and_then(|()| RecordingWriter::create(path));
        let mut recording = Self { path: path.to_owned(), writer: None, last_sequence: 0, is_empty: true };
        match created {
            Ok(writer) => recording.writer = Some(writer),
            Err(error) => recording.end(&error),
        }
        recording
    }

    /// Continues a recording that was begun on an earlier connection.
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
            // A file that cannot be removed remains; the line above has the cause.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Records the new ones among `messages`, and returns the highest number received: after an error, messages are
    /// dropped and acknowledged.
    pub(super) fn append(&mut self, messages: &[FramedMessage]) -> u64 {
        let seen = messages.iter().map(|framed| framed.message.sequence).max().unwrap_or(0);
        self.last_sequence = self.last_sequence.max(seen);
        match self.writer.as_mut().map(|writer| writer.append(messages)) {
            Some(Ok(stored)) => self.is_empty &= stored == 0,
            Some(Err(error)) => self.end(&error),
            None => {}
        }
        self.last_sequence
    }
}

#[cfg(test)]
mod tests {
    use proto::v1::AgentMessage;

    use super::*;

    fn append(recording: &mut OwnRecording, sequence: u64, bytes: &[u8]) -> u64 {
        let message = AgentMessage { sequence, body: None };
        recording.append(&[FramedMessage { message, bytes: bytes.to_vec() }])
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
    fn a_failed_recording_keeps_its_content_and_an_empty_one_is_removed() {
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
