//! Tests of the guarantees of the store: acknowledged messages are never lost nor stored twice, and sums are
//! preserved.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::framing::{Checksums, FramedMessage, encode_frame};
use proto::v1::{
    AgentMessage, Dictionary as Definitions, Entries, FrameKind, Goodbye, SampleBatch, Thread,
    agent_message::Body,
};
use proto::version::{MAGIC, WIRE_VERSION};

mod clocks;
mod damage;
mod early_partitions;
pub(super) mod entries;
mod files;
mod folding;
mod handover;
pub(super) mod quota;
mod retention;
mod tally;
mod unloaded;

use super::*;
use profile::dictionary::Dictionary;
use profile::session::Session;
use profile::source::Sum;
use profile::source::{Extent, Scope, Threads, with_dictionary};

/// 2100-01-01, a whole day. Partitions that tests begin at simulated times sort after those that begin at the current
/// time.
const DAY_NS: u64 = 4_102_444_800_000_000_000;
const NS: u64 = 1_000_000_000;
const INTERVAL_NS: u64 = 10_000_000;

/// An agent that sends native frames.
struct Agent {
    hello: Hello,
    sequence: u64,
    /// Next free number of strings, frames and nodes.
    next: u32,
}

impl Agent {
    fn new(session_id: u64) -> Agent {
        let hello = Hello {
            magic: MAGIC,
            wire_version: WIRE_VERSION,
            session_id,
            wall_clock_ns: DAY_NS,
            interval_ns: INTERVAL_NS,
            command: "shop.jar".into(),
            ..Hello::default()
        };
        Agent { hello, sequence: 0, next: 1 }
    }

    fn message(&mut self, body: Body) -> (u64, Vec<u8>) {
        self.sequence += 1;
        let mut bytes = Vec::new();
        let message = AgentMessage { sequence: self.sequence, body: Some(body) };
        encode_frame(&message, &mut bytes).expect("a short message");
        (self.sequence, bytes)
    }

    fn hello(&mut self) -> (u64, Vec<u8>) {
        let hello = self.hello.clone();
        self.message(Body::Hello(hello))
    }

    /// Defines a stack, leaf first, and four threads; returns the number of the stack and the message.
    fn stack(&mut self, symbols: &[&str]) -> (u32, (u64, Vec<u8>)) {
        let entries = entries::of_stack(self.next, symbols);
        let stack = self.next + symbols.len() as u32;
        self.next = stack + 1;
        let threads =
            (1..=4).map(|id| Thread { id, name: format!("worker-{id}"), ..Thread::default() }).collect();
        (stack, self.message(Body::Dictionary(Definitions { threads, entries: Some(entries) })))
    }

    /// One sample a second, threads 1 to 4 in turn.
    fn samples(&mut self, stack: u32, from_s: u64, count: u64) -> (u64, Vec<u8>) {
        let batch = SampleBatch {
            first_time_ns: from_s * NS,
            time_delta_us: (0..count).map(|row| if row == 0 { 0 } else { 1_000_000 }).collect(),
            thread: (0..count).map(|row| (row % 4) as u32 + 1).collect(),
            node: vec![stack; count as usize],
            cpu_unit_ns: INTERVAL_NS,
            ..SampleBatch::default()
        };
        self.message(Body::Samples(batch))
    }
}

impl Agent {
    /// Returns samples that do not compress, so that files grow.
    fn noise(&mut self, stack: u32, seed: u64, count: u64) -> (u64, Vec<u8>) {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 40
        };
        let batch = SampleBatch {
            time_delta_us: (0..count).map(|_| random() % 1_000).collect(),
            thread: vec![1; count as usize],
            node: vec![stack; count as usize],
            cpu_unit_ns: INTERVAL_NS,
            ..SampleBatch::default()
        };
        self.message(Body::Samples(batch))
    }
}

impl View {
    /// Calls `read` with the dictionary and all sessions.
    fn names<R>(&self, read: impl FnOnce(&Dictionary, &BTreeMap<u64, Session>) -> R) -> R {
        let mut sessions = BTreeMap::new();
        let mut visit = |id, session: &Session| drop(sessions.insert(id, session.clone()));
        self.sessions(Extent::Threads, &|_| true, &mut visit).expect("readable");
        with_dictionary(self, |dictionary| read(dictionary, &sessions)).expect("readable")
    }
}

