//! Delivery of a session's samples by its agent.

use proto::v1::Statistics;
use serde::Serialize;

/// Figures of the delivery; all zero for a recording that the agent wrote itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Delivery {
    pub connections: u64,
    pub resent: u64,
    pub merged_samples: u64,
    pub resolution_ns: u64,
    pub unnamed_ns: u64,
}

impl Delivery {
    /// Reads the latest statistics of a session.
    pub fn new(statistics: &Statistics) -> Self {
        let delivery = statistics.delivery.unwrap_or_default();
        Delivery {
            connections: delivery.connections,
            resent: delivery.resent,
            merged_samples: delivery.merged_samples,
            resolution_ns: delivery.resolution_ns,
            unnamed_ns: delivery.unnamed_ns,
        }
    }
}
