//! Early partitions, begun because the memory is full, and how sessions continue in them.

use std::io::Write;
use std::os::unix::net::UnixStream;

use proto::framing::FrameReader;
use proto::v1::collector_message::Body as Answer;
use proto::v1::{CollectorMessage, Counter, Lost, Statistics, ThreadAccount};

use super::entries::{define, of_stack, samples};
use super::*;
use crate::address::Address;
use crate::ingest::{Destination, Limits, Server};

/// Memory of dictionaries in these tests.
const LIMIT: usize = 4 << 20;

fn small_store(directory: &Path) -> Store {
    let store = Store::open(directory, Retention::default()).expect("new store");
    store.shared.current().expect("open").memory.write().dictionary.limit = LIMIT;
    store
}

/// Stores a session with `count` invented symbols; it has no connection after this returns.
fn invent(store: &Store, session: u64, count: usize) -> Agent {
    let mut liar = Agent::new(session);
    let names: Vec<String> = (0..count).map(|name| format!("invented {session} {name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let messages =
        [liar.hello(), define(&mut liar, of_stack(1, &names)), samples(&mut liar, count as u32, 0, 1)];
    append(store, &liar, &messages).expect("stored");
    liar
}

fn unknown_samples(store: &Store, session: u64) -> u64 {
    let of = |view: &View| view.names(|_, sessions| sessions.get(&session).map(|own| own.unknown_samples));
    store.views().iter().filter_map(of).max().expect("a session of the store")
}

#[test]
fn invented_symbols_begin_an_early_partition_and_honest_sessions_keep_theirs() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = small_store(directory.path());
    let mut steady = Agent::new(1);
    // A session is connected while it has a writer.
    let connection = store.session(&steady.hello).expect("open store");
    let messages = [steady.hello(), define(&mut steady, of_stack(1, &["steady"]))];
    append(&store, &steady, &messages).expect("stored");
    for round in 0..60 {
        invent(&store, 1000 + round, 4000);
        let message = samples(&mut steady, 2, round, 1);
        append(&store, &steady, &[message]).expect("stored");
        let mut newcomer = Agent::new(100 + round);
        let name = format!("newcomer {round}");
        let messages = [
            newcomer.hello(),
            define(&mut newcomer, of_stack(1, &[&name])),
            samples(&mut newcomer, 2, round, 1),
        ];
        append(&store, &newcomer, &messages).expect("stored");
        assert_eq!(unknown_samples(&store, 100 + round), 0, "{round}");
        let names = store.shared.current().expect("open").memory.read().dictionary.bytes();
        assert!(names <= LIMIT + 4096, "{names} bytes");
    }
    store.flush().expect("earlier requests are done");
    let status = store.status();
    assert!(status.early_partitions >= 5, "{status:?}");
    assert_eq!(status.partitions, status.early_partitions + 1);
    assert_eq!(unknown_samples(&store, 1), 0);
    let check = |store: &Store| {
        let found = sums(store, 0..3600);
        assert_eq!(found["steady"], 60 * INTERVAL_NS);
        (0..60).for_each(|round| assert_eq!(found[&format!("newcomer {round}")], INTERVAL_NS, "{round}"));
        assert_eq!(found.values().sum::<u64>(), 180 * INTERVAL_NS);
    };
    check(&store);
    // Without the memory of closed partitions.
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    assert!(store.status().dictionary_bytes <= LIMIT as u64 + (64 << 10), "{:?}", store.status());
    check(&store);
    drop(connection);
    store.close().expect("fold");
    check(&Store::open(directory.path(), Retention::default()).expect("all partitions"));
}

/// Returns an agent whose symbols were not copied into the second partition of the store, which has three of its
/// samples.
fn with_dropped_symbols(directory: &Path) -> (Store, Agent) {
    let store = small_store(directory);
    let mut agent = invent(&store, 7, 4000);
    let messages = [samples(&mut agent, 4000, 1, 2)];
    append(&store, &agent, &messages).expect("stored");
    // One early partition is enough. These agents' clocks make any session without new messages look silent for a
    // day.
    for session in (1000..1010).take_while(|_| store.status().early_partitions == 0) {
        invent(&store, session, 4000);
        store.flush().expect("earlier requests are done");
    }
    assert_eq!(store.status().early_partitions, 1);
    (store, agent)
}

#[test]
fn an_agent_with_dropped_symbols_resends_them_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, mut agent) = with_dropped_symbols(directory.path());
    let stored = Agent { hello: agent.hello.clone(), sequence: 2, next: 1 };
    let whole = |store: &Store| sums(store, 0..3600).values().sum::<u64>() / INTERVAL_NS;
    let before = whole(&store);
    let next = samples(&mut agent, 4000, 10, 1);
    assert_eq!(append(&store, &agent, std::slice::from_ref(&next)), Err(StoreError::SymbolsDropped));
    drop(store);
    let store = Store::open(directory.path(), Retention::default()).expect("the store after a crash");
    assert_eq!(append(&store, &agent, std::slice::from_ref(&next)), Err(StoreError::SymbolsDropped));
    // Each new connection is answered so until the agent goes on.
    for _ in 0..2 {
        let hello = first_message_again(&agent);
        assert_eq!(append(&store, &agent, &[hello]), Ok(1));
    }
    // First a stored message that was not acknowledged, then one from its window, then its symbols under new numbers.
    let repeated = Agent { sequence: 3, ..stored }.message(Body::Heartbeat(Default::default()));
    assert_eq!(append(&store, &agent, &[repeated]), Ok(4));
    let names = define(&mut agent, of_stack(9000, &["again"]));
    let messages = [next, names, samples(&mut agent, 9001, 20, 1)];
    assert_eq!(append(&store, &agent, &messages), Ok(7));
    let hello = first_message_again(&agent);
    assert_eq!(append(&store, &agent, &[hello]), Ok(7));
    assert_eq!((whole(&store), sums(&store, 0..3600)["again"]), (before + 2, INTERVAL_NS));
}

