//! Synthetic streams: what an agent would send, made by hand.

pub mod realistic;
#[allow(dead_code, reason = "each test binary uses its part")]
pub mod replay;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use profile::query::process::ProcessProfile;
use profile::source::recording::Recording;
use proto::ThreadState;
use proto::framing::encode_frame;
use proto::v1::{
    AgentMessage, Counter, Dictionary, Entries, FrameKind, Goodbye, Hello, Histogram, Lost, Mode,
    QueueStatistics, SampleBatch, Statistics, Thread, ThreadAccount, ThreadKind, agent_message::Body,
};
use proto::version::{MAGIC, WIRE_VERSION};

/// Sampling interval of synthetic streams.
pub const INTERVAL_NS: u64 = 10_000_000;

/// Writes a session message by message; entries are numbered in order of first use.
pub struct Stream {
    hello: Hello,
    messages: Vec<AgentMessage>,
    /// Numbers of entries, and the last one of each kind.
    numbers: HashMap<(&'static str, String), u32>,
    counts: HashMap<&'static str, u32>,
    dictionary: Dictionary,
    batch: SampleBatch,
}

#[allow(dead_code, reason = "each test binary uses its part")]
impl Stream {
    /// A session after its Hello.
    pub fn new() -> Self {
        Stream::of_session(0x00c0_ffee)
    }

    pub fn of_session(session_id: u64) -> Self {
        let hello = Hello {
            magic: MAGIC,
            wire_version: WIRE_VERSION,
            agent_version: "0.1.0".into(),
            session_id,
            pid: 4321,
            jvm_version: "25.0.3+9-LTS".into(),
            jvm_name: "OpenJDK 64-Bit Server VM".into(),
            jdk_major: 25,
            command: "com.example.shop.Application --server.port=8080".into(),
            host: "build-1".into(),
            interval_ns: INTERVAL_NS,
            wall_clock_ns: 1_790_000_000_000_000_000,
            monotonic_ns: 55_000_000_000,
            ..Default::default()
        };
        let mut stream = Stream {
            hello: hello.clone(),
            messages: Vec::new(),
            numbers: HashMap::new(),
            counts: HashMap::new(),
            dictionary: Dictionary::default(),
            batch: SampleBatch::default(),
        };
        stream.send(Body::Hello(hello));
        stream
    }

    /// Makes it another session with the same content.
    pub fn rename(&mut self, session_id: u64) {
        self.hello.session_id = session_id;
        self.messages[0].body = Some(Body::Hello(self.hello.clone()));
    }

    /// Gives its profile a mode.
    pub fn set_mode(&mut self, mode: Mode) {
        self.hello.mode = mode.into();
        self.messages[0].body = Some(Body::Hello(self.hello.clone()));
    }

    /// Sets the time of the day at which the session began, in nanoseconds.
    pub fn set_wall_clock(&mut self, wall_clock_ns: u64) {
        self.hello.wall_clock_ns = wall_clock_ns;
        self.messages[0].body = Some(Body::Hello(self.hello.clone()));
    }

    /// Gives its process another id.
    pub fn set_pid(&mut self, pid: u32) {
        self.hello.pid = pid;
        self.messages[0].body = Some(Body::Hello(self.hello.clone()));
    }

    /// Appends a message after what is pending.
    pub fn send(&mut self, body: Body) {
        self.flush();
        self.push(body);
    }

    fn push(&mut self, body: Body) {
        let sequence = self.messages.len() as u64 + 1;
        self.messages.push(AgentMessage { sequence, body: Some(body) });
    }

    /// Sends pending dictionary entries and samples.
    pub fn flush(&mut self) {
        let dictionary = std::mem::take(&mut self.dictionary);
        if dictionary != Dictionary::default() {
            self.push(Body::Dictionary(dictionary));
        }
        let batch = std::mem::take(&mut self.batch);
        if batch != SampleBatch::default() {
            self.push(Body::Samples(batch));
        }
    }

    /// The number of an entry, and whether it is new.
    fn number(&mut self, table: &'static str, key: String) -> (u32, bool) {
        let next = self.counts.entry(table).or_default();
        match self.numbers.entry((table, key)) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(free) => {
                *next += 1;
                (*free.insert(*next), true)
            }
        }
    }

    fn entries(&mut self) -> &mut Entries {
        self.dictionary.entries.get_or_insert_default()
    }

    pub fn string(&mut self, text: &str) -> u32 {
        let (number, is_new) = self.number("string", text.to_owned());
        if is_new {
            let entries = self.entries();
            begin(&mut entries.first_string, number);
            entries.string.push(text.to_owned());
        }
        number
    }

    /// A frame of `name`: `package/Class.method` for Java kinds, else a symbol.
    pub fn frame(&mut self, kind: FrameKind, name: &str) -> u32 {
        self.frame_at(kind, name, 7)
    }

    /// Gives the latest frame a line.
    pub fn line(&mut self, line: u32) {
        *self.entries().frame_line.last_mut().expect("a new frame") = line;
    }

