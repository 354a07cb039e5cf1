//! Sessions and the files or stores that hold them.
//!
//! A session outlives its connections: an agent that lost its connection reconnects with the same session id and
//! repeats what was not acknowledged. Its recording is open while a connection uses it, and resumed from the file
//! afterwards, also after a restart of the collector.
//!
//! A collector outlives thousands of JVMs, so sessions without a connection are evicted when the limit is reached: the
//! store, or a file name with the session id, has what is needed to resume them. Sessions of [`Destination::File`] are
//! never evicted, because each owns a file name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use proto::framing::FramedMessage;
use proto::v1::Hello;
use rustc_hash::FxHashMap;

use super::own_recording::OwnRecording;
use super::refusal::Refusal;
use crate::store::{SessionWriter, Store, StoreError};
use profile::source::recording::{RecordingError, RecordingWriter};

/// Stores the messages of one session.
pub(super) trait SessionSink: Send {
    /// Stores the new ones among `messages`, and returns the highest stored sequence number.
    fn append(&mut self, messages: Vec<FramedMessage>) -> Result<u64, Refusal>;
}

impl SessionSink for RecordingWriter {
    fn append(&mut self, messages: Vec<FramedMessage>) -> Result<u64, Refusal> {
        RecordingWriter::append(self, &messages).map_err(storage)
    }
}

impl SessionSink for OwnRecording {
    fn append(&mut self, messages: Vec<FramedMessage>) -> Result<u64, Refusal> {
        Ok(OwnRecording::append(self, &messages))
    }
}

impl SessionSink for SessionWriter {
    fn append(&mut self, messages: Vec<FramedMessage>) -> Result<u64, Refusal> {
        SessionWriter::append(self, messages).map_err(|error| match error {
            StoreError::SymbolsDropped
            | StoreError::TooManySessions
            | StoreError::LakeFull
            | StoreError::WriterEnded => Refusal::Store(error),
            error => storage(error.into()),
        })
    }
}

type Sink = Arc<Mutex<dyn SessionSink>>;

/// Place where sessions are stored.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The first session replaces this file; each further session gets a file beside it, with the process id added to
    /// the name.
    File(PathBuf),
    /// Each session has its own file in this directory, `PID-SESSION.tickwalk`.
    Directory(PathBuf),
    /// A store holds all sessions.
    Store(Arc<Store>),
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionReport {
    /// The agent's introduction.
    pub hello: Hello,
    /// The recording, or the directory of the store.
    pub path: PathBuf,
}

struct Session {
    report: SessionReport,
    sink: Weak<Mutex<dyn SessionSink>>,
}

pub(super) struct Sessions {
    destination: Destination,
    max: usize,
    /// In the order of their first connection.
    in_order: BTreeMap<u64, Session>,
    by_id: FxHashMap<u64, u64>,
    begun: u64,
}

impl Sessions {
    pub(super) fn new(destination: Destination, max: usize) -> Self {
        Sessions { destination, max, in_order: BTreeMap::new(), by_id: FxHashMap::default(), begun: 0 }
    }

    pub(super) fn are_in_store(&self) -> bool {
        matches!(self.destination, Destination::Store(_))
    }

    pub(super) fn report(&self) -> Vec<SessionReport> {
        self.in_order.values().map(|session| session.report.clone()).collect()
    }

