//! Recording files: the agent's messages of one session, as received.
//!
//! The file is the message stream itself, beginning with the Hello message, without updates in place. It is forced to
//! the disk every ten seconds and at the end of its connection.
//! Invariant: every acknowledged message is in the file, and a file cut at any byte is a valid recording of all whole
//! messages before the cut. Overwritten messages are left out, and the reader reports them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proto::framing::{Checksums, FrameReader, FramedMessage, FramingError, decode_message};
use proto::v1::{AgentMessage, Hello, agent_message::Body};
use proto::version::{self, VersionError};

/// Why a recording cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    #[error("not a Tickwalk recording")]
    NotARecording,
    #[error("the recording ends before its first message")]
    NothingRecorded,
    #[error("the recording is damaged: its first message was overwritten")]
    Damaged,
    /// The recording was made with another version of the wire format.
    #[error(transparent)]
    Version(VersionError),
    #[error("the file records another session, {0:016x}")]
    OtherSession(u64),
    #[error("the file has {0} recordings, one after the other; name a file with one")]
    Sessions(usize),
    /// The file could not be read.
    #[error("{0}")]
    Io(io::ErrorKind),
}

impl From<io::Error> for RecordingError {
    fn from(error: io::Error) -> Self {
        RecordingError::Io(error.kind())
    }
}

/// Time between two writes of a growing recording to the disk, each of some milliseconds. A loss of power costs at most
/// this much.
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// Appends the messages of one session to a file, which is forced to the disk every [`SYNC_EVERY`] and on drop.
#[derive(Debug)]
pub struct RecordingWriter {
    file: File,
    /// Bytes of whole messages in the file, and how many of them are on the disk.
    len: u64,
    synced_len: u64,
    synced_at: Instant,
    last_sequence: u64,
}

/// Renames an existing file at `path` to `path.1`, in place of an older one. A pipe or a device remains.
///
/// # Errors
/// If the existing file cannot be renamed.
pub fn keep_existing(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|existing| existing.is_file()) {
        fs::rename(path, beside(path))?;
    }
    Ok(())
}

/// Returns the name of a file that is kept beside its successor.
fn beside(path: &Path) -> PathBuf {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".1");
    kept.into()
}

impl RecordingWriter {
    /// Starts a recording at `path`, replacing an existing file. Only the owner may read a new one.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Recordings have names of private programs.
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            // So that the name of the file survives a loss of power as well, where the file system supports that.
            let _ = File::open(directory).and_then(|directory| directory.sync_all());
        }
        Ok(RecordingWriter::of(file, 0, 0))
    }

    fn of(file: File, len: u64, last_sequence: u64) -> Self {
        RecordingWriter { file, len, synced_len: 0, synced_at: Instant::now(), last_sequence }
    }

    /// Continues the recording at `path`, of the session that `hello` introduces, after its last whole message.
    ///
    /// # Errors
    /// As [`RecordingReader::open`], and [`RecordingError::OtherSession`].
    pub fn resume(path: &Path, hello: &Hello) -> Result<Self, RecordingError> {
        let mut reader = RecordingReader::open(path)?;
        if (reader.hello().session_id, &reader.hello().secret) != (hello.session_id, &hello.secret) {
            return Err(RecordingError::OtherSession(reader.hello().session_id));
        }
        let last_sequence = reader.by_ref().map(|message| message.sequence).max().unwrap_or(0);
        let len = reader.read_bytes();
        if len < fs::metadata(path)?.len() && !matches!(reader.cut(), Some(FramingError::Truncated(_))) {
            // More than an incomplete last message would be overwritten, so the file is kept.
            fs::copy(path, beside(path))?;
        }
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.seek(SeekFrom::End(0))?;
        Ok(RecordingWriter::of(file, len, last_sequence))
    }

    /// Appends those of `messages` that are not in the recording, and returns the highest sequence number recorded.
    ///
    /// # Errors
    /// If writing fails; the file then keeps its old length.
    pub fn append(&mut self, messages: &[FramedMessage]) -> io::Result<u64> {
        let mut fresh = Vec::new();
        let mut last_sequence = self.last_sequence;
        for FramedMessage { message, bytes } in messages {
            // After a reconnect the agent repeats messages without acknowledgement.
            if message.sequence > last_sequence {
                fresh.extend_from_slice(bytes);
                last_sequence = message.sequence;
            }
        }
        if let Err(error) = self.file.write_all(&fresh) {
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::End(0))?;
            return Err(error);
        }
        self.len += fresh.len() as u64;
        self.last_sequence = last_sequence;
        if self.synced_at.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(last_sequence)
    }

    /// Writes the file to the disk.
    ///
    /// # Errors
    /// If the disk reports an error; bytes that were acknowledged may be lost then.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.synced_len < self.len {
            self.file.sync_data()?;
        }
        (self.synced_len, self.synced_at) = (self.len, Instant::now());
        Ok(())
    }
}

