//! Entry numbers keep their meaning across restarts, folds and partitions.

use super::*;

/// Defines frames and a stack of them; the numbers of each kind begin with `first`.
pub(super) fn of_stack(first: u32, leaf_first: &[&str]) -> Entries {
    let count = leaf_first.len() as u32;
    let mut string: Vec<String> = leaf_first.iter().rev().map(|&text| text.into()).collect();
    string.push("end_of_stack".into());
    Entries {
        first_string: first,
        string,
        first_frame: first,
        frame_kind: vec![FrameKind::Native.into(); count as usize],
        frame_method: vec![0; count as usize],
        frame_bci: vec![-1; count as usize],
        frame_line: vec![0; count as usize],
        frame_symbol: (first..first + count).collect(),
        frame_library: vec![0; count as usize],
        first_node: first,
        node_parent: (0..=count).map(|row| u32::from(row > 0)).collect(),
        node_frame: std::iter::once(first + count).chain(first..first + count).collect(),
        ..Entries::default()
    }
}

pub(super) fn define(agent: &mut Agent, entries: Entries) -> (u64, Vec<u8>) {
    agent.message(Body::Dictionary(Definitions { entries: Some(entries), ..Definitions::default() }))
}

/// Returns one sample per second of thread 1 on the stack that ends in `node`.
pub(super) fn samples(agent: &mut Agent, node: u32, from_s: u64, count: usize) -> (u64, Vec<u8>) {
    agent.message(Body::Samples(SampleBatch {
        first_time_ns: from_s * NS,
        time_delta_us: (0..count).map(|row| if row == 0 { 0 } else { 1_000_000 }).collect(),
        thread: vec![1; count],
        node: vec![node; count],
        cpu_unit_ns: INTERVAL_NS,
        ..SampleBatch::default()
    }))
}

#[test]
fn entry_numbers_mean_the_same_after_a_crash_a_fold_and_in_the_next_partition() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let open = || Store::open(directory.path(), Retention::default()).expect("store");
    let store = open();
    let mut agent = Agent::new(1);
    let messages =
        [agent.hello(), define(&mut agent, of_stack(3, &["leaf", "root"])), samples(&mut agent, 5, 0, 10)];
    append(&store, &agent, &messages).expect("stored");
    // The definitions are in the journal and in no block.
    drop(store);
    let store = open();
    let messages = [samples(&mut agent, 5, 10, 10)];
    append(&store, &agent, &messages).expect("stored");
    store.flush().expect("fold");
    // The parent of the new stack is a node in a block. Later samples use the caller of the first stack as a stack.
    let more = Entries { first_node: 6, node_parent: vec![2], node_frame: vec![4], ..Entries::default() };
    let messages = [define(&mut agent, more), samples(&mut agent, 6, 20, 5)];
    append(&store, &agent, &messages).expect("stored");
    store.close().expect("fold");
    let store = open();
    let messages = [samples(&mut agent, 4, 30, 3), samples(&mut agent, 6, 40, 1)];
    append(&store, &agent, &messages).expect("stored");
    expect(&store, 0..60, &[("leaf", 26), ("root", 3)]);
    let day_s = DAY_NS / NS;
    store.shared.partitions.read()[0].coverage.write().created_s = day_s;
    store.flush().expect("fold");
    upkeep::run(&store.shared, day_s + 86_400).expect("upkeep");
    assert_eq!(store.status().partitions, 2);
    check_only_the_last_has_rows(&store);
    let messages = [samples(&mut agent, 5, 86_400, 7)];
    append(&store, &agent, &messages).expect("stored");
    store.close().expect("fold");
    let store = open();
    check_only_the_last_has_rows(&store);
    let messages = [samples(&mut agent, 6, 86_410, 2)];
    append(&store, &agent, &messages).expect("stored");
    expect(&store, 86_400..90_000, &[("leaf", 9)]);
    store.views().last().expect("open").names(|_, sessions| assert_eq!(sessions[&1].unknown_samples, 0));
}

