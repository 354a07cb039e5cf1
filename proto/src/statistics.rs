//! Statistics messages omit unchanged histograms and lists, which are most of a message. All values are cumulative, so
//! an absent part has the value that was sent last.

use crate::v1::Statistics;

/// Copies the parts that `newer` omits from `older`, which is of the same session; accounts of threads are not copied.
pub fn carry_over(older: &Statistics, newer: &mut Statistics) {
    fn keep<T: Clone>(older: &Option<T>, newer: &mut Option<T>) {
        if newer.is_none() {
            newer.clone_from(older);
        }
    }
    fn keep_list<T: Clone>(older: &[T], newer: &mut Vec<T>) {
        if newer.is_empty() {
            *newer = older.to_vec();
        }
    }
    keep_list(&older.stops, &mut newer.stops);
    keep_list(&older.lost, &mut newer.lost);
    keep_list(&older.failed, &mut newer.failed);
    keep_list(&older.self_tests, &mut newer.self_tests);
    keep(&older.handler_cycles, &mut newer.handler_cycles);
    keep(&older.walk_ns, &mut newer.walk_ns);
    keep(&older.drain_ns, &mut newer.drain_ns);
    keep(&older.drain_requests, &mut newer.drain_requests);
    keep(&older.queue, &mut newer.queue);
    keep(&older.delivery, &mut newer.delivery);
    keep(&older.unloading, &mut newer.unloading);
    keep(&older.timers, &mut newer.timers);
    keep(&older.sampling, &mut newer.sampling);
    keep(&older.waiting, &mut newer.waiting);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Counter, Histogram, ThreadAccount};

    #[test]
    fn present_parts_replace_and_absent_parts_stay() {
        let counter = |count| vec![Counter { name: "end_of_stack".into(), count }];
        let older = Statistics {
            requests: 1,
            stops: counter(1),
            walk_ns: Some(Histogram { count: 1, ..Histogram::default() }),
            threads: vec![ThreadAccount::default()],
            ..Statistics::default()
        };
        let mut newer = Statistics { requests: 2, stops: counter(2), ..Statistics::default() };
        carry_over(&older, &mut newer);
        assert_eq!((newer.requests, newer.stops[0].count), (2, 2));
        assert_eq!(newer.walk_ns, older.walk_ns);
        assert!(newer.threads.is_empty());
    }
}
