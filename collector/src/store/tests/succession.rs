//! One partition after another: what is left where that fails, and what a closed one still takes.

use super::*;

/// A store whose partition is a day old, of an agent that goes on; its stack, and a dictionary of `names` long names.
fn day_old(directory: &Path, names: u64) -> (Store, Agent, u64) {
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

/// Length of a partition's file that has nothing.
fn fresh_bytes() -> u64 {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    store.status().stored_bytes
}

#[test]
fn a_partition_that_cannot_be_finished_is_not_gone_on_with() {
    // The file cannot be made; it can, but there is no space for what it inherits.
    for limit_bytes in [0, fresh_bytes()] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let limit = Arc::new(AtomicU64::new(u64::MAX));
        quota::set(directory.path(), Arc::clone(&limit));
        let (store, mut agent, stack) = day_old(directory.path(), 20_000);
        let next_s = DAY_NS / NS + 86_400;
        limit.store(limit_bytes, Ordering::Relaxed);
        assert_eq!(upkeep::run(&store.shared, next_s), Err(StoreError::Full), "{limit_bytes}");
        limit.store(u64::MAX, Ordering::Relaxed);
        store.close().expect("fold");
        // As if the collector had been killed between making a file and giving it its name.
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
fn a_closed_partition_takes_half_the_memory_and_answers_as_before() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let (store, _, _) = day_old(directory.path(), 1000);
    let first = || store.shared.partitions.read()[0].clone();
    let before = first().head.read().dictionary.bytes();
    upkeep::run(&store.shared, DAY_NS / NS + 86_400).expect("upkeep");
    let closed = first().head.read().dictionary.bytes();
    assert!(closed <= before / 2, "{closed} of {before} bytes");
    expect(&store, 0..60, &[("leaf", 10)]);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("both partitions");
    assert_eq!(store.shared.partitions.read()[0].head.read().dictionary.bytes(), closed);
    expect(&store, 0..60, &[("leaf", 10)]);
}
