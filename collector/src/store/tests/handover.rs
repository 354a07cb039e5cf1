//! Changes of partition: failures, closed partitions, and limits of sessions.

use profile::dictionary::Tables;
use proto::v1::{Statistics, ThreadAccount};
use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// Returns a store whose partition is a day old, its agent, and the stack of this agent. The dictionary has `names`
/// long symbols.
fn day_old(directory: &Path, names: u64) -> (Store, Agent, u32) {
    let store = Store::open(directory, Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf", "root"]));
    let mut messages = vec![hello, definitions];
    for number in 0..names {
        // Text that does not compress.
        let text: String = (0..8)
            .map(|part| format!("{:016x}", xxh3_64(&[number, part].map(u64::to_le_bytes).concat())))
            .collect();
        messages.push(agent.stack(&[&text, "root"]).1);
    }
    messages.push(agent.samples(stack, 0, 10));
    append(&store, &agent, &messages).expect("stored");
    store.shared.partitions.read()[0].coverage.write().created_s = DAY_NS / NS;
    store.flush().expect("fold");
    (store, agent, stack)
}

/// Returns the length of an empty partition.
fn empty_partition_bytes() -> u64 {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    store.status().stored_bytes
}

#[test]
fn an_unfinished_partition_is_not_used() {
    // The file cannot be created; it can, but there is no space for the copied sessions.
    for limit_bytes in [0, empty_partition_bytes()] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (store, mut agent, stack) = day_old(directory.path(), 20_000);
        let next_s = DAY_NS / NS + 86_400;
        quota::set(directory.path(), limit_bytes);
        assert_eq!(upkeep::run(&store.shared, next_s), Err(StoreError::Full), "{limit_bytes}");
        quota::set(directory.path(), u64::MAX);
        store.close().expect("fold");
        // As after a kill before the rename.
        let unfinished = directory.path().join("001795305600-007.new");
        std::fs::write(&unfinished, b"no database").expect("a file");
        let store = Store::open(directory.path(), Retention::default()).expect("the store as it was");
        assert_eq!(store.status().partitions, 1, "{limit_bytes}");
        assert!(!unfinished.exists());
        let second = agent.samples(stack, 20, 5);
        append(&store, &agent, &[second]).expect("stored");
        expect(&store, 0..60, &[("leaf", 15)]);
        upkeep::run(&store.shared, next_s).expect("upkeep with space");
        let third = agent.samples(stack, 86_400, 5);
        append(&store, &agent, &[third]).expect("stored");
        store.close().expect("fold");
        let store = Store::open(directory.path(), Retention::default()).expect("both partitions");
        assert_eq!(store.status().partitions, 2);
        expect(&store, 0..90_000, &[("leaf", 20)]);
        store.views()[1].names(|_, sessions| assert_eq!(sessions[&1].unknown_samples, 0));
    }
}

#[test]
fn old_partitions_are_removed_on_a_full_disk() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, mut agent, stack) = day_old(directory.path(), 0);
    let next_s = DAY_NS / NS + 86_400;
    upkeep::run(&store.shared, next_s).expect("upkeep");
    let samples = agent.samples(stack, 86_400, 10);
    append(&store, &agent, &[samples]).expect("stored");
    store.flush().expect("fold");
    let oldest = store.shared.partitions.read()[0].database.path().to_owned();
    quota::set(directory.path(), 0);
    let late_s = next_s + Retention::default().age.as_secs();
    assert_eq!(upkeep::run(&store.shared, late_s), Err(StoreError::Full));
    assert!(!oldest.exists() && store.status().partitions == 1, "{:?}", store.status());
    expect(&store, 0..90_000, &[("leaf", 10)]);
}

