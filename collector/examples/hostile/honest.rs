//! An honest agent, and what a collector has of it.
//!
//! Each session brings names of its own, as another version of a program would: names that are known already would stay
//! known however full the dictionary is.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use collector::store::Store;
use profile::source::{Extent, Part, Scope, with_dictionary};
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, Dictionary, Entries, FrameKind, Goodbye, Hello, SampleBatch, Thread};
use proto::version::{MAGIC, WIRE_VERSION};

use crate::framed;

/// CPU time of a sample.
const INTERVAL_NS: u64 = 10_000_000;
/// Threads that take turns.
const THREADS: u32 = 3;
/// Methods that are on top in turn.
const METHODS: u32 = 500;
/// Samples after which a session ends and another one takes over.
const MOST_SAMPLES: u32 = 1000;
/// Samples of the shortest session.
const LEAST_SAMPLES: u32 = 100;
/// Beginning of the first session, and the time from one to the next: no two share a minute.
const FIRST_NS: u64 = 1_790_000_000_000_000_000;
const STEP_NS: u64 = 60_000_000_000;

/// Data sent of one session.
pub struct Sent {
    pub session: u64,
    number: u64,
    /// All of its messages.
    pub bytes: Vec<u8>,
    cpu_ns: BTreeMap<u32, u64>,
}

/// Outcomes of sessions.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub sessions: u64,
    /// Those whose CPU time is there by thread, to the nanosecond, and whose end is known.
    pub exact: u64,
    /// Those of whose stacks no frame lacks its name.
    pub named: u64,
}

/// One agent as it sends.
struct Agent {
    number: u64,
    sequence: u64,
    hello: Hello,
}

impl Agent {
    fn new(session_id: u64, number: u64) -> Agent {
        let hello = Hello {
            magic: MAGIC,
            wire_version: WIRE_VERSION,
            session_id,
            pid: 4321,
            command: "com.example.shop.Application".into(),
            interval_ns: INTERVAL_NS,
            wall_clock_ns: FIRST_NS + number * STEP_NS,
            ..Hello::default()
        };
        Agent { number, sequence: 0, hello }
    }

    fn message(&mut self, body: Body) -> Vec<u8> {
        self.sequence += 1;
        framed(&AgentMessage { sequence: self.sequence, body: Some(body) })
    }

    fn beginning(&mut self) -> Vec<u8> {
        let threads =
            (1..=THREADS).map(|id| Thread { id, name: format!("worker-{id}"), ..Thread::default() });
        let numbered = Entries {
            first_string: 1,
            string: vec!["end_of_stack".into(), "a/Main".into(), "main".into()],
            first_node: 1,
            node_parent: vec![0],
            node_frame: vec![1],
            ..Entries::default()
        };
        let entries = Dictionary { threads: threads.collect(), entries: Some(numbered) };
        let hello = self.hello.clone();
        [self.message(Body::Hello(hello)), self.message(Body::Dictionary(entries))].concat()
    }

    /// The name of one method of this session.
    fn name(number: u64, method: u32) -> String {
        format!("m{method}OfRelease{number}")
    }

    /// One sample; the first one of each method defines it.
    fn sample(&mut self, round: u32) -> (u32, Vec<u8>) {
        let method = round % METHODS;
        let mut bytes = Vec::new();
        if round < METHODS {
            // Numbers follow each other: string 4 names method 1, which is frame 1 and node 2.
            let numbered = Entries {
                first_string: 4 + method,
                string: vec![Agent::name(self.number, method)],
                first_method: 1 + method,
                method_class: vec![2],
                method_name: vec![4 + method],
                method_signature: vec![0],
                method_source: vec![0],
                method_modifiers: vec![0],
                first_frame: 1 + method,
                frame_kind: vec![FrameKind::C2.into()],
                frame_method: vec![1 + method],
                frame_bci: vec![7],
                frame_line: vec![0],
                frame_symbol: vec![0],
                frame_library: vec![0],
                first_node: 2 + method,
                node_parent: vec![1 + method],
                node_frame: vec![1 + method],
                ..Entries::default()
            };
            let entries = Dictionary { entries: Some(numbered), ..Dictionary::default() };
            bytes.extend(self.message(Body::Dictionary(entries)));
        }
        let thread = 1 + round % THREADS;
        bytes.extend(self.message(Body::Samples(SampleBatch {
            first_time_ns: u64::from(round) * 1_000_000,
            time_delta_us: vec![0],
            thread: vec![thread],
            node: vec![2 + method],
            cpu_unit_ns: INTERVAL_NS,
            ..SampleBatch::default()
        })));
        (thread, bytes)
    }
}

