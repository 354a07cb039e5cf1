//! Lower resolution keeps sums: whatever retention removes, the coarser levels have all CPU time.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::unloaded::query;
use super::*;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// Levels that retention removes, and the seconds of a bucket of the finest level left.
const LEVELS: [(u64, u64); 3] = [(1, MINUTE_S), (2, HOUR_S), (3, DAY_S)];

/// A closed partition with one sample at each of these seconds of the day.
fn store_of(directory: &Path, seconds: &[u64]) -> Store {
    let store = Store::open(directory, Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let mut messages = vec![agent.hello()];
    let (stack, definitions) = agent.stack(&["leaf"]);
    messages.push(definitions);
    messages.extend(seconds.iter().map(|&second| agent.samples(stack, second, 1)));
    append(&store, &agent, &messages).expect("stored");
    let partition = Arc::clone(&store.shared.partitions.read()[0]);
    partition.fold(None).expect("fold");
    for level in Level::COARSE {
        partition.roll(level, u64::MAX).expect("roll-ups");
    }
    partition.close();
    partition.compact().expect("no log");
    store
}

fn samples(store: &Store, range_s: std::ops::Range<u64>) -> u64 {
    sums(store, range_s).values().sum::<u64>() / INTERVAL_NS
}

/// Checks the sums of ranges whose ends are in `bounds`, at every level: ranges of whole buckets are exact, and
/// adjacent ranges have every sample once.
fn check(seconds: &[u64], bounds: &[u64]) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = store_of(directory.path(), seconds);
    let between = |from, to| seconds.iter().filter(|&&second| (from..to).contains(&second)).count() as u64;
    let end_s = 5 * DAY_S;
    for (levels, bucket_s) in LEVELS {
        assert_eq!(store.shared.partitions.read()[0].remove_levels(levels), Ok(true));
        let whole = samples(&store, 0..end_s);
        assert_eq!(whole, seconds.len() as u64, "{levels} levels removed of {seconds:?}");
        for &bound in bounds {
            let parts = samples(&store, 0..bound) + samples(&store, bound..end_s);
            assert_eq!(parts, whole, "{levels} levels removed, apart at {bound} of {seconds:?}");
            let aligned = bound / bucket_s * bucket_s;
            assert_eq!(
                samples(&store, aligned..end_s),
                between(aligned, end_s),
                "{levels} levels from {aligned}"
            );
            assert_eq!(samples(&store, 0..aligned), between(0, aligned), "{levels} levels until {aligned}");
        }
    }
}

/// The first and the last bucket of each level are partial, or just whole.
#[test]
fn partial_buckets_at_both_ends_keep_their_samples() {
    for first in [0, 1, 59, 60, 1_800, HOUR_S - 1, HOUR_S, 10 * HOUR_S + 1_800, DAY_S - 1, DAY_S] {
        for length in [0, 1, MINUTE_S, HOUR_S, DAY_S, 2 * DAY_S + 7_000] {
            let seconds = [first, first + length / 2, first + length];
            check(&seconds, &[first, first + 1, first + length, first + length + 1]);
        }
    }
}

#[test]
fn sums_are_equal_at_every_level() {
    let times = prop::collection::vec(0..3 * DAY_S, 1..12);
    let bounds = prop::collection::vec(0..4 * DAY_S, 4);
    let mut runner = TestRunner::new(Config { cases: 60, ..Config::default() });
    let result = runner.run(&(times, bounds), |(seconds, bounds)| {
        check(&seconds, &bounds);
        Ok(())
    });
    result.expect("equal sums");
}

/// The table of a session of half an hour stays the same as its data ages, and is never "no samples".
#[test]
fn a_session_keeps_its_account_while_the_store_has_it() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let day_s = DAY_NS / NS;
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    let mut agent = Agent::new(1);
    let (hello, (stack, definitions)) = (agent.hello(), agent.stack(&["leaf", "root"]));
    let samples = agent.samples(stack, 10 * HOUR_S + 1_200, 1_800);
    append(&store, &agent, &[hello, definitions, samples]).expect("stored");
    store.shared.partitions.read()[0].coverage.write().created_s = day_s;
    store.flush().expect("fold");
    let shown = |what: &str| {
        let (from, to) = (day_s.to_string(), (day_s + DAY_S).to_string());
        String::from_utf8(query(&store, what, &[("from", &from), ("to", &to)])).expect("text")
    };
    let questions = ["top", "view/hot-methods", "view/threads"];
    let before = questions.map(shown);
    assert!(before[0].contains("18.0 s"), "{before:?}");
    upkeep::run(&store.shared, day_s + DAY_S).expect("a new partition");
    let retention = Retention::default();
    for (removed, age) in [(1, retention.samples), (2, retention.minutes), (3, retention.hours)] {
        upkeep::run(&store.shared, day_s + DAY_S + age.as_secs() + HOUR_S).expect("upkeep");
        assert_eq!(store.shared.partitions.read()[0].coverage.read().removed, removed);
        for (what, before) in questions.iter().zip(&before) {
            // Hours and days have groups of threads with similar names.
            if *what == "view/threads" && removed > 1 {
                let text = shown(what);
                assert!(
                    text.contains("18.0 s") && text.contains("worker-#"),
                    "{removed} levels removed: {text}"
                );
            } else {
                assert_eq!(&shown(what), before, "{removed} levels removed");
            }
        }
    }
}