    /// Gives the latest method a source file.
    #[allow(dead_code, reason = "each test binary uses its part")]
    pub fn source_file(&mut self, name: &str) {
        let name = self.string(name);
        *self.entries().method_source.last_mut().expect("a new method") = name;
    }

    /// A frame of a function of `library`: its path, a space, and its build id.
    pub fn native_frame(&mut self, name: &str, library: &str) -> u32 {
        let library = self.string(library);
        let number = self.frame(FrameKind::Native, name);
        *self.entries().frame_library.last_mut().expect("a new frame") = library;
        number
    }

    /// A Java frame with its byte code index.
    pub fn frame_at(&mut self, kind: FrameKind, name: &str, bci: i32) -> u32 {
        let (number, is_new) = self.number("frame", format!("{kind:?} {name} {bci}"));
        if !is_new {
            return number;
        }
        let is_java = matches!(
            kind,
            FrameKind::Interpreted
                | FrameKind::C1
                | FrameKind::C2
                | FrameKind::Inlined
                | FrameKind::NativeMethod
        );
        let (method, bci, symbol) =
            if is_java { (self.method(name), bci, 0) } else { (0, -1, self.string(name)) };
        let entries = self.entries();
        begin(&mut entries.first_frame, number);
        entries.frame_kind.push(kind.into());
        entries.frame_method.push(method);
        entries.frame_bci.push(bci);
        entries.frame_line.push(0);
        entries.frame_symbol.push(symbol);
        entries.frame_library.push(0);
        number
    }

    fn method(&mut self, name: &str) -> u32 {
        let (number, is_new) = self.number("method", name.to_owned());
        if is_new {
            let (class, method) = name.rsplit_once('.').expect("Class.method");
            let strings = [class, method, "()V"].map(|text| self.string(text));
            let entries = self.entries();
            begin(&mut entries.first_method, number);
            entries.method_class.push(strings[0]);
            entries.method_name.push(strings[1]);
            entries.method_signature.push(strings[2]);
            entries.method_source.push(0);
            entries.method_modifiers.push(0);
        }
        number
    }

    /// A stack of frames, leaf first.
    pub fn stack(&mut self, frames: &[u32], stop: &str) -> u32 {
        let (reason, state) = ThreadState::split(stop);
        let string = if stop.is_empty() { 0 } else { self.string(reason) };
        let root = self.root(string, state);
        frames.iter().rev().fold(root, |parent, &frame| self.node(parent, frame))
    }

    fn root(&mut self, stop: u32, state: Option<ThreadState>) -> u32 {
        let Some(state) = state else { return self.node(0, stop) };
        let (number, is_new) = self.number("node", format!("0 {stop} {state:?}"));
        if is_new {
            let entries = self.entries();
            begin(&mut entries.first_node, number);
            entries.node_state.resize(entries.node_frame.len(), 0);
            entries.node_state.push(state.number());
            entries.node_parent.push(0);
            entries.node_frame.push(stop);
        }
        number
    }

    fn node(&mut self, parent: u32, frame: u32) -> u32 {
        let (number, is_new) = self.number("node", format!("{parent} {frame}"));
        if is_new {
            let entries = self.entries();
            begin(&mut entries.first_node, number);
            entries.node_parent.push(if parent == 0 { 0 } else { number - parent });
            entries.node_frame.push(frame);
        }
        number
    }

    /// A stack of C2 compiled methods, root first.
    pub fn java_stack(&mut self, root_first: &[&str]) -> u32 {
        let frames: Vec<u32> = root_first.iter().rev().map(|name| self.frame(FrameKind::C2, name)).collect();
        self.stack(&frames, "end_of_stack")
    }

    pub fn thread(&mut self, id: u32, name: &str, kind: ThreadKind) {
        let thread =
            Thread { id, tid: 10_000 + id, name: name.to_owned(), kind: kind.into(), java_id: 0, carrier: 0 };
        self.dictionary.threads.push(thread);
    }

    /// A virtual thread on one of its carriers.
    pub fn carried(&mut self, id: u32, carrier: u32, java_id: i64, name: &str) {
        let (name, kind) = (name.to_owned(), ThreadKind::Virtual.into());
        self.dictionary.threads.push(Thread { id, tid: 10_000 + carrier, name, kind, java_id, carrier });
    }

    pub fn sample(&mut self, thread: u32, stack: u32, cpu_ns: u64) {
        self.batch.time_delta_us.push(1_000);
        self.batch.thread.push(thread);
        self.batch.node.push(stack);
        self.batch.cpu_unit_ns = 1;
        self.batch.cpu_units.push(cpu_ns);
        self.batch.flags.push(0);
        if self.batch.thread.len() >= 5_000 {
            self.flush();
        }
    }

    /// Marks the last sample as one whose newest Java frame is that of a later point.
    pub fn mark_biased(&mut self) {
        *self.batch.flags.last_mut().expect("a sample") |= proto::rows::BIASED;
    }

    pub fn goodbye(&mut self) {
        self.send(Body::Goodbye(Goodbye { reason: "vm_death".into() }));
    }

    /// Everything sent so far.
    pub fn messages(&mut self) -> &[AgentMessage] {
        self.flush();
        &self.messages
    }

