//! The model that queries run on: what a session sent, summed up.
//!
//! Problem: a session is a stream of dictionaries, samples and cumulative statistics that may repeat, miss or
//! contradict parts, and that may end without warning.
//! Approach: entries are kept by id, samples are summed by thread and stack, of statistics the latest counts.
//! Invariant: every sample received is in exactly one cell, whether its ids are known or not; ids without an
//! entry are shown as [`UNKNOWN`] and counted.

mod naming;
mod numbering;

use std::path::Path;

use proto::framing::FramingError;
use proto::rows::{has_equal_columns, rows};
use proto::statistics::carry_over;
use proto::v1::{
    AgentMessage, Dictionary, Goodbye, Hello, SampleBatch, Statistics, Thread, ThreadAccount, ThreadKind,
    agent_message::Body,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::recording::{RecordingError, RecordingReader};
pub use naming::{NameId, NamedFrame, Naming, class_text};
use numbering::Nodes;

/// Shown in place of whatever the stream refers to but never defined.
pub const UNKNOWN: &str = "[unknown]";

/// Reason of stacks that were walked to their end; of a stack without a reason, this is assumed.
pub const END_OF_STACK: &str = "end_of_stack";

/// Reasons of stacks that begin at their root: walked to a thread's or a virtual thread's first Java frame, or of a thread
/// that runs no Java code at all. Frames that are missing further up have a mark in their place.
pub const WHOLE_STACKS: [&str; 4] = [END_OF_STACK, "end_of_continuation", "end_past_thaw", "not_java"];

/// The number under which the account of `thread` is kept: a virtual thread burns CPU time of its carrier's clock.
pub fn accountant(thread: &Thread) -> u32 {
    if thread.kind() == ThreadKind::Virtual && thread.carrier != 0 { thread.carrier } else { thread.id }
}

/// A thread as it is shown: most virtual threads have no name of their own.
pub fn introduced(mut thread: Thread) -> Thread {
    if thread.kind() == ThreadKind::Virtual && thread.name.is_empty() {
        thread.name = made_up_name(thread.java_id);
    }
    thread
}

/// The name shown for a virtual thread without one of its own, or whose name is not known yet.
pub fn made_up_name(java_id: i64) -> String {
    format!("virtual thread #{java_id}")
}

/// What a virtual thread is called in Java, whichever thread carries it; 0 for other threads.
pub fn virtual_id(thread: &Thread) -> i64 {
    if thread.kind() == ThreadKind::Virtual { thread.java_id } else { 0 }
}

/// The virtual threads among `threads`, by [`virtual_id`].
pub fn virtual_ids<'t>(threads: impl Iterator<Item = &'t Thread>) -> FxHashSet<i64> {
    threads.map(virtual_id).filter(|&id| id != 0).collect()
}

/// A method; strings by id.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "as in proto/proto/profiler.proto")]
pub struct Method {
    pub id: u64,
    pub class_name: u64,
    pub name: u64,
    pub signature: u64,
    pub source_file: u64,
    pub modifiers: u32,
    pub hidden: bool,
}

/// A frame; method and symbol by id.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "as in proto/proto/profiler.proto")]
pub struct Frame {
    pub id: u64,
    pub kind: i32,
    pub method: u64,
    pub bci: i32,
    pub line: u32,
    pub symbol: u64,
}

/// A stack.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Its id.
    pub id: u64,
    /// Frame ids, leaf first.
    pub frames: Vec<u64>,
    /// Why the walk ended.
    pub stop: String,
}

/// Entries of a dictionary with their ids.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the tables by their names")]
pub struct Definitions {
    pub strings: Vec<(u64, Box<str>)>,
    pub methods: Vec<Method>,
    pub frames: Vec<Frame>,
    pub stacks: Vec<Stack>,
    pub threads: Vec<Thread>,
}

/// Samples of one thread on one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// CPU time the samples stand for.
    pub cpu_ns: u64,
    /// Number of samples.
    pub samples: u64,
}

