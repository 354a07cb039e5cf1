//! Sizes and durations of the sampler's drains.

use proto::histogram::quantile;
use proto::v1::Histogram;
use serde::Serialize;

use crate::session::Session;

/// A distribution by four quantiles, each exact to 1/16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

/// The drains of a session that found requests; zero without statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drains {
    /// Requests per drain, of all threads together.
    pub requests: Distribution,
    /// Duration of a drain in nanoseconds.
    pub ns: Distribution,
    /// Time to walk and name one sample, in nanoseconds.
    pub walk_ns: Distribution,
}

/// Returns the drains of a session.
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
