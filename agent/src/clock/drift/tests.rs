//! The correction, signal by signal.

use super::*;

/// Sends `count` signals; returns the periods that they stood for.
fn signals(drift: &Drift, count: usize) -> Vec<i64> {
    let one = |_| {
        let further = drift.next();
        drift.apply(further);
        1 + further
    };
    (0..count).map(one).collect()
}

#[test]
fn periods_are_added_bit_by_bit() {
    let drift = Drift::default();
    drift.want(3);
    assert_eq!(signals(&drift, 5), [2, 2, 2, 1, 1]);
    drift.want(130);
    assert_eq!(signals(&drift, 1), [4], "many are added sooner");
    assert_eq!(signals(&drift, 200).iter().sum::<i64>(), 200 + 130 - 3);
}

#[test]
fn every_other_signal_counts_for_nothing() {
    let drift = Drift::default();
    drift.want(-2);
    assert_eq!(signals(&drift, 5), [0, 1, 0, 1, 1]);
    drift.want(-1);
    drift.want(0);
    assert_eq!(signals(&drift, 2), [1, 1], "the latest wish counts");
}