    /// Returns the sink of the session of `hello`, and opens it if necessary.
    pub(super) fn open(&mut self, hello: &Hello) -> Result<Sink, Refusal> {
        if let Some(session) =
            self.by_id.get(&hello.session_id).and_then(|begun| self.in_order.get_mut(begun))
        {
            check_secret(&session.report.hello.secret, hello)?;
            if let Some(sink) = session.sink.upgrade() {
                return Ok(sink);
            }
            let path = &session.report.path;
            let sink: Sink = match &self.destination {
                Destination::File(_) => {
                    let recording = OwnRecording::resumed(path, resume_or_create(path, hello)?);
                    Arc::new(Mutex::new(recording))
                }
                destination => open_shared(destination, path, hello)?,
            };
            session.sink = Arc::downgrade(&sink);
            return Ok(sink);
        }
        if self.in_order.len() >= self.max && !self.evict_one() {
            return Err(Refusal::TooManySessions(self.max));
        }
        let path = self.path_for(hello);
        let sink: Sink = match &self.destination {
            Destination::File(_) => Arc::new(Mutex::new(OwnRecording::create(&path))),
            destination => open_shared(destination, &path, hello)?,
        };
        tracing::info!(
            pid = hello.pid, session = %format_args!("{:016x}", hello.session_id), command = %hello.command,
            jvm = %hello.jvm_version, recording = %path.display(), "session began"
        );
        self.by_id.insert(hello.session_id, self.begun);
        let report = SessionReport { hello: hello.clone(), path };
        self.in_order.insert(self.begun, Session { report, sink: Arc::downgrade(&sink) });
        self.begun += 1;
        Ok(sink)
    }

    /// Evicts the oldest session without a connection; returns whether there was one.
    fn evict_one(&mut self) -> bool {
        if matches!(self.destination, Destination::File(_)) {
            return false;
        }
        let mut sessions = self.in_order.iter();
        let left = sessions.find(|(_, session)| session.sink.strong_count() == 0);
        let Some((&number, session)) = left else { return false };
        self.by_id.remove(&session.report.hello.session_id);
        self.in_order.remove(&number);
        true
    }

    fn path_for(&self, hello: &Hello) -> PathBuf {
        match &self.destination {
            Destination::Directory(directory) => {
                directory.join(format!("{}-{:016x}.tickwalk", hello.pid, hello.session_id))
            }
            Destination::Store(store) => store.path().to_owned(),
            Destination::File(path) if self.in_order.is_empty() => path.clone(),
            Destination::File(path) => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                // Process ids are reused, so a name in use gets the session id as well.
                let candidate = path.with_file_name(format!("{stem}-{}.tickwalk", hello.pid));
                if self.in_order.values().any(|session| session.report.path == candidate) {
                    path.with_file_name(format!("{stem}-{}-{:016x}.tickwalk", hello.pid, hello.session_id))
                } else {
                    candidate
                }
            }
        }
    }
}

/// Checks that `hello` has the secret that the session began with; both are hashes.
fn check_secret(known: &[u8], hello: &Hello) -> Result<(), Refusal> {
    if known == hello.secret { Ok(()) } else { Err(Refusal::WrongSecret(hello.session_id)) }
}

/// Opens a session in the store, or continues or creates its recording at `path`.
fn open_shared(destination: &Destination, path: &Path, hello: &Hello) -> Result<Sink, Refusal> {
    let Destination::Store(store) = destination else {
        return Ok(Arc::new(Mutex::new(resume_or_create(path, hello)?)));
    };
    if let Some(known) = store.hello(hello.session_id) {
        check_secret(&known.secret, hello)?;
    }
    Ok(Arc::new(Mutex::new(store.session(hello).map_err(|error| storage(error.into()))?)))
}

fn resume_or_create(path: &Path, hello: &Hello) -> Result<RecordingWriter, Refusal> {
    match RecordingWriter::resume(path, hello) {
        Ok(writer) => Ok(writer),
        Err(RecordingError::OtherSession(id)) => Err(Refusal::WrongSecret(id)),
        Err(RecordingError::Io(io::ErrorKind::NotFound) | RecordingError::NothingRecorded) => {
            RecordingWriter::create(path).map_err(storage)
        }
        Err(RecordingError::Io(kind)) => Err(Refusal::Storage(kind)),
        // A file that is no recording is never overwritten.
        Err(_) => Err(Refusal::Storage(io::ErrorKind::AlreadyExists)),
    }
}

fn storage(error: io::Error) -> Refusal {
    Refusal::Storage(error.kind())
}
