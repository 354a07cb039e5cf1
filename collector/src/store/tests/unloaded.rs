//! Queries of unloaded partitions: the same answers, with little memory.

use std::sync::atomic::AtomicUsize;

use proto::v1::{Statistics, ThreadAccount};

use super::*;
use profile::api::question::answer;
use profile::query::selection::Selection;
use profile::query::timeline::threads;

/// Seconds between the starts of partitions.
const STEP_S: u64 = 3600;

/// Returns a store of four partitions, each with samples of a session that continues and of one of its own.
pub(super) fn store_of_four(directory: &Path) -> Store {
    let store = Store::open(directory, Retention::default()).expect("new store");
    let mut steady = Agent::new(1);
    let connection = store.session(&steady.hello).expect("open store");
    let (hello, (stack, definitions)) = (steady.hello(), steady.stack(&["steady", "root"]));
    append(&store, &steady, &[hello, definitions]).expect("stored");
    for number in 0..4 {
        let from_s = number * STEP_S;
        let mut own = Agent::new(10 + number);
        let (hello, (own_stack, definitions)) = (own.hello(), own.stack(&[&format!("own {number}"), "root"]));
        let messages = [hello, definitions, own.samples(own_stack, from_s, 20)];
        append(&store, &own, &messages).expect("stored");
        let mut messages = vec![steady.samples(stack, from_s, 30)];
        if number == 1 {
            let account = ThreadAccount { thread: 2, ended: true, ..ThreadAccount::default() };
            let threads = vec![account];
            messages.push(steady.message(Body::Statistics(Statistics { threads, ..Statistics::default() })));
        }
        append(&store, &steady, &messages).expect("stored");
        store.flush().expect("fold");
        if number < 3 {
            upkeep::begin_early(&store.shared, now_s() + number).expect("a partition");
        }
    }
    drop(connection);
    assert_eq!(store.status().partitions, 4);
    store
}

pub(super) fn query(store: &Store, question: &str, pairs: &[(&str, &str)]) -> Vec<u8> {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    answer(store, question, &pairs, DAY_NS + 86_400 * NS).expect("an answer").bytes
}

type Question = (&'static str, &'static [(&'static str, &'static str)]);

/// Queries of sessions, threads and time.
const WITHOUT_NAMES: [Question; 9] = [
    ("processes", &[]),
    ("statistics", &[("process", "shop.jar")]),
    ("view/processes", &[]),
    ("threads", &[]),
    ("threads", &[("thread", "worker-3")]),
    ("timeline", &[]),
    ("timeline", &[("by", "process")]),
    ("timeline", &[("by", "thread"), ("process", "000000000000000b")]),
    ("timeline", &[("by", "thread"), ("to", "4102444860"), ("bucket", "500")]),
];

/// Queries of stacks.
const WITH_NAMES: [Question; 4] = [
    ("flamegraph", &[]),
    ("methods", &[("thread", "worker-3")]),
    ("threads", &[("frame", "own")]),
    ("timeline", &[("frame", "own 2")]),
];

#[test]
fn only_queries_of_stacks_read_dictionaries() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(directory.path());
    let answers = |questions: &[Question]| -> Vec<Vec<u8>> {
        questions.iter().map(|(question, pairs)| query(&store, question, pairs)).collect()
    };
    let expected = [answers(&WITHOUT_NAMES), answers(&WITH_NAMES)];
    assert_eq!(store.status().dictionaries_read, 0, "all are in memory");
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    assert!(answers(&WITHOUT_NAMES) == expected[0]);
    assert_eq!(store.status().dictionaries_read, 0);
    assert!(answers(&WITH_NAMES) == expected[1]);
    assert_eq!(store.status().dictionaries_read, 3 * WITH_NAMES.len() as u64);
    // A range of time in one partition.
    let from = (DAY_NS / NS + STEP_S).to_string();
    let to = (DAY_NS / NS + STEP_S + 60).to_string();
    let text = String::from_utf8(query(&store, "methods", &[("from", &from), ("to", &to)])).expect("JSON");
    assert!(text.contains("own 1") && !text.contains("own 2"), "{text}");
    assert_eq!(store.status().dictionaries_read, 3 * WITH_NAMES.len() as u64 + 1);
}