fn check_only_the_last_has_rows(store: &Store) {
    let partitions = store.shared.partitions.read();
    let has_rows = |partition: &Arc<Partition>| partition.memory.read().sessions[&1].rows.bytes() > 0;
    assert_eq!(partitions.iter().map(has_rows).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn sessions_with_other_numbers_share_stacks() {
    let store_directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(store_directory.path(), Retention::default()).expect("new store");
    for (session, first) in [(1, 3), (2, 1000)] {
        let mut agent = Agent::new(session);
        let (hello, definitions) = (agent.hello(), define(&mut agent, of_stack(first, &["leaf", "root"])));
        let messages = [hello, definitions, samples(&mut agent, first + 2, 0, 5)];
        append(&store, &agent, &messages).expect("stored");
    }
    expect(&store, 0..60, &[("leaf", 10)]);
    store.views()[0].names(|dictionary, _| {
        assert_eq!(
            (dictionary.stack_count(), dictionary.frame_count()),
            (2, 3),
            "one of them is the unknown one"
        );
    });
}

#[test]
fn a_full_dictionary_loses_no_cpu_time() {
    let store_directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(store_directory.path(), Retention::default()).expect("new store");
    prevent_early_partitions(&store);
    let mut honest = Agent::new(1);
    let messages =
        [honest.hello(), define(&mut honest, of_stack(1, &["leaf"])), samples(&mut honest, 2, 0, 5)];
    append(&store, &honest, &messages).expect("stored");
    let limit = store.status().dictionary_bytes as usize + (64 << 10);
    store.shared.current().expect("open").memory.write().dictionary.limit = limit;
    let mut liar = Agent::new(2);
    let hello = liar.hello();
    append(&store, &liar, &[hello]).expect("stored");
    for round in 0..100 {
        let names: Vec<String> = (0..50).map(|name| format!("invented {round} {name}")).collect();
        let first = 1 + round * 51;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let definitions = define(&mut liar, of_stack(first, &names));
        let messages = [definitions, samples(&mut liar, first + 50, 10, 1)];
        append(&store, &liar, &messages).expect("stored");
    }
    let status = store.status();
    assert!(status.dictionary_bytes < limit as u64 + 1024, "{status:?}");
    assert!(status.dictionary_refused > 4000, "{status:?}");
    // Known symbols remain usable, and all CPU time is stored.
    let more = samples(&mut honest, 2, 20, 5);
    append(&store, &honest, &[more]).expect("stored");
    let whole: u64 = sums(&store, 0..60).values().sum();
    assert_eq!((whole / INTERVAL_NS, sums(&store, 0..60)["leaf"] / INTERVAL_NS), (110, 10));
    store.views()[0].names(|_, sessions| {
        assert_eq!(sessions[&1].unknown_samples, 0);
        assert!(sessions[&2].unknown_samples > 50, "{}", sessions[&2].unknown_samples);
    });
    store.close().expect("fold");
    let store = Store::open(store_directory.path(), Retention::default()).expect("a store that can be read");
    assert_eq!(sums(&store, 0..60).values().sum::<u64>() / INTERVAL_NS, 110);
}

#[test]
fn hostile_numbers_are_unknown_and_take_little_memory() {
    let store_directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(store_directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let deep = 3 * profile::dictionary::entries::MAX_DEPTH;
    let chain = |first: u32| Entries {
        first_node: first,
        node_parent: (0..deep).map(|row| u32::from(row > 0)).collect(),
        node_frame: vec![1; deep as usize],
        ..Entries::default()
    };
    let wild = Entries {
        first_string: u32::MAX,
        string: vec![String::new(); 3],
        first_method: 7,
        method_class: vec![u32::MAX; 2],
        first_frame: u32::MAX - 1,
        frame_kind: vec![i32::MIN; 4],
        frame_method: vec![3; 4],
        frame_bci: vec![i32::MIN; 4],
        frame_line: vec![u32::MAX; 4],
        frame_symbol: vec![u32::MAX; 4],
        frame_library: vec![u32::MAX; 4],
        first_node: u32::MAX - 3,
        node_parent: vec![0, u32::MAX, 1, 5, 0, 0],
        node_frame: vec![u32::MAX; 6],
        ..Entries::default()
    };
    let mut messages = vec![define(&mut agent, chain(1)), define(&mut agent, wild)];
    for node in
        [0, deep, deep + 1, u32::MAX, u32::MAX - 3, u32::MAX - 2, profile::dictionary::entries::MAX_DEPTH]
    {
        messages.push(samples(&mut agent, node, 0, 2));
    }
    append(&store, &agent, &messages).expect("stored");
    store.views()[0].names(|dictionary, sessions| {
        let session = &sessions[&1];
        // The root of the second forest and the node at the maximum depth are known.
        assert_eq!((session.samples, session.unknown_samples), (14, 10));
        assert!(dictionary.stack_count() <= 3, "{}", dictionary.stack_count());
    });
    store.close().expect("fold");
    assert!(Store::open(store_directory.path(), Retention::default()).is_ok());
}

#[test]
fn definitions_are_folded_before_they_exceed_a_block() {
    let store_directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(store_directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let hello = agent.hello();
    append(&store, &agent, &[hello]).expect("stored");
    let folds = store.status().folds;
    // The same string of one MiB under new numbers.
    let name = "x".repeat(1 << 20);
    for number in 1..=65 {
        let definitions = Entries { first_string: number, string: vec![name.clone()], ..Entries::default() };
        let message = define(&mut agent, definitions);
        append(&store, &agent, &[message]).expect("stored");
    }
    // The writer folds before it takes the next request.
    let message = define(&mut agent, Entries::default());
    append(&store, &agent, &[message]).expect("stored");
    assert_eq!(store.status().folds, folds + 1);
    store.close().expect("fold");
    assert!(Store::open(store_directory.path(), Retention::default()).is_ok());
}

#[test]
fn large_sessions_leave_dictionary_space_for_small_ones() {
    let store_directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(store_directory.path(), Retention::default()).expect("new store");
    prevent_early_partitions(&store);
    let limit = 4 << 20;
    store.shared.current().expect("open").memory.write().dictionary.limit = limit;
    for session in 1..=10 {
        let mut liar = Agent::new(session);
        let names: Vec<String> = (0..6000).map(|name| format!("invented {session} {name}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let messages = [liar.hello(), define(&mut liar, of_stack(1, &names)), samples(&mut liar, 6000, 0, 1)];
        append(&store, &liar, &messages).expect("stored");
    }
    assert!(store.status().dictionary_refused > 10_000, "{:?}", store.status());
    let mut honest = Agent::new(11);
    let messages =
        [honest.hello(), define(&mut honest, of_stack(1, &["leaf"])), samples(&mut honest, 2, 0, 5)];
    append(&store, &honest, &messages).expect("stored");
    assert_eq!(sums(&store, 0..60)["leaf"], 5 * INTERVAL_NS);
    assert!(store.status().dictionary_bytes <= limit as u64, "{:?}", store.status());
}
