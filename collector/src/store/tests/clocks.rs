//! Clocks of agents that are wrong or move.

use proto::v1::Statistics;

use super::*;

/// One agent has a clock that is ten years ahead: its samples and those of all others lose resolution and expire in
/// time.
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
fn samples_have_the_time_of_a_corrected_clock() {
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

/// Returns the samples of an answer without a selected time, and the warning about its span.
fn shown(store: &Store, now_ns: u64, pairs: &[(&str, &str)]) -> (u64, u64, bool) {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let answer = profile::api::question::answer(store, "methods", &pairs, now_ns).expect("an answer");
    let answer: serde_json::Value = serde_json::from_slice(&answer.bytes).expect("JSON");
    let span = &answer["span"];
    let length_ns = span["to_ns"].as_u64().expect("a time") - span["from_ns"].as_u64().expect("a time");
    (answer["samples"].as_u64().expect("a number"), length_ns / NS, span["leaves_out_wrong_clocks"] == true)
}

/// One machine's clock begins in 1970, another's is a century ahead: the default time of everybody's answers is that of
/// the others, and the answer states that samples are left out.
#[test]
fn wrong_clocks_do_not_stretch_the_default_time() {
    const YEAR_NS: u64 = 365 * 86_400 * NS;
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let now_ns = now_s() * NS;
    let began_ns = now_ns - 3_600 * NS;
    append_a_minute_each(&store, &[(1, began_ns), (2, 0), (3, began_ns + 100 * YEAR_NS), (4, began_ns)]);
    for is_folded in [false, true] {
        if is_folded {
            store.flush().expect("fold");
        }
        let (samples, length_s, is_said) = shown(&store, now_ns, &[]);
        assert!(
            samples == 120 && length_s <= 120 && is_said,
            "{samples} in {length_s} s, {is_said}, {is_folded}"
        );
        let (samples, _, is_said) = shown(&store, now_ns, &[("from", "0"), ("to", "9000000000")]);
        assert_eq!((samples, is_said), (240, false), "a time that is named has all");
    }
    store.close().expect("fold");
    // A store that is only read ends where its files do.
    let store = Store::open_for_reading(directory.path()).expect("a store");
    let (samples, length_s, is_said) = shown(&store, now_ns, &[]);
    assert!(samples == 120 && length_s <= 120 && is_said, "{samples} in {length_s} s, {is_said}");
    let (samples, ..) = shown(&store, now_ns, &[("from", "-2h")]);
    assert_eq!(samples, 120, "relative to the last sample of a right clock");
}

/// Old recordings that were sent to a collector are shown, if there is nothing else.
#[test]
fn a_store_of_old_samples_only_shows_them() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    append_a_minute_each(&store, &[(1, 1_500_000_000 * NS)]);
    assert_eq!(shown(&store, now_s() * NS, &[]), (60, 60, false));
}