#[test]
fn a_list_of_processes_has_the_latest_ones_and_the_number_of_others() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    for number in 0..50u64 {
        // In no order.
        let mut agent = Agent::new(1 + number * 7 % 50);
        agent.hello.wall_clock_ns += agent.hello.session_id * NS;
        agent.hello.command = "x".repeat(100_000);
        let messages = [agent.hello()];
        append(&store, &agent, &messages).expect("stored");
        if number == 25 {
            upkeep::begin_early(&store.shared, now_s()).expect("a partition");
        }
    }
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    for (question, limit) in [("processes", 3), ("statistics", 20), ("processes", 50)] {
        let bytes = query(&store, question, &[("limit", &limit.to_string())]);
        let listed: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        let rows = listed["processes"].as_array().expect("a list");
        let ids: Vec<String> =
            rows.iter().map(|row| row["process"].as_str().expect("an id").to_owned()).collect();
        let latest: Vec<String> = (1..=50).rev().take(limit).map(|id| format!("{id:016x}")).collect();
        assert_eq!(ids, latest);
        assert_eq!(listed["rows_left_out"], 50 - limit);
        assert!(rows[0]["command"].as_str().is_some_and(|text| text.len() < 5000 && text.ends_with("x...")));
    }
}

#[test]
fn an_ended_thread_keeps_its_name_when_its_session_continues() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(directory.path());
    let last = store.views().pop().expect("four");
    last.names(|_, sessions| assert!(sessions[&1].thread(2).is_none() && sessions[&1].thread(3).is_some()));
    let mut selection = Selection::default();
    selection.set("process", "0000000000000001").expect("a process");
    selection.set("to", &(DAY_NS / NS + 2 * STEP_S).to_string()).expect("a time");
    let (rows, _) = threads(&store, &selection, DAY_NS).expect("readable");
    let mut names: Vec<&str> = rows.iter().map(|row| row.thread.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["worker-1", "worker-2", "worker-3", "worker-4"]);
}

#[test]
fn concurrent_queries_hold_one_dictionary_at_a_time() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(directory.path());
    upkeep::unload_oldest(&store.shared.partitions.read(), 0);
    let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    const READERS: usize = 4;
    const ROUNDS: usize = 25;
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    for view in store.views().iter().take(3) {
                        let read = view.dictionary(&mut |dictionary| {
                            let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(now, Ordering::SeqCst);
                            // Gives another reader with a dictionary time to be counted.
                            (0..10).for_each(|_| std::thread::yield_now());
                            assert_eq!(dictionary.string(0), "");
                            held.fetch_sub(1, Ordering::SeqCst);
                        });
                        read.expect("readable");
                    }
                }
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
    assert_eq!(store.status().dictionaries_read, (3 * READERS * ROUNDS) as u64);
}

fn store_without_writer(directory: &Path, partitions: Vec<Arc<Partition>>) -> Store {
    let lock = lock(directory).expect("closed");
    let shared = Arc::new(Shared::new(directory, Retention::default(), partitions, Vec::new(), lock));
    Store { shared, requests: None, writer: None }
}

#[test]
fn old_partitions_are_not_loaded_when_a_store_is_opened() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of_four(directory.path());
    let expected = query(&store, "flamegraph", &[]);
    store.close().expect("fold");
    let paths = partition_paths(directory.path()).expect("a directory");
    let is_unloaded = |partitions: &[Arc<Partition>]| -> Vec<bool> {
        partitions.iter().map(|partition| partition.memory.read().is_unloaded).collect()
    };
    assert_eq!(is_unloaded(&open_all(&paths, true, usize::MAX).expect("a store").0), [false; 4]);
    // The newest closed partition is loaded first, then unloaded because it exceeds the limit.
    let partitions = open_all(&paths, true, 0).expect("a store").0;
    assert_eq!(is_unloaded(&partitions), [true, true, true, false]);
    let store = store_without_writer(directory.path(), partitions);
    assert_eq!(store.status().dictionaries_read, 0);
    assert!(query(&store, "flamegraph", &[]) == expected);
    assert_eq!(store.status().dictionaries_read, 3);
}

#[test]
fn a_closed_partition_with_a_journal_is_loaded() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut agent = Agent::new(1);
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    let messages = [hello, definitions, agent.samples(stack, 0, 10)];
    append(&store, &agent, &messages).expect("stored");
    // Dropped without a fold.
    drop(store);
    let next = upkeep::new_path(directory.path(), u32::MAX.into());
    Partition::open(&next, u32::MAX.into(), false, Use::Current).expect("one more");
    let paths = partition_paths(directory.path()).expect("a directory");
    let partitions = open_all(&paths, true, 0).expect("a store").0;
    let store = store_without_writer(directory.path(), partitions);
    expect(&store, 0..3600, &[("leaf", 10)]);
}
