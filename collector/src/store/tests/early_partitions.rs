//! Partitions whose memory fills before their time, and what becomes of sessions then.

use std::io::Write;
use std::os::unix::net::UnixStream;

use proto::framing::FrameReader;
use proto::v1::collector_message::Body as Answer;
use proto::v1::{CollectorMessage, Counter, Lost, Statistics, ThreadAccount};

use super::entries::{define, of_stack, samples};
use super::*;
use crate::address::Address;
use crate::ingest::{Destination, Limits, Server};

/// Memory for names in these tests.
const LIMIT: usize = 4 << 20;

fn small_store(directory: &Path) -> Store {
    let store = Store::open(directory, Retention::default()).expect("new store");
    store.shared.current().expect("open").memory.write().dictionary.limit = LIMIT;
    store
}

/// A session that makes up `count` names; not there any more when this returns.
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
fn invented_names_begin_the_next_partition_and_honest_sessions_keep_theirs() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = small_store(directory.path());
    let mut steady = Agent::new(1);
    // As long as there is a writer, there is a connection.
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
    store.flush().expect("whatever the writer was asked for is done");
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
    // Without what closed partitions have in memory.
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    assert!(store.status().dictionary_bytes <= LIMIT as u64 + (64 << 10), "{:?}", store.status());
    check(&store);
    drop(connection);
    store.close().expect("fold");
    check(&Store::open(directory.path(), Retention::default()).expect("all partitions"));
}

/// An agent whose names did not go along into the second partition of a store; its stored samples are three.
fn forgotten(directory: &Path) -> (Store, Agent) {
    let store = small_store(directory);
    let mut agent = invent(&store, 7, 4000);
    let messages = [samples(&mut agent, 4000, 1, 2)];
    append(&store, &agent, &messages).expect("stored");
    // One is enough: by the clock of these agents, whoever was not heard of since may be silent for a day.
    for session in (1000..1010).take_while(|_| store.status().early_partitions == 0) {
        invent(&store, session, 4000);
        store.flush().expect("whatever the writer was asked for is done");
    }
    assert_eq!(store.status().early_partitions, 1);
    (store, agent)
}

#[test]
fn whose_names_are_gone_is_asked_for_them_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, mut agent) = forgotten(directory.path());
    let stored = Agent { hello: agent.hello.clone(), sequence: 2, next: 1 };
    let whole = |store: &Store| sums(store, 0..3600).values().sum::<u64>() / INTERVAL_NS;
    let before = whole(&store);
    let next = samples(&mut agent, 4000, 10, 1);
    assert_eq!(append(&store, &agent, std::slice::from_ref(&next)), Err(StoreError::SymbolsDropped));
    drop(store);
    let store = Store::open(directory.path(), Retention::default()).expect("the store after a crash");
    assert_eq!(append(&store, &agent, std::slice::from_ref(&next)), Err(StoreError::SymbolsDropped));
    // FailureLog as often as it comes back without having heard it.
    for _ in 0..2 {
        let hello = agent_again(&agent);
        assert_eq!(append(&store, &agent, &[hello]), Ok(1));
    }
    // What was stored and not acknowledged, what waited in its window, then its names under new numbers.
    let repeated = Agent { sequence: 3, ..stored }.message(Body::Heartbeat(Default::default()));
    assert_eq!(append(&store, &agent, &[repeated]), Ok(4));
    let names = define(&mut agent, of_stack(9000, &["again"]));
    let messages = [next, names, samples(&mut agent, 9001, 20, 1)];
    assert_eq!(append(&store, &agent, &messages), Ok(7));
    let hello = agent_again(&agent);
    assert_eq!(append(&store, &agent, &[hello]), Ok(7));
    assert_eq!((whole(&store), sums(&store, 0..3600)["again"]), (before + 2, INTERVAL_NS));
}

