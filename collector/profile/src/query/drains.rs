//! How large the sampler's drains were, and how long they took.

use proto::histogram::quantile;
use proto::v1::Histogram;
use serde::Serialize;

use crate::session::Session;

/// A distribution in four points, each known to within 1/16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// Values counted.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// Exceeded by a value in twenty.
    pub p95: u64,
    /// Exceeded by a value in a hundred.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

/// All drains of a session that found something; zero without statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drains {
    /// Requests found by a drain, those of all threads together.
    pub requests: Distribution,
    /// Nanoseconds that a drain took.
    pub ns: Distribution,
    /// Nanoseconds to walk and name one sample.
    pub walk_ns: Distribution,
}

/// The drains of a session.
pub fn drains(session: &Session) -> Drains {
    let Some(statistics) = &session.statistics else { return Drains::default() };
    let of = |histogram: &Option<Histogram>| histogram.as_ref().map(distribution).unwrap_or_default();
    Drains {
        requests: of(&statistics.drain_requests),
        ns: of(&statistics.drain_ns),
        walk_ns: of(&statistics.walk_ns),
    }
}

fn distribution(histogram: &Histogram) -> Distribution {
    Distribution {
        count: histogram.count,
        p50: quantile(histogram, 0.5),
        p95: quantile(histogram, 0.95),
        p99: quantile(histogram, 0.99),
        max: histogram.max,
    }
}

#[cfg(test)]
mod tests {
    use proto::v1::Statistics;

    use super::*;

    #[test]
    fn four_points_of_each() {
        let mut session = Session::default();
        assert_eq!(drains(&session), Drains::default());
        let requests =
            Histogram { count: 100, max: 7, bucket: vec![1, 2, 3, 7], bucket_count: vec![50, 45, 4, 1] };
        let statistics = Statistics { drain_requests: Some(requests), ..Statistics::default() };
        session.add_statistics(statistics);
        let found = drains(&session);
        assert_eq!(found.requests, Distribution { count: 100, p50: 1, p95: 2, p99: 3, max: 7 });
        assert_eq!(found.ns, Distribution::default());
    }
}
