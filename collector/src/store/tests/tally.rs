//! Counters since the start.

use proto::v1::{Lost, Statistics, Waiting};

use super::*;

#[test]
fn counters_do_not_fall_with_retention_and_count_nothing_twice() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let retention = Retention { bytes: 1, ..Retention::default() };
    let store = Store::open(directory.path(), retention).expect("new store");
    let (mut agent, mut gone) = (Agent::new(1), Agent::new(2));
    gone.hello.command = "gone.jar".into();
    let lost = |agent: &mut Agent, count| {
        let lost = vec![Lost { cause: "queue_full".into(), count, ns: 1 }];
        agent.message(Body::Statistics(Statistics { lost, ..Statistics::default() }))
    };
    for agent in [&mut agent, &mut gone] {
        let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
        let messages = [hello, definitions, agent.samples(stack, 0, 10), lost(agent, 7)];
        append(&store, agent, &messages).expect("stored");
        append(&store, agent, &messages).expect("known");
    }
    let ended = gone.message(Body::Goodbye(Goodbye::default()));
    append(&store, &gone, &[ended]).expect("stored");
    let tally = store.tally();
    let expected = [("gone.jar".to_owned(), 10), ("shop.jar".to_owned(), 10)];
    assert_eq!(tally.stored, BTreeMap::from([("cputime", BTreeMap::from(expected))]));
    assert_eq!(tally.lost, BTreeMap::from([("queue_full".to_owned(), 14)]));
    // Retention removes the partition, and the session that has ended with it.
    upkeep::begin_early(&store.shared, now_s()).expect("a partition");
    assert_eq!(store.status().partitions, 1);
    assert_eq!(store.tally(), tally);
    // The agent's counters are totals. Of each report only the increase is added, and a restart begins at 0.
    let more = lost(&mut agent, 8);
    append(&store, &agent, &[more]).expect("stored");
    assert_eq!(store.tally().lost["queue_full"], 15);
    store.close().expect("fold");
    let store = Store::open(directory.path(), Retention::default()).expect("a store");
    assert_eq!(store.tally(), Tally::default());
    let more = lost(&mut agent, 10);
    append(&store, &agent, &[more]).expect("stored");
    assert_eq!(store.tally().lost["queue_full"], 2);
}

#[test]
fn waiting_is_counted_where_it_is_reported() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let (mut agent, mut silent) = (Agent::new(1), Agent::new(2));
    silent.hello.command = "silent.jar".into();
    let waited = |agent: &mut Agent, run_delay_ns| {
        let waiting = Waiting { run_delay_ns, ..Waiting::default() };
        agent.message(Body::Statistics(Statistics { waiting: Some(waiting), ..Statistics::default() }))
    };
    let messages = [agent.hello(), waited(&mut agent, Some(500)), waited(&mut agent, Some(700))];
    append(&store, &agent, &messages).expect("stored");
    append(&store, &agent, &messages).expect("known");
    let messages = [silent.hello(), waited(&mut silent, None)];
    append(&store, &silent, &messages).expect("stored");
    let tally = store.tally();
    assert_eq!(tally.run_delay_ns, BTreeMap::from([("shop.jar".to_owned(), 700)]));
    assert!(tally.throttled_ns.is_empty() && tally.throttled_periods.is_empty(), "{tally:?}");
}