#[test]
fn an_agent_with_a_wrong_clock_continues_in_the_next_partition() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    agent.hello.wall_clock_ns = 0;
    let messages =
        [agent.hello(), define(&mut agent, of_stack(1, &["leaf"])), samples(&mut agent, 2, 100, 3)];
    append(&store, &agent, &messages).expect("stored");
    store.flush().expect("fold");
    upkeep::begin_early(&store.shared, DAY_NS / NS).expect("a partition");
    let message = samples(&mut agent, 2, 200, 4);
    append(&store, &agent, &[message]).expect("stored");
    store.views().last().expect("open").names(|_, sessions| {
        let session = &sessions[&1];
        assert_eq!((session.hello.command.as_str(), session.last_sequence), ("shop.jar", 4));
        assert_eq!((session.samples, session.unknown_samples), (7, 0));
    });
}

#[test]
fn connected_sessions_that_fill_the_memory_begin_a_partition_once_an_hour() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = small_store(directory.path());
    let mut connections = Vec::new();
    for session in 1..=20 {
        connections.push(store.session(&Agent::new(session).hello).expect("open store"));
        let mut agent = Agent::new(session);
        let names: Vec<String> = (0..4000).map(|name| format!("own {session} {name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let messages = [agent.hello(), define(&mut agent, of_stack(1, &names))];
        append(&store, &agent, &messages).expect("stored");
    }
    store.flush().expect("earlier requests are done");
    assert_eq!(store.status().early_partitions, 1);
    store.shared.early_start.lock().last_began = None;
    store.shared.early_start.lock().not_before = Instant::now();
    let hello = first_message_again(&Agent::new(1));
    append(&store, &Agent::new(1), &[hello]).expect("stored");
    store.flush().expect("earlier requests are done");
    assert_eq!(store.status().early_partitions, 2);
}

#[test]
fn memory_of_sessions_is_bounded_for_long_introductions() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let limit = 2 << 20;
    store.shared.current().expect("open").memory.write().session_limit.0 = limit;
    let introduce = |session| {
        let mut agent = Agent::new(session);
        agent.hello.command = "x".repeat(200 << 10);
        let hello = agent.hello();
        append(&store, &agent, &[hello])
    };
    for session in 0..100 {
        assert_eq!(introduce(session), Ok(1));
        let bytes = store.shared.current().expect("open").memory.read().session_bytes();
        assert!(bytes <= limit, "{bytes} bytes");
    }
    store.flush().expect("earlier requests are done");
    let status = store.status();
    assert!(status.early_partitions >= 10, "{status:?}");
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    assert!(store.status().session_bytes <= limit as u64);
    assert_eq!(store.views().iter().filter(|view| view.names(|_, all| all.contains_key(&1))).count(), 1);
    // If the next partition cannot begin, known sessions continue.
    prevent_early_partitions(&store);
    let turned_away = (100..120).find(|&session| introduce(session) == Err(StoreError::TooManySessions));
    let last = turned_away.expect("a limit") - 1;
    assert_eq!(store.status().sessions_turned_away, 1);
    let mut known = Agent::new(last);
    let messages = [known.hello(), define(&mut known, of_stack(1, &["leaf"])), samples(&mut known, 2, 0, 3)];
    assert_eq!(append(&store, &known, &messages), Ok(3));
}