/// Prevents early partitions, as a full disk does.
fn prevent_early_partitions(store: &Store) {
    store.shared.early_start.lock().not_before += Duration::from_secs(86_400);
}

fn append(store: &Store, agent: &Agent, messages: &[(u64, Vec<u8>)]) -> Result<u64, StoreError> {
    let writer = store.session(&agent.hello).expect("open store");
    let decode = |(_, bytes): &(u64, Vec<u8>)| FramedMessage::decode(bytes, Checksums::Optional);
    writer.append(messages.iter().map(|message| decode(message).expect("a message")).collect())
}

/// Checks that a query of selected threads returns the same rows as a query of all threads filtered afterwards.
fn check_skipping(view: &View, scope: &Scope<'_>) {
    for is_selected in [|_, thread| thread % 2 == 0, |_, thread| thread % 2 == 1] {
        let (mut some, mut all) = (Vec::new(), Vec::new());
        let row = |session, thread, stack, cell: Sum| (session, thread, stack, cell.cpu_ns, cell.samples);
        view.thread_stacks(scope, &is_selected, &mut |a, b, c, d| some.push(row(a, b, c, d)))
            .expect("readable");
        view.thread_stacks(scope, &|_, _| true, &mut |a, b, c, d| all.push(row(a, b, c, d)))
            .expect("readable");
        all.retain(|&(session, thread, ..)| is_selected(session, thread));
        assert_eq!(some, all);
    }
}

/// Returns CPU time by leaf symbol in a range of seconds of the day, and checks that all three kinds of sums agree.
fn sums(store: &Store, range_s: std::ops::Range<u64>) -> BTreeMap<String, u64> {
    let range_ns = DAY_NS + range_s.start * NS..DAY_NS + range_s.end * NS;
    let scope = Scope { range_ns, sessions: &|_| true };
    let mut by_stack: BTreeMap<String, u64> = BTreeMap::new();
    let (mut whole, mut by_thread, mut by_time) = (0, 0, 0);
    for view in store.views() {
        let mut rows = Vec::new();
        view.stacks(&scope, &mut |_, stack, cell| rows.push((stack, cell.cpu_ns))).expect("readable");
        view.thread_stacks(&scope, &|_, _| true, &mut |_, _, _, cell| by_thread += cell.cpu_ns)
            .expect("readable");
        view.times(&scope, Threads::Together, &mut |_, _, _, cpu_ns| by_time += cpu_ns).expect("readable");
        check_skipping(&view, &scope);
        view.names(|dictionary, _| {
            for (stack, cpu_ns) in rows {
                let frames = dictionary.path(stack);
                let leaf =
                    frames.first().map_or("?".into(), |&frame| dictionary.frame_text(frame).into_owned());
                *by_stack.entry(leaf).or_default() += cpu_ns;
                whole += cpu_ns;
            }
        });
    }
    assert_eq!((by_thread, by_time), (whole, whole), "sums by thread and by time in {range_s:?}");
    by_stack
}

fn expect(store: &Store, range_s: std::ops::Range<u64>, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> =
        expected.iter().map(|&(name, samples)| (name.into(), samples * INTERVAL_NS)).collect();
    assert_eq!(sums(store, range_s.clone()), expected, "{range_s:?}");
}