    /// The recording: all messages framed.
    pub fn bytes(&mut self) -> Vec<u8> {
        self.framed().concat()
    }

    /// Each message framed.
    pub fn framed(&mut self) -> Vec<Vec<u8>> {
        self.messages()
            .iter()
            .map(|message| {
                let mut bytes = Vec::new();
                encode_frame(message, &mut bytes).expect("small message");
                bytes
            })
            .collect()
    }

    /// The session in memory.
    pub fn recording(&mut self) -> Recording {
        let mut recording = Recording::new(self.hello.clone());
        self.messages().iter().cloned().for_each(|message| recording.add(message));
        recording
    }

    /// All of the session, for exports.
    pub fn profile(&mut self) -> ProcessProfile {
        ProcessProfile::whole(&self.recording()).expect("one process")
    }
}

/// Sets the first number of a kind in a message, if it is not set.
fn begin(first: &mut u32, number: u32) {
    if *first == 0 {
        *first = number;
    }
}

/// A small session with everything in it: two Java threads, one with recursion, one with a cut stack, a compiler
/// thread, losses, a closed account.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn small() -> Stream {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    stream.thread(2, "worker;1", ThreadKind::Java);
    stream.thread(3, "C2 CompilerThread0", ThreadKind::Compiler);
    let flat = stream.java_stack(&["com/example/Main.main", "com/example/Work.run", "java/util/HashMap.get"]);
    let deep = stream.java_stack(&[
        "com/example/Main.main",
        "com/example/Work.descend",
        "com/example/Work.descend",
        "com/example/Work.descend",
    ]);
    let lambda = stream.java_stack(&[
        "java/lang/Thread.run",
        "com/example/Main$$Lambda$14/0x000000080011a040.run",
        "com/example/Main.<init>",
    ]);
    let inner = stream.frame(FrameKind::Interpreted, "com/example/Work.parse");
    let cut = stream.stack(&[inner], "depth_limit");
    let compile = stream.frame(FrameKind::Vm, "PhaseIdealLoop::build_and_optimize(LoopOptsMode)");
    let compiler = stream.stack(&[compile], "end_of_stack");
    let nothing = stream.stack(&[], "no_pc");
    for _ in 0..5 {
        stream.sample(1, flat, INTERVAL_NS);
    }
    stream.sample(1, deep, 3 * INTERVAL_NS);
    stream.sample(2, lambda, INTERVAL_NS);
    stream.sample(2, cut, 2 * INTERVAL_NS);
    stream.sample(2, nothing, INTERVAL_NS);
    stream.mark_biased();
    stream.sample(3, compiler, 4 * INTERVAL_NS);
    stream.send(Body::Statistics(small_statistics()));
    stream.goodbye();
    stream
}

fn small_statistics() -> Statistics {
    let lost = vec![Lost { cause: "queue_full".into(), count: 1, ns: INTERVAL_NS }];
    let account = |thread, sampled: u64, unfinished_ns, samples| ThreadAccount {
        thread,
        kernel_ns: sampled * INTERVAL_NS + unfinished_ns,
        sampled_ns: sampled * INTERVAL_NS,
        samples,
        ..Default::default()
    };
    let mut worker = account(2, 4, 5_000_000, 3);
    worker.kernel_ns += INTERVAL_NS;
    worker.lost = lost.clone();
    worker.biased = 1;
    // The compiler thread took over 2 ms from a thread that ended with 2 ms unfinished and no sample.
    let mut compiler = account(3, 4, 3_000_000, 1);
    compiler.carried_ns = 2_000_000;
    let ended = ThreadAccount {
        thread: 4,
        kernel_ns: 2_000_000,
        handed_on_ns: 2_000_000,
        ended: true,
        ..Default::default()
    };
    let histogram = Histogram { count: 4, max: 5_000, bucket: vec![72, 80], bucket_count: vec![3, 1] };
    Statistics {
        time_ns: 56_000_000_000,
        threads: vec![account(1, 8, 1_000_000, 6), worker, compiler, ended],
        requests: 11,
        resolved: 10,
        failed: vec![Counter { name: "no_registers".into(), count: 1 }],
        samples: 10,
        biased: Some(1),
        stops: vec![
            Counter { name: "end_of_stack".into(), count: 8 },
            Counter { name: "depth_limit".into(), count: 1 },
            Counter { name: "no_pc".into(), count: 1 },
        ],
        handler_cycles: Some(histogram.clone()),
        walk_ns: Some(histogram),
        drain_ns: None,
        drain_requests: None,
        sampler_cpu_ns: 1_200_000,
        queue: Some(QueueStatistics {
            capacity_bytes: 2_880,
            grown: 1,
            pool_bytes: 1 << 20,
            pool_exhausted: 0,
            high_water: 9,
            shrunk: 1,
            largest: 64,
            pool_grown: 4,
            pool_shrunk: 2,
            pool_high_water: 12,
            most_bytes: 3_520,
            lost_after_growth: 2,
            drained_at_exit: 3,
        }),
        process_cpu_ns: 190_000_000,
        before_timer_ns: 3_000_000,
        lost,
        delivery: None,
        ..Default::default()
    }
}