#[test]
fn oversized_statistics_and_reasons_take_little_memory() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let stops = vec![Counter { name: "end_of_stack".into(), count: 7 }];
    let honest = Body::Statistics(Statistics { stops, ..Statistics::default() });
    let messages = [agent.hello(), agent.message(honest)];
    append(&store, &agent, &messages).expect("stored");
    let before = store.status();
    // Two bytes each when encoded, forty in memory.
    let lost = vec![Lost::default(); 1 << 20];
    let account = ThreadAccount { thread: 1, lost: lost.clone(), ..ThreadAccount::default() };
    let with_account = Body::Statistics(Statistics { threads: vec![account], ..Statistics::default() });
    let hostile = Body::Statistics(Statistics { lost, requests: 1, ..Statistics::default() });
    let reason = Body::Goodbye(Goodbye { reason: "ä".repeat(1 << 20) });
    let messages = [agent.message(hostile), agent.message(reason)];
    append(&store, &agent, &messages).expect("stored");
    let after = store.status();
    assert_eq!(after.dictionary_refused, before.dictionary_refused + 1);
    assert_eq!(after.session_bytes, before.session_bytes);
    store.views()[0].names(|_, sessions| {
        let statistics = sessions[&1].statistics.as_ref().expect("those of before");
        assert_eq!((statistics.stops[0].count, statistics.lost.len(), statistics.requests), (7, 0, 0));
        assert_eq!(sessions[&1].goodbye.as_ref().map(String::len), Some(1024));
    });
    // An account counts with its decoded size.
    let messages = [agent.message(with_account)];
    append(&store, &agent, &messages).expect("stored");
    assert!(store.status().session_bytes > before.session_bytes + (40 << 20), "{:?}", store.status());
}

#[test]
fn a_connection_with_dropped_symbols_is_rejected_and_the_next_one_resends_them() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Arc::new(small_store(&directory.path().join("store")));
    let socket = directory.path().join("socket");
    let destination = Destination::Store(Arc::clone(&store));
    let address = Address::Unix(socket.clone());
    let server = Server::start(&address, destination, Limits::default()).expect("server starts");
    let connect = || UnixStream::connect(&socket).expect("server listens");
    let send = |stream: &UnixStream, messages: &[(u64, Vec<u8>)]| -> Answer {
        messages.iter().for_each(|(_, framed)| { stream }.write_all(framed).expect("server reads"));
        let last = messages.last().map_or(0, |(sequence, _)| *sequence);
        let mut answers = FrameReader::new(stream);
        loop {
            let answer: CollectorMessage = answers.next().expect("well-formed").expect("an answer");
            match answer.body.expect("every answer has a body") {
                Answer::Acknowledgement(partly) if (2..last).contains(&partly.sequence) => {}
                answer => return answer,
            }
        }
    };
    // More symbols than are copied for connected sessions.
    let mut agent = Agent::new(1);
    let names: Vec<String> = (0..25_000).map(|name| format!("own {name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = connect();
    let hello = agent.hello();
    let acknowledged = |sequence| Answer::Acknowledgement(proto::v1::Acknowledgement { sequence });
    assert_eq!(send(&first, &[hello]), acknowledged(1));
    let messages = [define(&mut agent, of_stack(1, &names))];
    assert_eq!(send(&first, &messages), acknowledged(2));
    for session in 1000..1005 {
        invent(&store, session, 4000);
    }
    store.flush().expect("earlier requests are done");
    assert!(store.status().early_partitions > 0, "{:?}", store.status());
    let next = samples(&mut agent, 15_000, 0, 1);
    let Answer::Reject(reject) = send(&first, std::slice::from_ref(&next)) else { panic!("a rejection") };
    assert_eq!(reject.reason, "the symbols of the session were dropped; reconnect to resend them");
    let second = connect();
    assert_eq!(send(&second, &[first_message_again(&agent)]), acknowledged(1));
    let messages =
        [next, define(&mut agent, of_stack(40_000, &["again"])), samples(&mut agent, 40_001, 0, 1)];
    assert_eq!(send(&second, &messages), acknowledged(5));
    // The collector has corrected the clock, which was a century ahead.
    let answer = unloaded::query(&store, "methods", &[("frame", "again"), ("from", "0")]);
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(answer["total_ns"], INTERVAL_NS, "{answer}");
    drop((first, second));
    server.stop();
}
