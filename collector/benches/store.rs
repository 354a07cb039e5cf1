//! Cost of the store: taking in real streams, and answering over an hour of a hundred JVMs.
//!
//! ```text
//! cargo bench -p collector --bench store -- ingest [FILE.tickwalk...]  [SAMPLES=20000000]
//! cargo bench -p collector --bench store -- query                     [JVMS=100 MINUTES=60 STACKS=4000]
//! ```
//!
//! CPU time is that of the whole process, so that other programs on the machine do not count. `ingest` also prints
//! the wall-clock rate for each processor it may use; `taskset -c 0` in front of the command makes that one. Without
//! files it replays those of `tests/recordings/`.

#[path = "../tests/support/recorded.rs"]
mod recorded;
#[path = "../tests/support/mod.rs"]
#[allow(dead_code, reason = "made for tests, each uses its part")]
mod support;

use std::collections::HashMap;
use std::env;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use collector::store::{Retention, Store};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use profile::api::question::answer;
use profile::source::recording::RecordingReader;
use proto::framing::{Checksums, FramedMessage};
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, Dictionary, Entries, FrameKind, Hello, SampleBatch, Thread};
use proto::version::{MAGIC, WIRE_VERSION};
use recorded::recorded;
use support::replay::{NS, Replay, time_ns};

/// Recordings that are replayed where no files are named.
const RECORDINGS: [&str; 4] = ["h2-25", "planted-17", "planted-25", "steady-25"];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.split_first() {
        Some((mode, files)) if mode == "ingest" => ingest(files),
        Some((mode, _)) if mode == "query" => query(),
        _ => println!("modes: ingest FILE..., query"),
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("own usage");
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(microseconds as u64)
}

fn framed(message: AgentMessage) -> FramedMessage {
    FramedMessage::encode(message, Checksums::Optional).expect("a message of an agent")
}

fn samples_in(message: &AgentMessage) -> u64 {
    match &message.body {
        Some(Body::Samples(batch)) => batch.thread.len() as u64,
        _ => 0,
    }
}

/// Repetitions of a recording that take ten minutes: a session of the benchmark.
fn repeats(replay: &Replay) -> u64 {
    (600 * NS / replay.length_ns).max(1)
}

/// The framed messages of a session's `repeat`, numbered on from `sequence`.
/// Only the first repeat has the introduction and the names, and only the last one has the end.
fn messages_of(replay: &Replay, repeat: u64, hello: &Hello, sequence: &mut u64) -> Vec<FramedMessage> {
    let is_due = |message: &&AgentMessage| match message.body {
        Some(Body::Hello(_) | Body::Dictionary(_)) => repeat == 0,
        Some(Body::Goodbye(_)) => repeat + 1 == repeats(replay),
        _ => true,
    };
    let due = replay.stream.iter().filter(is_due).map(|message| {
        let mut message = message.clone();
        if let Some(time_ns) = time_ns(&mut message) {
            *time_ns += repeat * replay.length_ns;
        }
        if let Some(Body::Hello(own)) = &mut message.body {
            own.clone_from(hello);
        }
        *sequence += 1;
        message.sequence = *sequence;
        framed(message)
    });
    due.collect()
}

fn hello(replay: &Replay, session: u64, round: u64) -> Hello {
    let hello = replay.hello();
    // A minute after the last one: what an agent sends when a JVM starts again.
    let wall_clock_ns = hello.wall_clock_ns + round * 60 * NS;
    Hello { session_id: session, wall_clock_ns, ..hello.clone() }
}

/// CPU time of the calling thread.
fn own_cpu() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("own clock"))
}