#[test]
fn an_agent_whose_clock_is_wrong_by_decades_goes_on_in_the_next_partition() {
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
fn sessions_with_a_connection_that_fill_it_renew_it_once_an_hour() {
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
    store.flush().expect("whatever the writer was asked for is done");
    assert_eq!(store.status().early_partitions, 1);
    store.shared.early_start.lock().last_began = None;
    store.shared.early_start.lock().not_before = Instant::now();
    let hello = agent_again(&Agent::new(1));
    append(&store, &Agent::new(1), &[hello]).expect("stored");
    store.flush().expect("whatever the writer was asked for is done");
    assert_eq!(store.status().early_partitions, 2);
}

#[test]
fn sessions_have_a_bound_however_long_their_introductions_are() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let limit = 2 << 20;
    store.shared.current().expect("open").memory.write().session_limit = limit;
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
    store.flush().expect("whatever the writer was asked for is done");
    let status = store.status();
    assert!(status.early_partitions >= 10, "{status:?}");
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    assert!(store.status().session_bytes <= limit as u64);
    assert_eq!(store.views().iter().filter(|view| view.names(|_, all| all.contains_key(&1))).count(), 1);
    // Where the next partition cannot begin, those that are known go on.
    hold_partition(&store);
    let turned_away = (100..120).find(|&session| introduce(session) == Err(StoreError::TooManySessions));
    let last = turned_away.expect("a bound") - 1;
    assert_eq!(store.status().sessions_turned_away, 1);
    let mut known = Agent::new(last);
    let messages = [known.hello(), define(&mut known, of_stack(1, &["leaf"])), samples(&mut known, 2, 0, 3)];
    assert_eq!(append(&store, &known, &messages), Ok(3));
}

#[test]
fn statistics_and_reasons_that_no_agent_sends_cost_little_memory() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let stops = vec![Counter { name: "end_of_stack".into(), count: 7 }];
    let honest = Body::Statistics(Statistics { stops, ..Statistics::default() });
    let messages = [agent.hello(), agent.message(honest)];
    append(&store, &agent, &messages).expect("stored");
    let before = store.status();
    // Two bytes each as they are sent, forty in memory.
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
    // What an account says counts as what it takes.
    let messages = [agent.message(with_account)];
    append(&store, &agent, &messages).expect("stored");
    assert!(store.status().session_bytes > before.session_bytes + (40 << 20), "{:?}", store.status());
}

#[test]
fn a_connection_whose_names_are_gone_ends_with_the_reason_and_the_next_one_is_told() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Arc::new(small_store(&directory.path().join("store")));
    let socket = directory.path().join("socket");
    let destination = Destination::Store(Arc::clone(&store));
    let address = Address::Unix(socket.clone());
    let server = Server::start(&address, destination, Limits::default()).expect("server starts");
    let connect = || UnixStream::connect(&socket).expect("server listens");
    let say = |stream: &UnixStream, messages: &[(u64, Vec<u8>)]| -> Answer {
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
    // More than goes along for those that are connected.
    let mut agent = Agent::new(1);
    let names: Vec<String> = (0..25_000).map(|name| format!("own {name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let first = connect();
    let hello = agent.hello();
    let told = |sequence| Answer::Acknowledgement(proto::v1::Acknowledgement { sequence });
    assert_eq!(say(&first, &[hello]), told(1));
    let messages = [define(&mut agent, of_stack(1, &names))];
    assert_eq!(say(&first, &messages), told(2));
    for session in 1000..1005 {
        invent(&store, session, 4000);
    }
    store.flush().expect("whatever the writer was asked for is done");
    assert!(store.status().early_partitions > 0, "{:?}", store.status());
    let next = samples(&mut agent, 15_000, 0, 1);
    let Answer::Reject(reject) = say(&first, std::slice::from_ref(&next)) else { panic!("a rejection") };
    assert_eq!(reject.reason, "the symbols of the session were dropped; reconnect to resend them");
    let second = connect();
    assert_eq!(say(&second, &[agent_again(&agent)]), told(1));
    let messages =
        [next, define(&mut agent, of_stack(40_000, &["again"])), samples(&mut agent, 40_001, 0, 1)];
    assert_eq!(say(&second, &messages), told(5));
    assert_eq!(sums(&store, 0..60)["again"], INTERVAL_NS);
    drop((first, second));
    server.stop();
}