/// Streams an honest session slowly, as long as the attack lasts.
pub fn stream(
    socket: &Path,
    session: u64,
    number: u64,
    attack_over: impl Fn() -> bool,
) -> Result<Sent, Box<dyn Error>> {
    let mut agent = Agent::new(session, number);
    let mut connection = UnixStream::connect(socket)?;
    let mut answers = connection.try_clone()?;
    let reader = std::thread::spawn(move || answers.read_to_end(&mut Vec::new()));
    let mut sent = Sent { session, number, bytes: agent.beginning(), cpu_ns: BTreeMap::new() };
    connection.write_all(&sent.bytes)?;
    for round in 0..MOST_SAMPLES {
        if attack_over() && round >= LEAST_SAMPLES {
            break;
        }
        let (thread, bytes) = agent.sample(round);
        connection.write_all(&bytes)?;
        sent.bytes.extend(bytes);
        *sent.cpu_ns.entry(thread).or_default() += INTERVAL_NS;
    }
    let goodbye = agent.message(Body::Goodbye(Goodbye { reason: "vm_death".into() }));
    connection.write_all(&goodbye)?;
    sent.bytes.extend(goodbye);
    connection.shutdown(Shutdown::Write)?;
    reader.join().map_err(|_| "the honest agent's reader panicked")??;
    Ok(sent)
}

/// Counts the sessions `sent` that `store` holds, partition by partition: those that have ended with the CPU time of
/// each thread, and those with all names.
pub fn check(store: &Store, sent: &[Sent]) -> Result<Counts, Box<dyn Error>> {
    let (Some(first), Some(last)) = (sent.first(), sent.last()) else { return Ok(Counts::default()) };
    let index = |session: u64| sent.binary_search_by_key(&session, |sent| sent.session).ok();
    let range_ns = FIRST_NS + first.number * STEP_NS..FIRST_NS + (last.number + 1) * STEP_NS;
    let scope = Scope { range_ns, sessions: &|session| index(session).is_some() };
    let mut cpu_ns: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); sent.len()];
    let (mut has_ended, mut is_named) = (vec![false; sent.len()], vec![true; sent.len()]);
    for view in store.views() {
        let mut stacks = Vec::new();
        let mut visit = |session, thread, stack, cell: profile::source::Sum| {
            if let Some(index) = index(session) {
                *cpu_ns[index].entry(thread).or_default() += cell.cpu_ns;
                stacks.push((index, stack));
            }
        };
        view.thread_stacks(&scope, &|_, _| true, &mut visit)?;
        let is_sent = |session| index(session).is_some();
        view.sessions(Extent::Account, &is_sent, &mut |id, session| {
            if let Some(index) = index(id) {
                has_ended[index] |= session.goodbye.is_some();
            }
        })?;
        with_dictionary(&view, |dictionary| {
            for (index, stack) in stacks {
                let suffix = format!("OfRelease{}", sent[index].number);
                let frames = dictionary.path(stack);
                is_named[index] &=
                    frames.iter().all(|&frame| dictionary.frame_text(frame).ends_with(&suffix));
            }
        })?;
    }
    let exact = sent
        .iter()
        .zip(&cpu_ns)
        .zip(has_ended)
        .filter(|((sent, cpu_ns), has_ended)| *has_ended && sent.cpu_ns == **cpu_ns);
    Ok(Counts {
        sessions: sent.len() as u64,
        exact: exact.count() as u64,
        named: is_named.into_iter().filter(|is_named| *is_named).count() as u64,
    })
}
