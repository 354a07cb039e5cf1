//! Clocks of agents that are wrong or move.

use proto::v1::Statistics;

use super::*;

/// One agent has a clock that is ten years ahead: its samples and those of all others lose resolution and expire in time.
#[test]
fn a_clock_that_is_ahead_does_not_stop_retention() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let day_s = DAY_NS / NS;
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    append_a_minute_each(&store, &[(1, DAY_NS), (2, DAY_NS + 10 * 365 * 86_400 * NS)]);
    store.shared.partitions.read()[0].coverage.write().created_s = day_s;
    store.flush().expect("fold");
    upkeep::run(&store.shared, day_s + 86_400).expect("upkeep");
    assert_eq!(store.status().partitions, 2);
    let removed = || store.shared.partitions.read()[0].coverage.read().removed;
    upkeep::run(&store.shared, day_s + 86_400 + Retention::default().samples.as_secs() + 1).expect("upkeep");
    assert_eq!(removed(), 1, "single samples");
    upkeep::run(&store.shared, day_s + 86_400 + Retention::default().age.as_secs() + 1).expect("upkeep");
    assert_eq!(store.status().partitions, 1);
}

/// The agent's machine sleeps for two hours, and later its clock is set back by one: each sample has the time at which
/// it was taken, and the session is not silent.
#[test]
fn samples_follow_a_clock_that_moves() {
    const HOUR_MS: i64 = 3_600_000;
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf"]));
    let mut messages = vec![hello, definitions];
    for (from_s, clock_shift_ms) in [(0, 0), (10, 2 * HOUR_MS), (20, HOUR_MS)] {
        let batch = SampleBatch {
            first_time_ns: from_s * NS,
            thread: vec![1],
            node: vec![stack],
            cpu_unit_ns: INTERVAL_NS,
            clock_shift_ms,
            ..SampleBatch::default()
        };
        messages.push(agent.message(Body::Samples(batch)));
        let time_ns = (from_s + 5) * NS;
        let statistics = Statistics { time_ns, clock_shift_ms, ..Statistics::default() };
        messages.push(agent.message(Body::Statistics(statistics)));
    }
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    append(&store, &agent, &messages).expect("stored");
    drop(store);
    // Also from the journal.
    let store = Store::open(directory.path(), Retention::default()).expect("a store");
    let mut times_s = Vec::new();
    let scope = Scope { range_ns: 0..u64::MAX, sessions: &|_| true };
    store.views()[0]
        .samples(&scope, &mut |sample| times_s.push((sample.time_ns - DAY_NS) / NS))
        .expect("readable");
    assert_eq!(times_s, [0, 3600 + 20, 7200 + 10]);
    store.views()[0].names(|_, sessions| assert_eq!((sessions[&1].last_ns - DAY_NS) / NS, 7200 + 15));
}