/// Replays each recording as sessions of its own, one after the other, until enough samples are stored.
fn ingest(files: &[String]) {
    let wanted = number("SAMPLES", 20_000_000);
    let directory = tempfile::tempdir_in(".").expect("directory beside the sources, on a real disk");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut streams: Vec<Vec<AgentMessage>> = files
        .iter()
        .map(|file| RecordingReader::open(Path::new(file)).expect("recording").collect())
        .collect();
    if streams.is_empty() {
        streams = RECORDINGS.map(recorded).into();
    }
    let replays: Vec<Replay> = streams.into_iter().map(Replay::new).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let done = AtomicU64::new(0);
    // When how many samples more were stored, and what making their messages took.
    let marks: Mutex<Vec<(Duration, u64)>> = Mutex::default();
    let making = AtomicU64::new(0);
    let (began, cpu_began) = (Instant::now(), cpu());
    std::thread::scope(|scope| {
        for (index, replay) in replays.iter().enumerate() {
            let (store, done, marks, making) = (&store, &done, &marks, &making);
            scope.spawn(move || {
                for round in 0u64.. {
                    let hello = hello(replay, (index as u64) << 32 | round, round);
                    let writer = store.session(&hello).expect("open store");
                    let mut sequence = 0;
                    for repeat in 0..repeats(replay) {
                        if done.load(Ordering::Relaxed) >= wanted {
                            return;
                        }
                        let cpu_began = own_cpu();
                        let messages = messages_of(replay, repeat, &hello, &mut sequence);
                        making.fetch_add((own_cpu() - cpu_began).as_nanos() as u64, Ordering::Relaxed);
                        // As a connection does: what one read of 64 KiB holds is appended together.
                        let mut rest = &messages[..];
                        while !rest.is_empty() {
                            let mut bytes = 0;
                            let fits = |message: &&FramedMessage| {
                                bytes += message.bytes.len();
                                bytes <= 64 << 10
                            };
                            let count = rest.iter().take_while(fits).count().max(1);
                            let (now, later) = rest.split_at(count);
                            writer.append(now.to_vec()).expect("stored");
                            rest = later;
                        }
                        let samples = replay.stream.iter().map(samples_in).sum();
                        done.fetch_add(samples, Ordering::Relaxed);
                        marks.lock().expect("no panic").push((began.elapsed(), samples));
                    }
                }
            });
        }
    });
    store.flush().expect("fold");
    let (wall, spent) = (began.elapsed(), cpu() - cpu_began);
    let status = store.status();
    let samples = status.samples as f64;
    println!(
        "{} samples of {} streams, {} commits, {} folds",
        status.samples,
        replays.len(),
        status.commits,
        status.folds
    );
    let without = spent - Duration::from_nanos(making.into_inner());
    println!(
        "{:.0} samples/s by the wall clock, {:.0} on each of {processors} processors; {:.0} samples/s of CPU time, {:.0} \
         without the making of messages",
        samples / wall.as_secs_f64(),
        samples / wall.as_secs_f64() / processors,
        samples / spent.as_secs_f64(),
        samples / without.as_secs_f64()
    );
    let mut rates = rates(&marks.into_inner().expect("no panic"));
    rates.sort_unstable_by(f64::total_cmp);
    if let (Some(least), Some(median)) = (rates.first(), rates.get(rates.len() / 2)) {
        println!(
            "in each of {} seconds: {least:.0} samples at least, {median:.0} in the median",
            rates.len()
        );
    }
    println!(
        "received {:.1} bytes a sample, stored {:.1}",
        status.received_bytes as f64 / samples,
        status.stored_bytes as f64 / samples
    );
    println!("dictionary in memory: {} bytes", status.dictionary_bytes);
    store.close().expect("fold");
}

