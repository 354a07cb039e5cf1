//! Bucket arithmetic of histograms.

use proptest::prelude::*;
use proto::histogram::{BUCKETS, Recorder, bucket_of, highest_in, lowest_in, merge, quantile};
use proto::v1::Histogram;

fn histogram(values: &[u64]) -> Histogram {
    let mut recorder = Recorder::default();
    values.iter().for_each(|&value| recorder.record(value));
    recorder.to_message()
}

#[test]
fn buckets_by_hand() {
    for (value, bucket) in [(0, 0), (7, 7), (8, 8), (15, 15), (16, 16), (17, 16), (18, 17), (u64::MAX, 495)] {
        assert_eq!(bucket_of(value), bucket, "bucket of {value}");
    }
}

#[test]
fn buckets_are_adjacent_and_cover_everything() {
    assert_eq!(lowest_in(0), 0);
    assert_eq!(highest_in(BUCKETS - 1), u64::MAX);
    for index in 0..BUCKETS {
        assert_eq!(bucket_of(lowest_in(index)), index);
        assert_eq!(bucket_of(highest_in(index)), index);
        if index > 0 {
            assert_eq!(highest_in(index - 1) + 1, lowest_in(index));
        }
    }
}

#[test]
fn quantiles_of_small_values_are_exact() {
    let message = histogram(&[1, 2, 3, 4, 5]);
    for (q, value) in [(0.0, 1), (0.5, 3), (0.99, 5), (1.0, 5), (-1.0, 1), (7.0, 5), (f64::NAN, 1)] {
        assert_eq!(quantile(&message, q), value, "quantile {q}");
    }
    assert_eq!(quantile(&Histogram::default(), 0.5), 0);
}

#[test]
fn hostile_messages_are_bounded() {
    let message = Histogram {
        count: 1,
        max: 5,
        bucket: vec![u32::MAX, 3, 496, 495],
        bucket_count: vec![u64::MAX, u64::MAX, 9],
    };
    assert_eq!(quantile(&message, 0.5), 3);
    let mut sum = message.clone();
    merge(&mut sum, &message);
    assert_eq!((sum.bucket, sum.bucket_count), (vec![3], vec![u64::MAX]));
}

proptest! {
    #[test]
    fn a_bucket_is_an_eighth_wide(value in any::<u64>()) {
        let index = bucket_of(value);
        let (low, high) = (lowest_in(index), highest_in(index));
        prop_assert!(low <= value && value <= high);
        prop_assert!(high - low <= low / 8);
    }

    #[test]
    fn quantile_is_near_the_true_one(mut values in prop::collection::vec(any::<u64>(), 1..60), q in 0.0..=1.0) {
        let answer = quantile(&histogram(&values), q);
        values.sort_unstable();
        let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
        let truth = values[rank - 1];
        prop_assert!(answer.abs_diff(truth) <= truth / 15 + 1, "{answer} for {truth}");
    }

    #[test]
    fn merging_equals_recording_both(
        a in prop::collection::vec(any::<u64>(), 0..30),
        b in prop::collection::vec(any::<u64>(), 0..30),
    ) {
        let mut sum = histogram(&a);
        merge(&mut sum, &histogram(&b));
        prop_assert_eq!(sum, histogram(&[a, b].concat()));
    }
}
