//! Sends a collector millions of damaged messages while an honest agent streams beside them.
//!
//! ```sh
//! cargo run --release -p collector --example hostile -- 10000000
//! cargo run --release -p collector --example hostile -- 10000000 store
//! ```
//!
//! The first sends to a collector that records; it checks that messages are framed correctly and that decoding takes
//! bounded memory. The second sends to a store, which decodes every message completely: each connection continues the
//! sequence numbers of its session, so that messages are not dropped as repeated, and half of the sessions are those
//! of a real JVM.
//!
//! Fails if the collector dies, if CPU time or a symbol of an honest agent is missing (reported apart: the first is a
//! loss, the second a loss of resolution), if the damaged sessions cannot be read without a panic, or if memory
//! exceeds its limit; otherwise prints the figures.

#[path = "../../tests/support/recorded.rs"]
mod recorded;
#[path = "../../tests/support/mod.rs"]
mod support;

mod honest;
mod mutation;

use std::error::Error;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use collector::address::Address;
use collector::ingest::{Destination, Limits, Server};
use collector::store::{Retention, Store};
use honest::Counts;
use mutation::Random;
use profile::api::question::answer;
use profile::export::table::Report;
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::summary::Summary;
use profile::source::recording::Recording;
use proto::framing::encode_frame;
use proto::v1::AgentMessage;
use proto::v1::agent_message::Body;
use recorded::recorded;
use support::{Stream, small};

/// Resident memory allowed: the bound of `design/wire-format.md` for one hostile connection, twice for two at a time.
const MAX_RESIDENT_KIB: u64 = 800 << 10;
/// Resident memory allowed beside a store, whose dictionary grows by each name that a damaged message brings.
const MAX_RESIDENT_STORE_KIB: u64 = 2 << 20;
/// Sessions the damaged messages pretend to be, for a collector that records.
const SESSIONS: u64 = 64;
/// Connections after which an attacker of a store goes on as another session.
const CONNECTIONS_A_SESSION: u64 = 32;
/// Bytes after which a connection has sent enough.
const CONNECTION_BYTES: usize = 256 << 10;
/// Messages of a real JVM that are longer are not damaged, for the pace's sake.
const LONGEST: usize = 4 << 10;
/// The honest agent.
const HONEST: u64 = 0x0900_da9e;

/// Source of an attacker's messages.
enum Templates {
    /// Framed messages of several sessions with damaged bytes; sequence numbers restart with each connection.
    Fixed(Vec<Vec<Vec<u8>>>),
    /// Messages with new sessions and sequence numbers, changed contents, and sometimes damaged bytes.
    Fresh(Vec<Vec<AgentMessage>>),
}

impl Templates {
    fn new(is_store: bool) -> Self {
        if !is_store {
            return Templates::Fixed(
                (1..=SESSIONS).map(|session| support_stream(session).framed()).collect(),
            );
        }
        let is_used = |message: &&AgentMessage| {
            framed(message).len() <= LONGEST && !matches!(message.body, Some(Body::Goodbye(_)))
        };
        let streams = [small().messages().to_vec(), recorded("steady-25")];
        Templates::Fresh(streams.map(|stream| stream.iter().filter(is_used).cloned().collect()).into())
    }

    /// All bytes of an attacker's `number`th connection, and how many messages of it are damaged.
    fn connection(&self, seed: u64, number: u64, random: &mut Random) -> (Vec<u8>, u64) {
        let mut bytes = Vec::new();
        let mut count = 0;
        let mut survives = true;
        match self {
            Templates::Fixed(sessions) => {
                let messages = &sessions[random.below(sessions.len())];
                if random.below(20) != 0 {
                    bytes.clone_from(&messages[0]);
                }
                while survives && bytes.len() < CONNECTION_BYTES {
                    let mut framed = messages[random.below(messages.len())].clone();
                    survives = mutation::bytes(&mut framed, random);
                    bytes.extend(framed);
                    count += 1;
                }
            }
            Templates::Fresh(streams) => {
                let turn = number / CONNECTIONS_A_SESSION;
                let messages = &streams[turn as usize % streams.len()];
                let mut sequence = number % CONNECTIONS_A_SESSION * CONNECTION_BYTES as u64;
                while survives && bytes.len() < CONNECTION_BYTES {
                    let mut message =
                        messages[if count == 0 { 0 } else { random.below(messages.len()) }].clone();
                    if let Some(Body::Hello(hello)) = &mut message.body {
                        hello.session_id = seed ^ turn;
                    }
                    sequence += 1;
                    message.sequence = sequence;
                    mutation::meaning(&mut message, random);
                    let mut framed = framed(&message);
                    if count > 0 && random.below(200) == 0 {
                        survives = mutation::bytes(&mut framed, random);
                    }
                    bytes.extend(framed);
                    count += 1;
                }
            }
        }
        (bytes, count)
    }
}

fn framed(message: &AgentMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(message, &mut bytes).expect("a message of an agent");
    bytes
}

/// Sends damaged messages over as many connections as it takes.
fn attack(
    socket: &Path,
    seed: u64,
    wanted: u64,
    templates: &Templates,
    sent: &AtomicU64,
    connections: &AtomicU64,
) {
    let mut random = Random(seed);
    for number in 0.. {
        if sent.load(Ordering::Relaxed) >= wanted {
            return;
        }
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        connections.fetch_add(1, Ordering::Relaxed);
        let (bytes, count) = templates.connection(seed, number, &mut random);
        // The server may close before it has read everything.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        sent.fetch_add(count, Ordering::Relaxed);
    }
}