impl Drop for RecordingWriter {
    fn drop(&mut self) {
        // There is no caller to report an error to.
        let _ = self.sync();
    }
}

/// Reads a recording message by message; the iterator begins with the Hello message. Overwritten messages are skipped.
#[derive(Debug)]
pub struct RecordingReader<R> {
    reader: FrameReader<R>,
    hello: Hello,
    checksums: Checksums,
    first: Option<AgentMessage>,
    read_bytes: u64,
    cut: Option<FramingError>,
    ended: bool,
}

impl RecordingReader<File> {
    /// Opens the recording at `path`.
    ///
    /// # Errors
    /// As [`RecordingReader::new`], and [`RecordingError::Io`] if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        RecordingReader::new(File::open(path)?)
    }
}

impl<R: Read> RecordingReader<R> {
    /// Reads a recording from `bytes`, which this function buffers.
    ///
    /// # Errors
    /// If the bytes do not begin with a Hello message of a supported version.
    pub fn new(bytes: R) -> Result<Self, RecordingError> {
        let mut reader = FrameReader::new(bytes);
        let framed = match reader.next_framed() {
            Ok(Some(framed)) => framed,
            Ok(None) | Err(FramingError::Truncated(_)) => return Err(RecordingError::NothingRecorded),
            Err(FramingError::Io(kind)) => return Err(RecordingError::Io(kind)),
            Err(_) => return Err(RecordingError::NotARecording),
        };
        let read_bytes = framed.len() as u64;
        let checksums = Checksums::of_stream(framed);
        let first = decode_message(framed, checksums).map_err(|error| match error {
            FramingError::Damaged(_) => RecordingError::Damaged,
            _ => RecordingError::NotARecording,
        })?;
        let first = first.shown();
        let Some(Body::Hello(hello)) = &first.body else {
            return Err(RecordingError::NotARecording);
        };
        version::check(hello).map_err(|error| match error {
            VersionError::BadMagic(_) => RecordingError::NotARecording,
            error => RecordingError::Version(error),
        })?;
        Ok(RecordingReader {
            reader,
            hello: hello.clone(),
            checksums,
            first: Some(first),
            read_bytes,
            cut: None,
            ended: false,
        })
    }

    /// Returns the first message of the recording.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns, after the end of the iterator, why messages are missing: it ended before the end of the file, or
    /// messages were overwritten. `None` if every message was read.
    pub fn cut(&self) -> Option<FramingError> {
        self.cut
    }

    /// Returns the bytes of the messages read so far, overwritten ones included.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    fn read(&mut self) -> Result<Option<AgentMessage>, FramingError> {
        while let Some(framed) = self.reader.next_framed()? {
            self.read_bytes += framed.len() as u64;
            match decode_message(framed, self.checksums) {
                Ok(message) => return Ok(Some(message.shown())),
                // The next message begins where this one ends.
                Err(error) => self.cut = self.cut.or(Some(error)),
            }
        }
        Ok(None)
    }
}

impl<R: Read> Iterator for RecordingReader<R> {
    type Item = AgentMessage;

    fn next(&mut self) -> Option<AgentMessage> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.ended {
            return None;
        }
        let message = self.read();
        self.ended = !matches!(message, Ok(Some(_)));
        self.cut = self.cut.or(message.as_ref().err().copied());
        message.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_written_to_the_disk_every_ten_seconds_and_on_demand() {
        let path = std::env::temp_dir().join(format!("tickwalk-recording-{}", std::process::id()));
        let mut writer = RecordingWriter::create(&path).expect("a file");
        fs::remove_file(&path).expect("it stays open");
        let message =
            |sequence| FramedMessage { message: AgentMessage { sequence, body: None }, bytes: vec![0; 7] };
        writer.append(&[message(1), message(2)]).expect("written");
        assert_eq!(writer.synced_len, 0);
        // As if the last time had been ten seconds ago.
        writer.synced_at =
            writer.synced_at.checked_sub(SYNC_EVERY).expect("the machine runs for ten seconds");
        writer.append(&[message(3)]).expect("written");
        assert_eq!(writer.synced_len, 21);
        writer.append(&[message(4)]).expect("written");
        assert_eq!((writer.synced_len, writer.len), (21, 28), "another ten seconds begin");
        writer.sync().expect("a disk");
        assert_eq!(writer.synced_len, 28);
    }
}