#[test]
fn a_closed_partition_has_no_lookup_tables_and_gives_the_same_answers() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, _, _) = day_old(directory.path(), 1000);
    let first = || store.shared.partitions.read()[0].clone();
    let open = first().memory.read().dictionary.bytes();
    upkeep::run(&store.shared, DAY_NS / NS + 86_400).expect("upkeep");
    let (closed, rows) = {
        let partition = first();
        let dictionary = &partition.memory.read().dictionary;
        let Tables { strings, methods, frames, nodes, stacks } = dictionary.tables();
        let numbers = size_of_val(&**methods) + size_of_val(&**frames) + size_of_val(&**nodes);
        let texts = strings.text_bytes() + strings.len() * size_of::<usize>();
        (dictionary.bytes(), texts + numbers + size_of_val(&**stacks))
    };
    assert_eq!(closed, rows, "of {open} bytes, only the rows are left");
    assert!(closed < open, "{closed} of {open} bytes");
    expect(&store, 0..60, &[("leaf", 10)]);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("both partitions");
    assert_eq!(store.shared.partitions.read()[0].memory.read().dictionary.bytes(), closed);
    expect(&store, 0..60, &[("leaf", 10)]);
}

/// Returns messages that define `count` threads, and an account of each.
fn crowd(agent: &mut Agent, count: u32) -> Vec<(u64, Vec<u8>)> {
    let thread = |id| Thread { id, name: format!("crowd-{id}"), ..Thread::default() };
    let account = |thread| ThreadAccount { thread, kernel_ns: 1, ..ThreadAccount::default() };
    let threads = (1..=count).map(thread).collect();
    let accounts = (1..=count).map(account).collect();
    let statistics = Statistics { threads: accounts, ..Statistics::default() };
    vec![
        agent.hello(),
        agent.message(Body::Dictionary(Definitions { threads, ..Definitions::default() })),
        agent.message(Body::Statistics(statistics)),
    ]
}

#[test]
fn threads_of_one_session_leave_memory_for_others() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    prevent_early_partitions(&store);
    let limit = 2 << 20;
    let set_limit =
        |store: &Store| store.shared.current().expect("open").memory.write().session_limit.0 = limit;
    set_limit(&store);
    let known = |store: &Store, session: u64| {
        let partition = store.shared.current().expect("open");
        let memory = partition.memory.read();
        let whole: usize = memory.sessions.values().map(|session| session.thread_bytes).sum();
        assert!(whole <= limit + (64 << 10), "{whole} bytes");
        let known = &memory.sessions[&session].seen;
        (known.threads().count(), known.accounts().len())
    };
    let mut liar = Agent::new(1);
    let messages = crowd(&mut liar, 30_000);
    append(&store, &liar, &messages).expect("stored");
    let (threads, accounts) = known(&store, 1);
    assert!((5_000..10_000).contains(&threads) && accounts == 0, "{threads} threads, {accounts} accounts");
    assert!(store.status().dictionary_refused > 50_000, "{:?}", store.status());
    let mut honest = Agent::new(2);
    let messages = crowd(&mut honest, 100);
    append(&store, &honest, &messages).expect("stored");
    assert_eq!(known(&store, 2), (100, 100));
    // Accounts of known threads are stored although other sessions use the rest of the memory.
    let statistics = Statistics {
        threads: vec![ThreadAccount { thread: 7, kernel_ns: 1 << 60, ..ThreadAccount::default() }],
        ..Statistics::default()
    };
    let message = honest.message(Body::Statistics(statistics));
    append(&store, &honest, &[message]).expect("stored");
    let views = store.views();
    views[0].names(|_, sessions| {
        assert_eq!(sessions[&2].account(7).map(|account| account.kernel_ns), Some(1 << 60));
    });
    drop(views);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("a store that can be read");
    prevent_early_partitions(&store);
    set_limit(&store);
    assert_eq!(known(&store, 1).0, threads);
    let mut late = Agent::new(3);
    let messages = crowd(&mut late, 30_000);
    append(&store, &late, &messages).expect("stored");
    assert!(known(&store, 3).0 < 1_000, "loaded sessions count");
}
