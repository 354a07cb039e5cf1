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
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use proto::v1::Hello;
use rustc_hash::FxHashMap;

use super::own_recording::OwnRecording;
use super::refusal::Refusal;
use super::sink::SessionSink;
use crate::store::{SessionWriter, Store, StoreError};
use profile::source::recording::{RecordingError, RecordingWriter};

impl SessionSink for RecordingWriter {
    fn append(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> Result<u64, Refusal> {
        RecordingWriter::append(self, messages).map_err(storage)
    }
}

impl SessionSink for SessionWriter {
    fn append(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> Result<u64, Refusal> {
        SessionWriter::append(self, messages).map_err(|error| match error {
            StoreError::SymbolsDropped | StoreError::TooManySessions | StoreError::WriterEnded => {
                Refusal::Store(error)
            }
            error => storage(error.into()),
        })
    }
}

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

/// A session and its place.
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
    writer: Weak<Mutex<dyn SessionSink>>,
}

/// All sessions of a server.
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

    /// Returns whether a store has the sessions.
    pub(super) fn are_in_store(&self) -> bool {
        matches!(self.destination, Destination::Store(_))
    }

    pub(super) fn report(&self) -> Vec<SessionReport> {
        self.in_order.values().map(|session| session.report.clone()).collect()
    }

    /// Returns the sink of the session of `hello`, and opens it if necessary.
    pub(super) fn open(&mut self, hello: &Hello) -> Result<Arc<Mutex<dyn SessionSink>>, Refusal> {
        let known = self.by_id.get(&hello.session_id).and_then(|number| self.in_order.get_mut(number));
        if let Some(session) = known {
            check_secret(&session.report.hello.secret, hello)?;
            if let Some(writer) = session.writer.upgrade() {
                return Ok(writer);
            }
            let writer: Arc<Mutex<dyn SessionSink>> = match &self.destination {
                Destination::Store(store) => in_store(store, hello)?,
                Destination::Directory(_) => {
                    Arc::new(Mutex::new(resume_or_create(&session.report.path, hello)?))
                }
                Destination::File(_) => {
                    let path = &session.report.path;
                    Arc::new(Mutex::new(OwnRecording::resumed(path, resume_or_create(path, hello)?)))
                }
            };
            session.writer = Arc::downgrade(&writer);
            return Ok(writer);
        }
        if self.in_order.len() >= self.max && !self.evict_one() {
            return Err(Refusal::TooManySessions(self.max));
        }
        let path = self.path_for(hello);
        let writer: Arc<Mutex<dyn SessionSink>> = match &self.destination {
            Destination::File(_) => Arc::new(Mutex::new(OwnRecording::create(&path))),
            Destination::Directory(_) => Arc::new(Mutex::new(resume_or_create(&path, hello)?)),
            Destination::Store(store) => in_store(store, hello)?,
        };
        tracing::info!(
            pid = hello.pid, session = %format_args!("{:016x}", hello.session_id), command = %hello.command,
            jvm = %hello.jvm_version, recording = %path.display(), "session began"
        );
        self.by_id.insert(hello.session_id, self.begun);
        let report = SessionReport { hello: hello.clone(), path };
        self.in_order.insert(self.begun, Session { report, writer: Arc::downgrade(&writer) });
        self.begun += 1;
        Ok(writer)
    }

    /// Evicts the oldest session without a connection; returns whether there was one.
    fn evict_one(&mut self) -> bool {
        if matches!(self.destination, Destination::File(_)) {
            return false;
        }
        let mut sessions = self.in_order.iter();
        let left = sessions.find(|(_, session)| session.writer.strong_count() == 0);
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

fn in_store(store: &Store, hello: &Hello) -> Result<Arc<Mutex<dyn SessionSink>>, Refusal> {
    if let Some(known) = store.hello(hello.session_id) {
        check_secret(&known.secret, hello)?;
    }
    let writer = store.session(hello).map_err(|error| Refusal::Storage(io::Error::from(error).kind()))?;
    Ok(Arc::new(Mutex::new(writer)))
}

fn resume_or_create(path: &std::path::Path, hello: &Hello) -> Result<RecordingWriter, Refusal> {
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
