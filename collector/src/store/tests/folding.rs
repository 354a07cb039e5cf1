//! Programs that start virtual threads without end.

use proto::v1::ThreadKind;

use super::*;
use crate::store::folding::MOST_VIRTUAL;

const CARRIER: u32 = 1;

/// Threads 10 and following are virtual, 50 in each message, each with a sample in the message after it.
fn ten_minutes_of_requests(agent: &mut Agent, stack: u32) -> Vec<(u64, Vec<u8>)> {
    let carrier =
        Thread { id: CARRIER, name: "carrier".into(), kind: ThreadKind::Java.into(), ..Thread::default() };
    let introduce = |threads| Body::Dictionary(Definitions { threads, ..Definitions::default() });
    let mut messages = vec![agent.message(introduce(vec![carrier]))];
    for second in 0..600u32 {
        let ids = second * 50 + 10..second * 50 + 60;
        let threads = ids.clone().map(|id| Thread {
            id,
            name: format!("request-{id}"),
            kind: ThreadKind::Virtual.into(),
            java_id: id.into(),
            carrier: CARRIER,
            ..Thread::default()
        });
        messages.push(agent.message(introduce(threads.collect())));
        let batch = SampleBatch {
            first_time_ns: u64::from(second) * NS,
            thread: ids.collect(),
            node: vec![stack; 50],
            cpu_unit_ns: INTERVAL_NS,
            ..SampleBatch::default()
        };
        messages.push(agent.message(Body::Samples(batch)));
    }
    messages
}

#[test]
fn virtual_threads_beyond_the_bound_are_counted_for_their_carriers() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    append(&store, &agent, &[hello, definitions]).expect("stored");
    let requests = ten_minutes_of_requests(&mut agent, stack);
    append(&store, &agent, &requests).expect("stored");
    let check = |store: &Store| {
        expect(store, 0..3600, &[("leaf", 30_000)]);
        let mut by_thread: BTreeMap<u32, u64> = BTreeMap::new();
        let scope = Scope { range_ns: 0..u64::MAX, sessions: &|_| true };
        let mut add = |_, thread, _, cell: Sum| *by_thread.entry(thread).or_default() += cell.samples;
        store.views()[0].thread_stacks(&scope, &|_, _| true, &mut add).expect("readable");
        assert_eq!(by_thread.len(), 1 + MOST_VIRTUAL);
        assert_eq!(by_thread[&CARRIER] as usize, 30_000 - MOST_VIRTUAL);
        store.views()[0].names(|_, sessions| {
            assert!(by_thread.keys().all(|&thread| sessions[&1].thread(thread).is_some()), "all have names");
        });
    };
    check(&store);
    let status = store.status();
    assert_eq!(status.virtual_threads_folded as usize, 30_000 - MOST_VIRTUAL);
    assert!(status.session_bytes < 2 << 20, "{status:?}");
    drop(store);
    // Also from the journal, and from blocks.
    let store = Store::open(directory.path(), Retention::default()).expect("a store");
    check(&store);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("a store");
    check(&store);
    // The next partition begins with few of them, and has rows for others.
    upkeep::begin_early(&store.shared, now_s()).expect("a partition");
    let threads = |store: &Store| store.views()[1].names(|_, sessions| sessions[&1].threads().count());
    assert!(threads(&store) < 2048, "{}", threads(&store));
}
