//! Sends a collector millions of damaged messages while an honest agent streams beside them.
//!
//! ```sh
//! cargo run --release -p collector --example hostile -- 10000000
//! ```
//!
//! Ends with an error if the collector dies, if the honest agent's recording is not what it sent, if a damaged recording
//! cannot be read without a panic, or if memory exceeds its bound; otherwise prints what happened.

#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use collector::address::Address;
use collector::ingest::{Destination, Limits, Server};
use collector::profile::Profile;
use collector::query::top::{Order, methods};
use collector::summary::Summary;
use support::{Stream, small};

/// Resident memory allowed: the bound of `design/wire-format.md` for one hostile connection, twice for two at a time.
const MAX_RESIDENT_KIB: u64 = 800 << 10;
/// Sessions the damaged messages pretend to be.
const SESSIONS: u64 = 64;
/// The honest agent.
const HONEST: u64 = 0x0900_da9e;

/// Numbers without a pattern, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Damages one framed message; true if the connection is likely to survive it.
fn damage(framed: &mut Vec<u8>, random: &mut Random) -> bool {
    let length = framed.len();
    match random.below(16) {
        // Inside the protobuf message: often still valid, with other values.
        0..=9 => {
            for _ in 0..=random.below(3) {
                let at = 5 + random.below(length - 5);
                framed[at] ^= 1 << random.below(8);
            }
            true
        }
        10 => {
            let at = 5 + random.below(length - 5);
            framed[at..].fill(0xff);
            true
        }
        // The length says more or less than there is.
        11 => {
            framed[1 + random.below(4)] ^= 1 << random.below(8);
            false
        }
        12 => {
            framed.truncate(random.below(length));
            false
        }
        13 => {
            let garbage = random.below(200);
            framed.extend(std::iter::repeat_with(|| random.next() as u8).take(garbage));
            false
        }
        // A list as long as the message may be, of empty entries: the largest growth in decoding.
        14 if random.below(2000) == 0 => {
            let mut body = vec![0x1a, 0, 0, 0, 0];
            let entries = 1 << 20;
            body[1..].copy_from_slice(&[0x80 | (entries * 2) as u8 & 0x7f, 0x80, 0x80, 0x01]);
            body.extend([0x0a, 0x00].repeat(entries));
            framed.truncate(1);
            framed.extend((body.len() as u32).to_be_bytes());
            framed.extend(body);
            false
        }
        _ => {
            framed[0] = random.next() as u8;
            false
        }
    }
}

/// Sends damaged messages over as many connections as it takes.
fn attack(socket: &Path, seed: u64, wanted: u64, sent: &AtomicU64, connections: &AtomicU64) {
    let mut random = Random(seed);
    let templates: Vec<Vec<Vec<u8>>> =
        (1..=SESSIONS).map(|session| support_stream(session).framed()).collect();
    while sent.load(Ordering::Relaxed) < wanted {
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        connections.fetch_add(1, Ordering::Relaxed);
        let messages = &templates[random.below(templates.len())];
        let mut bytes = if random.below(20) == 0 { Vec::new() } else { messages[0].clone() };
        let mut count = 0;
        let mut survives = true;
        while survives && bytes.len() < 256 << 10 {
            let mut framed = messages[random.below(messages.len())].clone();
            survives = damage(&mut framed, &mut random);
            bytes.extend(framed);
            count += 1;
        }
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

/// Streams an honest session slowly, as long as the attack lasts; what it sent.
fn honest(socket: &Path, attack_over: impl Fn() -> bool) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut session = Stream::of_session(HONEST);
    session.thread(1, "main", proto::v1::ThreadKind::Java);
    let mut connection = UnixStream::connect(socket)?;
    let mut sent = Vec::new();
    let mut answers = connection.try_clone()?;
    let reader = std::thread::spawn(move || answers.read_to_end(&mut Vec::new()));
    let mut rounds = 0;
    while !attack_over() || rounds < 100 {
        let stack = session.java_stack(&["a/Main.main", &format!("a/B.m{}", rounds % 500)]);
        session.sample(1, stack, 10_000_000);
        session.flush();
        let framed = session.framed().concat();
        connection.write_all(&framed[sent.len()..])?;
        sent = framed;
        rounds += 1;
        if rounds % 1000 == 0 {
            // Its own list of messages grows; a new agent takes over where it matters: on the wire.
            break;
        }
    }
    session.goodbye();
    let framed = session.framed().concat();
    connection.write_all(&framed[sent.len()..])?;
    connection.shutdown(Shutdown::Write)?;
    reader.join().map_err(|_| "the honest agent's reader panicked")??;
    Ok(framed)
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
        let profile = Profile::read(&path)?;
        let summary = Summary::new(&profile);
        let _ = serde_json::to_string(&summary)?;
        let _ = methods(&profile, Order::TotalTime);
        let _ = collector::export::table::report(&profile, &[Order::SelfTime], 20);
        read += 1;
    }
    Ok(read)
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: u64 = std::env::args().nth(1).map_or(Ok(200_000), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("socket");
    let destination = Destination::Directory(directory.path().to_owned());
    let server = Server::start(&Address::Unix(socket.clone()), destination, Limits::default())?;
    let (sent, connections) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let (mut sessions, mut whole) = (0, 0);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let attackers: Vec<_> = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]
            .map(|seed| {
                let (socket, sent, connections) = (&socket, &sent, &connections);
                scope.spawn(move || attack(socket, seed, wanted, sent, connections))
            })
            .into();
        while attackers.iter().any(|attacker| !attacker.is_finished()) {
            let expected = honest(&socket, || attackers.iter().all(|attacker| attacker.is_finished()))?;
            let path = directory.path().join(format!("4321-{HONEST:016x}.tickwalk"));
            sessions += 1;
            whole += u64::from(std::fs::read(&path)? == expected);
            // The next honest agent has the same name, and the collector would take it for a reconnect.
            std::fs::remove_file(&path)?;
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    server.stop();
    let read = read_all(directory.path())?;
    let resident = resident_peak_kib();
    println!(
        "{} damaged messages over {} connections in {seconds:.0} s; {whole} of {sessions} honest sessions whole; \
         {read} damaged recordings read; {} MiB resident at most",
        sent.into_inner(),
        connections.into_inner(),
        resident >> 10
    );
    if whole != sessions {
        return Err("an honest session was disturbed".into());
    }
    if resident > MAX_RESIDENT_KIB {
        return Err("memory was not bounded".into());
    }
    Ok(())
}