/// The small session under another name.
fn support_stream(session: u64) -> Stream {
    let mut stream = Stream::of_session(session);
    for message in small().messages().iter().skip(1) {
        if let Some(body) = message.body.clone() {
            stream.send(body);
        }
    }
    stream
}

fn resident_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Everything a person could ask of a damaged recording.
fn read_all(directory: &Path) -> Result<usize, Box<dyn Error>> {
    let mut read = 0;
    for entry in std::fs::read_dir(directory)? {
        let path: PathBuf = entry?.path();
        if path.extension().is_none_or(|extension| extension != "tickwalk") {
            continue;
        }
        let recording = Recording::read(&path)?;
        let summary = Summary::new(&ProcessProfile::whole(&recording)?);
        let _ = serde_json::to_string(&summary)?;
        let report = Report { verbose: true, ..Report::of_methods(20) };
        let _ = profile::export::table::report(&recording, &Selection::default(), report, 0)?;
        read += 1;
    }
    Ok(read)
}

/// The questions of a page, over everything that was stored; how many were answered.
fn ask_all(store: &Store) -> Result<usize, Box<dyn Error>> {
    store.flush()?;
    store.maintain()?;
    let questions = ["processes", "statistics", "methods", "flamegraph", "threads", "timeline"];
    for question in questions {
        answer(store, question, &[("from".into(), "0".into())], u64::MAX)
            .map_err(|error| format!("{question}: {error}"))?;
    }
    Ok(questions.len())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let wanted: u64 = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let is_store = arguments.next().is_some_and(|text| text == "store");
    let directory = tempfile::tempdir_in(".")?;
    let socket = directory.path().join("socket");
    let opened = || Store::open(&directory.path().join("store"), Retention::default()).map(Arc::new);
    let store = is_store.then(opened).transpose()?;
    let destination = match &store {
        Some(store) => Destination::Store(Arc::clone(store)),
        None => Destination::Directory(directory.path().to_owned()),
    };
    let server = Server::start(&Address::Unix(socket.clone()), destination, Limits::default())?;
    let templates = Templates::new(is_store);
    let (sent, connections) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let mut counts = Counts::default();
    // Queries of the store at the end.
    let mut all_sent = Vec::new();
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let attackers: Vec<_> = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]
            .map(|seed| {
                let (socket, templates) = (&socket, &templates);
                let (sent, connections) = (&sent, &connections);
                scope.spawn(move || attack(socket, seed, wanted, templates, sent, connections))
            })
            .into();
        while attackers.iter().any(|attacker| !attacker.is_finished()) {
            let session = HONEST + counts.sessions;
            let is_over = || attackers.iter().all(|attacker| attacker.is_finished());
            let mut sent = honest::stream(&socket, session, counts.sessions, is_over)?;
            counts.sessions += 1;
            if store.is_some() {
                // A store is queried at the end, when the last partition is folded and the first ones are long closed.
                sent.bytes = Vec::new();
                all_sent.push(sent);
                continue;
            }
            let path = directory.path().join(format!("4321-{session:016x}.tickwalk"));
            let is_whole = std::fs::read(&path)? == sent.bytes;
            std::fs::remove_file(&path)?;
            counts.exact += u64::from(is_whole);
            counts.named += u64::from(is_whole);
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    server.stop();
    let during = resident_peak_kib();
    let mut asking_s = 0.0;
    let read = match &store {
        Some(store) => {
            let began = Instant::now();
            let read = ask_all(store)?;
            asking_s = began.elapsed().as_secs_f64();
            counts = honest::check(store, &all_sent)?;
            read
        }
        None => read_all(directory.path())?,
    };
    let Counts { sessions, exact, named } = counts;
    println!(
        "{} damaged messages over {} connections in {seconds:.0} s; of {sessions} honest sessions {exact} have their CPU \
         time by thread, {named} all of their names; {read} {} without a panic; {} MiB resident at most, {} MiB with that",
        sent.into_inner(),
        connections.into_inner(),
        if is_store { "questions answered" } else { "damaged recordings read" },
        during >> 10,
        resident_peak_kib() >> 10
    );
    if let Some(store) = &store {
        let status = store.status();
        println!(
            "store: {} messages, {} samples, {} bytes, dictionary {} MiB, {} partitions, {} begun early, {} entries refused, {} dictionaries read again; {asking_s:.0} s for the questions, {} s after the attack",
            status.messages,
            status.samples,
            status.stored_bytes,
            status.dictionary_bytes >> 20,
            status.partitions,
            status.early_partitions,
            status.dictionary_refused,
            status.dictionaries_read,
            start.elapsed().as_secs() - seconds as u64
        );
    }
    if exact != sessions {
        return Err("CPU time of an honest session was lost".into());
    }
    if named != sessions {
        return Err("an honest session lacks names".into());
    }
    if resident_peak_kib() > if is_store { MAX_RESIDENT_STORE_KIB } else { MAX_RESIDENT_KIB } {
        return Err("memory was not bounded".into());
    }
    Ok(())
}