#[test]
fn acknowledged_messages_survive_and_are_stored_once() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut agent = Agent::new(1);
    let mut messages = vec![agent.hello()];
    let (stack, definitions) = agent.stack(&["leaf", "root"]);
    messages.push(definitions);
    messages.push(agent.samples(stack, 0, 100));
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    assert_eq!(append(&store, &agent, &messages), Ok(3));
    assert_eq!(append(&store, &agent, &messages), Ok(3));
    expect(&store, 0..3600, &[("leaf", 100)]);
    assert_eq!(Store::open(directory.path(), Retention::default()).err(), Some(StoreError::InUse));
    // Dropped without a fold, so the next store reads the journal.
    drop(store);
    let store = Store::open(directory.path(), Retention::default()).expect("store with a journal");
    expect(&store, 0..3600, &[("leaf", 100)]);
    store.flush().expect("fold");
    expect(&store, 0..3600, &[("leaf", 100)]);
    drop(store);
    let store = Store::open(directory.path(), Retention::default()).expect("store with blocks");
    assert_eq!(append(&store, &agent, &messages), Ok(3));
    let more = agent.samples(stack, 100, 10);
    assert_eq!(append(&store, &agent, &[more]), Ok(4));
    expect(&store, 0..3600, &[("leaf", 110)]);
    // Parts of minutes come from single samples.
    expect(&store, 30..75, &[("leaf", 45)]);
    store.views()[0].names(|_, sessions| {
        assert_eq!(sessions[&1].samples, 110);
        assert_eq!(sessions[&1].missing_messages, 0);
        assert_eq!(sessions[&1].thread(2).map(|thread| thread.name.as_str()), Some("worker-2"));
    });
    store.close().expect("last fold");
}

#[test]
fn a_full_disk_stops_acknowledgements_until_there_is_space() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    assert_eq!(append(&store, &agent, &[hello, definitions]), Ok(2));
    quota::set(directory.path(), store.status().stored_bytes);
    let mut refused = None;
    let mut kept = 0;
    for round in 0..1000u64 {
        let message = agent.noise(stack, round, 20_000);
        match append(&store, &agent, std::slice::from_ref(&message)) {
            Ok(sequence) => {
                assert_eq!(sequence, message.0);
                kept += samples_in(&message.1);
            }
            Err(error) => {
                refused = Some((error, message));
                break;
            }
        }
    }
    let (error, message) = refused.expect("the quota is reached");
    assert_eq!(error, StoreError::Full);
    assert_eq!(store.status().failing, Some(StoreError::Full));
    assert!(append(&store, &agent, std::slice::from_ref(&message)).is_err(), "still full");
    // A reconnecting agent repeats a stored message; its success does not end the failure.
    let known = first_message_again(&agent);
    for _ in 0..3 {
        let answer = append(&store, &agent, std::slice::from_ref(&known));
        assert!(matches!(answer, Ok(_) | Err(StoreError::Full)), "{answer:?}");
        assert_eq!(store.status().failing, Some(StoreError::Full));
    }
    let stored = |store: &Store| sums(store, 0..86_400).values().sum::<u64>() / INTERVAL_NS;
    assert_eq!(stored(&store), kept, "exactly the acknowledged samples");
    quota::set(directory.path(), u64::MAX);
    assert_eq!(append(&store, &agent, std::slice::from_ref(&message)), Ok(message.0));
    assert_eq!(store.status().failing, None);
    kept += samples_in(&message.1);
    assert_eq!(stored(&store), kept);
    store.close().expect("last fold");
    let store = Store::open(directory.path(), Retention::default()).expect("store after a full disk");
    assert_eq!(stored(&store), kept);
}

/// Returns the first message of `agent` again.
fn first_message_again(agent: &Agent) -> (u64, Vec<u8>) {
    Agent { hello: agent.hello.clone(), sequence: 0, next: 1 }.hello()
}

fn samples_in(framed: &[u8]) -> u64 {
    let message: AgentMessage = proto::framing::decode_frame(framed).expect("own message");
    match message.body {
        Some(Body::Samples(batch)) => batch.thread.len() as u64,
        _ => 0,
    }
}

#[test]
fn roll_ups_keep_the_sums_and_late_samples() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    let early = agent.samples(stack, 0, 3600 + 1800);
    append(&store, &agent, &[hello, definitions, early]).expect("stored");
    store.flush().expect("fold");
    let partition = store.shared.current().expect("open");
    assert_eq!(partition.roll(Level::Hour, DAY_NS / NS + 5400), Ok(1), "one hour is over");
    expect(&store, 0..86_400, &[("leaf", 5400)]);
    expect(&store, 0..3600, &[("leaf", 3600)]);
    expect(&store, 600..4200, &[("leaf", 3600)]);
    let late = agent.samples(stack, 100, 50);
    append(&store, &agent, &[late]).expect("stored");
    store.flush().expect("fold");
    expect(&store, 0..3600, &[("leaf", 3650)]);
    let scope = Scope { range_ns: DAY_NS..DAY_NS + 3600 * NS, sessions: &|_| true };
    let mut threads = BTreeMap::new();
    let mut cells = Vec::new();
    for view in store.views() {
        view.times(&scope, Threads::Together, &mut |_, thread, cell_s, _| {
            threads.insert(thread, ());
            cells.push(cell_s.end - cell_s.start);
        })
        .expect("readable");
        view.names(|_, sessions| {
            for &thread in threads.keys() {
                assert_eq!(sessions[&1].thread(thread).map(|thread| thread.name.as_str()), Some("worker-#"));
            }
        });
    }
    assert!(cells.iter().all(|&width_s| width_s == 60), "cells of an hour are minutes");
    drop(partition);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("store with roll-ups");
    store.views()[0].names(|_, sessions| {
        for &thread in threads.keys() {
            assert_eq!(sessions[&1].thread(thread).map(|thread| thread.name.as_str()), Some("worker-#"));
        }
    });
}

