//! Recordings: one session in a file, and in memory for queries.

mod file;

use std::io;
use std::ops::Range;
use std::path::Path;

use proto::framing::FramingError;
use proto::rows::{has_equal_columns, rows};
use proto::v1::{AgentMessage, Hello, SampleBatch, agent_message::Body};

use crate::dictionary::{Dictionary, SessionRows};
use crate::session::Session;
use crate::source::{Extent, Kind, Part, ReadError, Row, Sample, Scope, Source, minutes_of};

pub use file::{RecordingError, RecordingReader, RecordingWriter, keep_existing};

/// A session in memory, as a source of samples.
///
/// Invariant: every received sample is kept, even if its thread or stack is unknown.
#[derive(Debug)]
pub struct Recording {
    id: u64,
    dictionary: Dictionary,
    rows: SessionRows,
    session: Session,
    samples: Vec<Sample>,
    cut: Option<FramingError>,
}

impl Recording {
    /// Returns an empty recording of the session that `hello` introduces.
    pub fn new(hello: Hello) -> Recording {
        let mut session = Session::default();
        let id = hello.session_id;
        session.introduce(hello);
        Recording {
            id,
            dictionary: Dictionary::unlimited(),
            rows: SessionRows::default(),
            session,
            samples: Vec::new(),
            cut: None,
        }
    }

    /// Reads the only session of the recording at `path`, up to the cut if it is cut off.
    ///
    /// # Errors
    /// As [`RecordingReader::open`], and [`RecordingError::Sessions`].
    pub fn read(path: &Path) -> Result<Recording, RecordingError> {
        let Recordings { mut sessions, cut } = Recordings::read(path)?;
        match (sessions.pop(), sessions.len()) {
            (Some(recording), 0) => Ok(Recording { cut, ..recording }),
            (_, others) => Err(RecordingError::Sessions(others + 1)),
        }
    }

    /// Frees the state that is only needed to add messages.
    fn close(&mut self) {
        self.dictionary.close();
        self.rows = SessionRows::default();
    }

    /// Adds a message; a message with a known sequence number is ignored.
    pub fn add(&mut self, message: AgentMessage) {
        if !self.session.accept(message.sequence) {
            return;
        }
        match message.body {
            Some(Body::Hello(hello)) => self.session.introduce(hello),
            Some(Body::Dictionary(dictionary)) => {
                if let Some(entries) = &dictionary.entries {
                    self.dictionary.define(entries, &mut self.rows);
                }
                for thread in dictionary.threads {
                    self.session.add_thread(thread);
                }
            }
            Some(Body::Samples(batch)) => self.add_samples(&batch),
            Some(Body::Statistics(statistics)) => {
                self.session.see(statistics.time_ns, statistics.clock_shift_ms);
                self.session.add_statistics(statistics);
            }
            Some(Body::Heartbeat(heartbeat)) => self.session.see(heartbeat.time_ns, 0),
            Some(Body::Goodbye(goodbye)) => self.session.goodbye = Some(goodbye.reason),
            // Bodies of later versions are skipped like unknown fields.
            None => {}
        }
    }

    fn add_samples(&mut self, batch: &SampleBatch) {
        self.session.uneven_batches += u64::from(!has_equal_columns(batch));
        for row in rows(batch) {
            let time_ns = self.session.wall_ns(row.time_ns, batch.clock_shift_ms);
            let stack = self.dictionary.stack_of_node(row.stack, &mut self.rows);
            self.session.count(&row, time_ns, stack != 0);
            self.samples.push(Sample {
                session: self.id,
                time_ns,
                thread: row.thread,
                stack,
                cpu_ns: row.cpu_ns,
                count: u32::try_from(row.count).unwrap_or(u32::MAX),
            });
        }
    }

    /// Removes the samples for which `keep` returns false, given the thread's kernel id (0 if it was never introduced)
    /// and the time in nanoseconds since the epoch. The account still covers the whole session.
    pub fn retain(&mut self, keep: impl Fn(u32, u64) -> bool) {
        let session = &self.session;
        let tid_of = |thread| session.thread(thread).map_or(0, |thread| thread.tid);
        self.samples.retain(|sample| keep(tid_of(sample.thread), sample.time_ns));
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn into_parts(self) -> (Session, Dictionary, Vec<Sample>) {
        (self.session, self.dictionary, self.samples)
    }
}

/// The sessions of a file with one or more recordings.
#[derive(Debug)]
pub struct Recordings {
    sessions: Vec<Recording>,
    cut: Option<FramingError>,
}

impl Recordings {
    /// Reads the recordings in the file at `path`.
    ///
    /// # Errors
    /// As [`RecordingReader::open`].
    pub fn read(path: &Path) -> Result<Recordings, RecordingError> {
        Ok(Self::of(RecordingReader::open(path)?))
    }

    /// Reads all recordings of `reader`.
    pub fn of<R: io::Read>(mut reader: RecordingReader<R>) -> Recordings {
        let mut sessions = vec![Recording::new(reader.hello().clone())];
        // Usually the last one, to which the next message belongs.
        let mut at = 0;
        for message in reader.by_ref() {
            if let Some(Body::Hello(hello)) = &message.body
                && hello.session_id != sessions[at].id
            {
                let known = sessions.iter().position(|session| session.id == hello.session_id);
                at = known.unwrap_or(sessions.len());
                if known.is_none() {
                    sessions.push(Recording::new(hello.clone()));
                }
            }
            sessions[at].add(message);
        }
        sessions.iter_mut().for_each(Recording::close);
        Recordings { sessions, cut: reader.cut() }
    }

    pub fn sessions(&self) -> &[Recording] {
        &self.sessions
    }
}

impl Source for Recordings {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        self.sessions.iter().map(|session| Box::new(session) as Box<dyn Part>).collect()
    }

    fn end_ns(&self) -> Option<u64> {
        self.sessions.iter().filter_map(Source::end_ns).max()
    }

    fn start_ns(&self) -> Option<u64> {
        self.sessions.iter().filter_map(Source::start_ns).min()
    }

    fn cut(&self) -> Option<FramingError> {
        self.cut
    }
}

impl Source for Recording {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        vec![Box::new(self)]
    }

    fn end_ns(&self) -> Option<u64> {
        Some(self.samples.iter().map(|sample| sample.time_ns.saturating_add(1)).max().unwrap_or(0))
    }

    fn start_ns(&self) -> Option<u64> {
        Some(self.session.first_ns)
    }

    fn cut(&self) -> Option<FramingError> {
        self.cut
    }
}

impl Part for &Recording {
    fn range_ns(&self) -> Range<u64> {
        minutes_of(&self.samples)
    }

    fn has_samples(&self) -> bool {
        true
    }

    fn dictionary(&self, read: &mut dyn FnMut(&Dictionary)) -> Result<(), ReadError> {
        read(&self.dictionary);
        Ok(())
    }

    fn sessions(
        &self,
        _: Extent,
        is_selected: &dyn Fn(u64) -> bool,
        visit: &mut dyn FnMut(u64, &Session),
    ) -> Result<(), ReadError> {
        if is_selected(self.id) {
            visit(self.id, &self.session);
        }
        Ok(())
    }

    fn read(&self, scope: &Scope<'_>, _: Kind<'_>, visit: &mut dyn FnMut(Row)) -> Result<(), ReadError> {
        let is_selected = (scope.sessions)(self.id);
        let selected =
            self.samples.iter().filter(|sample| is_selected && scope.range_ns.contains(&sample.time_ns));
        selected.for_each(|sample| visit(Row::Sample(*sample)));
        Ok(())
    }
}