impl Cell {
    fn add(&mut self, cpu_ns: u64, samples: u64) {
        self.cpu_ns = self.cpu_ns.saturating_add(cpu_ns);
        self.samples = self.samples.saturating_add(samples);
    }
}

/// Everything known about one session.
#[derive(Clone, Debug)]
pub struct Profile {
    hello: Hello,
    strings: FxHashMap<u64, Box<str>>,
    methods: FxHashMap<u64, Method>,
    frames: FxHashMap<u64, Frame>,
    stacks: FxHashMap<u64, Stack>,
    nodes: Nodes,
    threads: FxHashMap<u32, Thread>,
    cells: FxHashMap<(u32, u64), Cell>,
    total: Cell,
    accounts: FxHashMap<u32, ThreadAccount>,
    statistics: Option<Statistics>,
    goodbye: Option<Goodbye>,
    last_sequence: u64,
    missing_messages: u64,
    uneven_batches: u64,
    cut: Option<FramingError>,
    part: bool,
}

impl Profile {
    /// An empty profile of the session that `hello` introduces.
    pub fn new(hello: Hello) -> Self {
        Profile {
            hello,
            strings: FxHashMap::default(),
            methods: FxHashMap::default(),
            frames: FxHashMap::default(),
            stacks: FxHashMap::default(),
            nodes: Nodes::default(),
            threads: FxHashMap::default(),
            cells: FxHashMap::default(),
            total: Cell::default(),
            accounts: FxHashMap::default(),
            statistics: None,
            goodbye: None,
            last_sequence: 0,
            missing_messages: 0,
            uneven_batches: 0,
            cut: None,
            part: false,
        }
    }

