//! A recording file: all messages, one after the other.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use proto::v1::{Hello, agent_message::Body};

use super::{Encoder, Sink, SinkError};
use crate::descriptor::OwnedDescriptor;

#[derive(Debug)]
pub struct FileSink {
    file: OwnedDescriptor<File>,
    path: PathBuf,
    encoder: Encoder,
}

impl FileSink {
    /// Creates (or truncates) the file. Only the owner may read a new one: it has names of private programs.
    ///
    /// # Errors
    /// As [`File::create`].
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let file = OwnedDescriptor::new(file)?;
        Ok(Self { file, path: path.to_owned(), encoder: Encoder::default() })
    }
}

impl Sink for FileSink {
    fn send(&mut self, body: &Body) -> Result<(), SinkError> {
        let without_token = match body {
            // Recordings are shared; the token is secret.
            Body::Hello(hello) => Some(Body::Hello(Hello { token: String::new(), ..hello.clone() })),
            _ => None,
        };
        let mut parts = Vec::new();
        self.encoder.encode(without_token.as_ref().unwrap_or(body), |_, framed| parts.push(framed))?;
        parts.iter().try_for_each(|part| self.file.write_all(part))?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(self.file.flush()?)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proto::framing::FrameReader;
    use proto::v1::{AgentMessage, Heartbeat};

    use super::*;
    use crate::send::sink::Destinations;

    #[test]
    fn a_failing_destination_does_not_take_the_other_with_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("recording");
        let mut all = Destinations::default();
        all.add(Box::new(FileSink::create(&path).expect("file")));
        let full = FileSink {
            file: OwnedDescriptor::new(File::options().write(true).open("/dev/full").expect("device"))
                .expect("open"),
            path: "/dev/full".into(),
            encoder: Encoder::default(),
        };
        all.add(Box::new(full));
        let bodies: Vec<_> = (1..=2).map(|time_ns| Body::Heartbeat(Heartbeat { time_ns })).collect();
        bodies.iter().for_each(|body| all.send(body));
        assert!(all.alive());
        let mut reader = FrameReader::new(File::open(&path).expect("recording"));
        for (sequence, body) in (1..).zip(bodies) {
            let message: AgentMessage = reader.next().expect("valid").expect("there");
            assert_eq!(message, AgentMessage { sequence, body: Some(body) });
        }
    }

    #[test]
    fn a_recording_is_readable_by_its_owner_only_and_has_no_token() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("recording");
        let mut sink = FileSink::create(&path).expect("file");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        let hello = Hello { token: "top-secret".to_owned(), ..Hello::default() };
        sink.send(&Body::Hello(hello)).expect("written");
        let bytes = std::fs::read(&path).expect("recording");
        assert!(!bytes.is_empty() && !bytes.windows(10).any(|part| part == b"top-secret"));
    }
}
