//! Bucket arithmetic of histograms.

use proptest::prelude::*;
use proto::histogram::{BUCKETS, Recorder, bucket_of, quantile, range_of};
use proto::v1::Histogram;

fn histogram(values: &[u64]) -> Histogram {
    let mut recorder = Recorder::default();
    values.iter().for_each(|&value| recorder.record(value));
    recorder.to_message()
}

#[test]
fn values_are_in_the_buckets_of_the_formula() {
    for (value, bucket) in [(0, 0), (7, 7), (8, 8), (15, 15), (16, 16), (17, 16), (18, 17), (u64::MAX, 495)] {
        assert_eq!(bucket_of(value), bucket, "bucket of {value}");
    }
}

#[test]
fn buckets_are_adjacent_and_cover_everything() {
    assert_eq!((range_of(0).0, range_of(BUCKETS - 1).1), (0, u64::MAX));
    for index in 0..BUCKETS {
        let (low, high) = range_of(index);
        assert_eq!((bucket_of(low), bucket_of(high)), (index, index));
        if index > 0 {
            assert_eq!(range_of(index - 1).1 + 1, low);
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
}

proptest! {
    #[test]
    fn a_bucket_is_an_eighth_wide(value in any::<u64>()) {
        let index = bucket_of(value);
        let (low, high) = range_of(index);
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
}
