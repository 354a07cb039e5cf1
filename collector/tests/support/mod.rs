//! Synthetic streams: what an agent would send, made by hand.

pub mod realistic;

use std::collections::HashMap;

use collector::profile::Profile;
use proto::framing::encode_frame;
use proto::v1::{
    AgentMessage, Counter, Dictionary, Frame, FrameKind, Goodbye, Hello, Histogram, Lost, Method,
    QueueStatistics, SampleBatch, Stack, Statistics, StringEntry, Thread, ThreadAccount, ThreadKind,
    agent_message::Body,
};
use proto::version::{MAGIC, WIRE_VERSION};

/// Sampling interval of synthetic streams.
pub const INTERVAL_NS: u64 = 10_000_000;

/// Writes a session message by message; ids are handed out in order of first use.
pub struct Stream {
    hello: Hello,
    messages: Vec<AgentMessage>,
    ids: HashMap<(&'static str, String), u64>,
    dictionary: Dictionary,
    batch: SampleBatch,
}

#[allow(dead_code, reason = "each test binary uses its part")]
impl Stream {
    /// A session that has said hello.
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
            ids: HashMap::new(),
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

    fn id(&mut self, table: &'static str, key: &str) -> (u64, bool) {
        let next = self.ids.len() as u64 + 1000;
        let mut is_new = false;
        let id = *self.ids.entry((table, key.to_owned())).or_insert_with(|| {
            is_new = true;
            next
        });
        (id, is_new)
    }

    pub fn string(&mut self, text: &str) -> u64 {
        let (id, is_new) = self.id("string", text);
        if is_new {
            self.dictionary.strings.push(StringEntry { id, text: text.to_owned() });
        }
        id
    }

    /// A frame of `name`: `package/Class.method` for Java kinds, else a symbol.
    pub fn frame(&mut self, kind: FrameKind, name: &str) -> u64 {
        self.frame_at(kind, name, 7)
    }

    /// As [`frame`](Self::frame), with the byte code index of a Java frame.
    pub fn frame_at(&mut self, kind: FrameKind, name: &str, bci: i32) -> u64 {
        let (id, is_new) = self.id("frame", &format!("{kind:?} {name} {bci}"));
        if !is_new {
            return id;
        }
        let is_java = matches!(
            kind,
            FrameKind::Interpreted
                | FrameKind::C1
                | FrameKind::C2
                | FrameKind::Inlined
                | FrameKind::NativeMethod
        );
        let mut frame = Frame { id, kind: kind.into(), bci: -1, ..Default::default() };
        if is_java {
            frame.method = self.method(name);
            frame.bci = bci;
        } else {
            frame.symbol = self.string(name);
        }
        self.dictionary.frames.push(frame);
        id
    }

    fn method(&mut self, name: &str) -> u64 {
        let (id, is_new) = self.id("method", name);
        if is_new {
            let (class, method) = name.rsplit_once('.').expect("Class.method");
            let entry = Method {
                id,
                class_name: self.string(class),
                name: self.string(method),
                signature: self.string("()V"),
                ..Default::default()
            };
            self.dictionary.methods.push(entry);
        }
        id
    }

    /// A stack of frames, leaf first.
    pub fn stack(&mut self, frames: &[u64], stop: &str) -> u64 {
        let (id, is_new) = self.id("stack", &format!("{frames:?} {stop}"));
        if is_new {
            self.dictionary.stacks.push(Stack { id, frames: frames.to_vec(), stop: stop.to_owned() });
        }
        id
    }

    /// A stack of C2 compiled methods, root first.
    pub fn java_stack(&mut self, root_first: &[&str]) -> u64 {
        let frames: Vec<u64> = root_first.iter().rev().map(|name| self.frame(FrameKind::C2, name)).collect();
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

    pub fn sample(&mut self, thread: u32, stack: u64, cpu_ns: u64) {
        self.batch.time_delta_ns.push(1_000_000);
        self.batch.thread.push(thread);
        self.batch.stack.push(stack);
        self.batch.cpu_ns.push(cpu_ns);
        self.batch.flags.push(0);
        if self.batch.thread.len() >= 5_000 {
            self.flush();
        }
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

    pub fn profile(&mut self) -> Profile {
        let hello = self.hello.clone();
        let mut profile = Profile::new(hello);
        self.messages().iter().cloned().for_each(|message| profile.add(message));
        profile
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