#[test]
fn a_session_continues_in_a_new_partition_and_old_ones_expire() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let day_s = DAY_NS / NS;
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let (mut agent, mut gone) = (Agent::new(1), Agent::new(2));
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf", "root"]));
    let first = agent.samples(stack, 0, 60);
    append(&store, &agent, &[hello, definitions, first]).expect("stored");
    let messages = [gone.hello(), gone.stack(&["other"]).1, gone.message(Body::Goodbye(Goodbye::default()))];
    append(&store, &gone, &messages).expect("stored");
    store.shared.partitions.read()[0].coverage.write().created_s = day_s;
    store.flush().expect("fold");
    upkeep::run(&store.shared, day_s + 80_000).expect("upkeep");
    assert_eq!(store.status().partitions, 1, "not a day old yet");
    upkeep::run(&store.shared, day_s + 86_400).expect("upkeep");
    assert_eq!(store.status().partitions, 2);
    // The stack was defined before the new partition began.
    let second = agent.samples(stack, 86_400, 30);
    assert_eq!(append(&store, &agent, &[second]), Ok(4));
    store.flush().expect("fold");
    expect(&store, 86_400..90_000, &[("leaf", 30)]);
    expect(&store, 0..90_000, &[("leaf", 90)]);
    let views = store.views();
    views[1].names(|dictionary, sessions| {
        assert_eq!(sessions.keys().collect::<Vec<_>>(), [&1], "ended sessions are not copied");
        assert_eq!(sessions[&1].unknown_samples, 0);
        assert_eq!(dictionary.stack_count(), 2, "the unknown one and the one in use");
    });
    drop(views);
    // First resolution is lowered, then everything is deleted.
    let samples_s = Retention::default().samples.as_secs();
    upkeep::run(&store.shared, day_s + samples_s + 3600).expect("upkeep");
    let views = store.views();
    assert!(!views[0].has_samples() && views[1].has_samples());
    expect(&store, 0..60, &[("leaf", 60)]);
    upkeep::run(&store.shared, day_s + Retention::default().hours.as_secs() + 3600).expect("upkeep");
    expect(&store, 0..86_400, &[("leaf", 60)]);
    let partitions = store.status().partitions;
    upkeep::run(&store.shared, day_s + Retention::default().age.as_secs() + 3600).expect("upkeep");
    assert!(store.status().partitions < partitions);
    expect(&store, 0..86_400, &[]);
    drop(views);
    store.close().expect("fold");
}

#[test]
fn oldest_partitions_are_removed_above_the_size_limit() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let retention = Retention { bytes: 3 << 18, ..Retention::default() };
    let store = Store::open(directory.path(), retention).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    append(&store, &agent, &[hello, definitions]).expect("stored");
    for round in 0..4 {
        let message = agent.samples(stack, round * 600, 600);
        append(&store, &agent, &[message]).expect("stored");
        store.flush().expect("fold");
        upkeep::run(&store.shared, DAY_NS / NS + round * 600).expect("upkeep");
    }
    assert!(store.status().partitions <= 2, "{:?}", store.status());
    let oldest = sums(&store, 0..600);
    assert!(oldest.is_empty(), "the first ten minutes are gone: {oldest:?}");
}