    /// Reads the recording at `path`; a recording that is cut off yields what is before the cut.
    ///
    /// # Errors
    /// As [`RecordingReader::open`].
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let mut reader = RecordingReader::open(path)?;
        let mut profile = Profile::new(reader.hello().clone());
        for message in reader.by_ref() {
            profile.add(message);
        }
        profile.cut = reader.cut();
        Ok(profile)
    }

    /// Takes in one message; one that was taken in before, judged by its sequence number, changes nothing.
    pub fn add(&mut self, message: AgentMessage) {
        if message.sequence <= self.last_sequence {
            return;
        }
        // A profile may be fed from the middle of a session, so what is before the first message is not missing.
        if self.last_sequence > 0 {
            self.missing_messages += message.sequence - self.last_sequence - 1;
        }
        self.last_sequence = message.sequence;
        match message.body {
            Some(Body::Dictionary(dictionary)) => self.add_dictionary(dictionary),
            Some(Body::Samples(samples)) => self.add_samples(&samples),
            Some(Body::Statistics(statistics)) => self.add_statistics(statistics),
            Some(Body::Goodbye(goodbye)) => self.goodbye = Some(goodbye),
            // A body of a later minor version is skipped like an unknown field.
            Some(Body::Hello(_) | Body::Heartbeat(_)) | None => {}
        }
    }

    /// The same session with these samples (thread, stack, sums) only: a part of it, chosen by thread or time.
    ///
    /// The agent's accounts are of the whole session, so a part has none.
    #[must_use]
    pub fn with_samples(mut self, samples: impl IntoIterator<Item = (u32, u64, Cell)>) -> Self {
        self.cells.clear();
        self.total = Cell::default();
        self.accounts.clear();
        self.statistics = None;
        self.part = true;
        for (thread, stack, cell) in samples {
            self.cells.entry((thread, stack)).or_default().add(cell.cpu_ns, cell.samples);
            self.total.add(cell.cpu_ns, cell.samples);
        }
        self
    }

    /// Adds entries under their ids.
    pub fn define(&mut self, definitions: Definitions) {
        self.strings.extend(definitions.strings);
        self.methods.extend(definitions.methods.into_iter().map(|method| (method.id, method)));
        self.frames.extend(definitions.frames.into_iter().map(|frame| (frame.id, frame)));
        self.stacks.extend(definitions.stacks.into_iter().map(|stack| (stack.id, stack)));
        self.threads.extend(definitions.threads.into_iter().map(|thread| (thread.id, introduced(thread))));
    }

    fn add_dictionary(&mut self, dictionary: Dictionary) {
        self.threads.extend(dictionary.threads.into_iter().map(|thread| (thread.id, introduced(thread))));
        if let Some(entries) = dictionary.entries {
            self.add_numbered(&entries);
        }
    }

    fn add_samples(&mut self, batch: &SampleBatch) {
        self.uneven_batches += u64::from(!has_equal_columns(batch));
        for row in rows(batch) {
            let stack = u64::from(row.stack);
            self.define_node(stack);
            self.cells.entry((row.thread, stack)).or_default().add(row.cpu_ns, row.count);
            self.total.add(row.cpu_ns, row.count);
        }
    }

    fn add_statistics(&mut self, mut statistics: Statistics) {
        let accounts = std::mem::take(&mut statistics.threads);
        self.accounts.extend(accounts.into_iter().map(|account| (account.thread, account)));
        if let Some(older) = &self.statistics {
            carry_over(older, &mut statistics);
        }
        self.statistics = Some(statistics);
    }

    /// The agent's introduction.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Samples by thread ([`Thread::id`]) and stack ([`Stack::id`]), in no particular order.
    pub fn cells(&self) -> impl Iterator<Item = (u32, u64, Cell)> + '_ {
        self.cells.iter().map(|(&(thread, stack), &cell)| (thread, stack, cell))
    }

    /// Sum of all cells.
    pub fn total(&self) -> Cell {
        self.total
    }

    /// The thread with this number, if it was introduced.
    pub fn thread(&self, id: u32) -> Option<&Thread> {
        self.threads.get(&id)
    }

    /// Numbers of all threads that were introduced, sampled or accounted for, in ascending order.
    pub fn thread_ids(&self) -> Vec<u32> {
        let sampled = self.cells.keys().map(|&(thread, _)| thread);
        let mut ids: Vec<u32> =
            self.threads.keys().copied().chain(self.accounts.keys().copied()).chain(sampled).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The stack with this id, if it was defined.
    pub fn stack(&self, id: u64) -> Option<&Stack> {
        self.stacks.get(&id)
    }

    /// The frame with this id, if it was defined.
    pub fn frame(&self, id: u64) -> Option<&Frame> {
        self.frames.get(&id)
    }

    /// The method with this id, if it was defined.
    pub fn method(&self, id: u64) -> Option<&Method> {
        self.methods.get(&id)
    }

    /// The text with this id, if it was defined.
    pub fn string(&self, id: u64) -> Option<&str> {
        self.strings.get(&id).map(|text| &**text)
    }

    /// Why the walk of this stack ended, [`UNKNOWN`] if it was never defined.
    pub fn stop_of(&self, stack: u64) -> &str {
        match self.stacks.get(&stack) {
            None => UNKNOWN,
            Some(stack) if stack.stop.is_empty() => END_OF_STACK,
            Some(stack) => &stack.stop,
        }
    }

    /// The latest account of a thread.
    pub fn account(&self, thread: u32) -> Option<&ThreadAccount> {
        self.accounts.get(&thread)
    }

    /// The latest statistics, without accounts of threads; `None` if the session ended before the first.
    pub fn statistics(&self) -> Option<&Statistics> {
        self.statistics.as_ref()
    }

    /// Why the agent said it ended, `None` if it never did.
    pub fn goodbye(&self) -> Option<&str> {
        self.goodbye.as_ref().map(|goodbye| goodbye.reason.as_str())
    }

    /// Messages whose sequence numbers were skipped.
    pub fn missing_messages(&self) -> u64 {
        self.missing_messages
    }

    /// Sample batches with columns of different length; the rows that are whole were counted.
    pub fn uneven_batches(&self) -> u64 {
        self.uneven_batches
    }

    /// Whether this is a part of a session, made by [`Profile::with_samples`].
    pub fn is_part(&self) -> bool {
        self.part
    }

    /// Why the recording ends before its last byte, `None` if it does not.
    pub fn cut(&self) -> Option<FramingError> {
        self.cut
    }
}