/// Samples stored in each whole second.
fn rates(marks: &[(Duration, u64)]) -> Vec<f64> {
    let mut seconds = vec![0.0; marks.iter().map(|mark| mark.0.as_secs()).max().unwrap_or(0) as usize];
    for (at, samples) in marks {
        if let Some(second) = seconds.get_mut(at.as_secs() as usize) {
            *second += *samples as f64;
        }
    }
    seconds
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Stacks of 30 to 80 frames that share their callers, 20,000 of them, of which every process uses its part: the
/// definitions, and the numbers of the leaf nodes.
fn dictionary() -> (Dictionary, Vec<u32>) {
    let mut entries = Entries {
        first_string: 1,
        string: vec!["end_of_stack".into()],
        first_frame: 1,
        first_node: 1,
        node_parent: vec![0],
        node_frame: vec![1],
        ..Entries::default()
    };
    for number in 0..6000u32 {
        entries.string.push(format!("com.example.p{}.C{}.method{number}", number % 40, number % 700));
        let kind = if number % 4 == 0 { FrameKind::Native } else { FrameKind::Vm };
        entries.frame_kind.push(kind.into());
        entries.frame_method.push(0);
        entries.frame_bci.push(-1);
        entries.frame_line.push(0);
        entries.frame_symbol.push(number + 2);
        entries.frame_library.push(0);
    }
    let mut random = Random(1);
    let mut children: HashMap<(u32, u32), u32> = HashMap::new();
    let mut last: Vec<u32> = Vec::new();
    let stacks = (0..20_000)
        .map(|_| {
            // The next stack differs from the last one in its top.
            let shared = last.len().saturating_sub(1 + random.below(12) as usize);
            let depth = 30 + random.below(50) as usize;
            last.truncate(shared.min(depth));
            while last.len() < depth {
                last.push(random.below(6000) as u32 + 1);
            }
            last.iter().fold(1, |parent, &frame| {
                *children.entry((parent, frame)).or_insert_with(|| {
                    let number = entries.node_frame.len() as u32 + 1;
                    entries.node_parent.push(number - parent);
                    entries.node_frame.push(frame);
                    number
                })
            })
        })
        .collect();
    let threads =
        (1..=200).map(|id| Thread { id, name: format!("worker-{id}"), ..Thread::default() }).collect();
    (Dictionary { threads, entries: Some(entries) }, stacks)
}

/// An hour of many JVMs with 16 busy cores each: every minute some thousand stacks of each, with the CPU time of
/// 96,000 samples among them. Then the queries of a page of the UI.
fn query() {
    let (jvms, minutes, rows) = (number("JVMS", 100), number("MINUTES", 60), number("STACKS", 4000));
    let directory = tempfile::tempdir_in(".").expect("directory beside the sources, on a real disk");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let (definitions, stacks) = dictionary();
    let now_ns =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("time").as_nanos() as u64;
    let start_ns = (now_ns / (3600 * NS) - 2) * 3600 * NS;
    let mut random = Random(2);
    let began = Instant::now();
    for jvm in 0..jvms {
        let hello = Hello {
            magic: MAGIC,
            wire_version: WIRE_VERSION,
            session_id: jvm + 1,
            pid: 1000 + jvm as u32,
            command: format!("shop-{}.jar", jvm % 10),
            wall_clock_ns: start_ns,
            interval_ns: 10_000_000,
            ..Hello::default()
        };
        let writer = store.session(&hello).expect("open store");
        let mut sequence = 0;
        let mut send = |body| {
            sequence += 1;
            let message = framed(AgentMessage { sequence, body: Some(body) });
            writer.append(vec![message]).expect("stored");
        };
        send(Body::Hello(hello));
        send(Body::Dictionary(definitions.clone()));
        for minute in 0..minutes {
            let batch = SampleBatch {
                first_time_ns: minute * 60 * NS,
                time_delta_us: (0..rows).map(|row| if row == 0 { 0 } else { 59_000_000 / rows }).collect(),
                thread: (0..rows).map(|_| random.below(200) as u32 + 1).collect(),
                node: (0..rows)
                    .map(|_| {
                        // A few stacks are hot, most are rare.
                        let at = random.below(20_000) * random.below(20_000) / 20_000;
                        stacks[((at + jvm * 131) % 20_000) as usize]
                    })
                    .collect(),
                cpu_unit_ns: 16 * 60 * NS / rows,
                ..SampleBatch::default()
            };
            send(Body::Samples(batch));
        }
    }
    store.flush().expect("fold");
    println!(
        "{jvms} JVMs, {minutes} minutes, {rows} stacks a minute each, made in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    ask_all(&store, "minutes", start_ns, now_ns);
    store.maintain().expect("roll-ups");
    ask_all(&store, "hours", start_ns, now_ns);
    println!(
        "stored: {} bytes, dictionary in memory: {} bytes",
        store.status().stored_bytes,
        store.status().dictionary_bytes
    );
    store.close().expect("fold");
}

fn ask_all(store: &Store, level: &str, start_ns: u64, now_ns: u64) {
    let from = (start_ns / NS).to_string();
    let to = (start_ns / NS + 3600).to_string();
    let from_cut = (start_ns / NS + 1500).to_string();
    let questions: [(&str, &[(&str, &str)]); 8] = [
        ("flamegraph", &[]),
        ("flamegraph", &[("max_nodes", "100000")]),
        ("methods", &[]),
        ("methods", &[("process", "shop-3.jar")]),
        ("methods", &[("thread", "worker-17")]),
        ("threads", &[]),
        ("timeline", &[("by", "process")]),
        ("timeline", &[("by", "thread"), ("process", "1007")]),
    ];
    for (question, more) in questions {
        let mut best = (Duration::MAX, Duration::MAX, 0);
        for _ in 0..3 {
            let pairs = [("from", from.as_str()), ("to", to.as_str())];
            let pairs: Vec<(String, String)> =
                pairs.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let (began, cpu_began) = (Instant::now(), cpu());
            let answer = answer(store, question, &pairs, now_ns).expect("answer");
            best = best.min((cpu() - cpu_began, began.elapsed(), answer.bytes.len()));
        }
        println!(
            "{level}: {question} {more:?}: {:.3} s CPU, {:.3} s wall, {} bytes",
            best.0.as_secs_f64(),
            best.1.as_secs_f64(),
            best.2
        );
    }
    let pairs = [("from".to_owned(), from_cut), ("to".to_owned(), to)];
    let began = cpu();
    answer(store, "methods", &pairs, now_ns).expect("answer");
    println!("{level}: methods of the last 35 minutes: {:.3} s CPU", (cpu() - began).as_secs_f64());
}