#[test]
fn agents_cannot_redefine_each_others_numbers() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let (mut agent, mut liar) = (Agent::new(1), Agent::new(2));
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    let lie = Entries {
        first_string: 1,
        string: vec!["unreadable".into()],
        first_node: stack,
        node_parent: vec![0],
        node_frame: vec![1],
        ..Entries::default()
    };
    let messages = [liar.hello(), entries::define(&mut liar, lie), liar.samples(stack, 0, 5)];
    append(&store, &liar, &messages).expect("stored");
    let samples = agent.samples(stack, 0, 10);
    append(&store, &agent, &[hello, definitions, samples]).expect("stored");
    let mut stops = BTreeMap::new();
    let scope = Scope { range_ns: 0..u64::MAX, sessions: &|_| true };
    for view in store.views() {
        let mut rows = Vec::new();
        view.stacks(&scope, &mut |session, stack, _| rows.push((session, stack))).expect("readable");
        view.names(|dictionary, _| {
            for (session, stack) in rows {
                stops.insert(session, dictionary.string(dictionary.stack(stack).stop).to_owned());
            }
        });
    }
    assert_eq!(stops[&1], "end_of_stack");
    assert_eq!(stops[&2], "unreadable");
}

/// Appends a minute of samples for each pair of session and clock time.
fn append_a_minute_each(store: &Store, sessions: &[(u64, u64)]) {
    for &(session, wall_clock_ns) in sessions {
        let mut agent = Agent::new(session);
        agent.hello.wall_clock_ns = wall_clock_ns;
        let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
        let samples = agent.samples(stack, 0, 60);
        append(store, &agent, &[hello, definitions, samples]).expect("stored");
    }
}

#[test]
fn empty_hours_of_wrong_clocks_are_skipped() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    append_a_minute_each(&store, &[(1, 0), (2, DAY_NS)]);
    store.flush().expect("fold");
    let partition = store.shared.current().expect("open");
    assert_eq!(partition.roll(Level::Hour, DAY_NS / NS + 3600), Ok(2), "not the half million hours between");
    assert_eq!(partition.roll(Level::Hour, DAY_NS / NS + 3600), Ok(0));
    expect(&store, 0..3600, &[("leaf", 60)]);
}

#[test]
fn clocks_at_the_largest_time_hide_no_samples() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    append_a_minute_each(&store, &[(1, u64::MAX - 120 * NS), (2, DAY_NS), (3, u64::MAX)]);
    store.flush().expect("fold");
    expect(&store, 0..3600, &[("leaf", 60)]);
    let view = store.views().remove(0);
    let whole = view.range_ns();
    assert_eq!((whole.start, whole.end), (DAY_NS, u64::MAX));
    let scope = Scope { range_ns: whole, sessions: &|_| true };
    let mut found = 0;
    view.stacks(&scope, &mut |_, _, cell| found += cell.samples).expect("readable");
    assert_eq!(found, 180);
    let partition = store.shared.current().expect("open");
    for level in Level::COARSE {
        partition.roll(level, u64::MAX).expect("roll-ups");
    }
    expect(&store, 0..3600, &[("leaf", 60)]);
    found = 0;
    view.stacks(&scope, &mut |_, _, cell| found += cell.samples).expect("readable");
    assert_eq!(found, 180);
}

#[test]
fn huge_counts_saturate() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    let unknown = stack ^ 1;
    let batch = SampleBatch {
        thread: vec![1; 4],
        node: vec![stack, stack, unknown, unknown],
        cpu_unit_ns: u64::MAX,
        count: vec![u64::MAX; 4],
        ..SampleBatch::default()
    };
    let batch = agent.message(Body::Samples(batch));
    append(&store, &agent, &[hello, definitions, batch]).expect("stored");
    store.flush().expect("fold");
    store.views()[0].names(|_, sessions| {
        assert_eq!((sessions[&1].samples, sessions[&1].unknown_samples), (u64::MAX, u64::MAX));
    });
    let more = agent.samples(stack, 1, 1);
    assert_eq!(append(&store, &agent, &[more]), Ok(4));
}

#[test]
fn failing_does_not_wait_for_a_fold() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let partition = store.shared.current().expect("open");
    // A fold holds this lock while it commits.
    let memory = partition.memory.write();
    assert_eq!(store.failing(), None);
    drop(memory);
}
