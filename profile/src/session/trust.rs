//! Figures about the correctness of a session's stacks and names.

use proto::histogram::quantile;
use proto::v1::{self, SelfTestOutcome, Statistics};
use serde::Serialize;

/// Effects of class unloading on names: classes may be unloaded between a sample and its walk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unloading {
    pub detector: String,
    pub frames: u64,
    pub samples: u64,
    pub pause_added_ns: Pauses,
}

/// Time by which garbage collection pauses were prolonged, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pauses {
    pub count: u64,
    pub cut_short: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// One self-test: a comparison of the agent's answer with the VM's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SelfTest {
    pub capability: String,
    pub outcome: Outcome,
    pub detail: String,
}

/// Outcome of a self-test; `NotTried` if there was no answer to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Passed,
    Failed,
    NotTried,
}

impl Unloading {
    /// Reads the latest statistics.
    pub fn new(statistics: &Statistics) -> Self {
        let sent = statistics.unloading.clone().unwrap_or_default();
        let added = sent.pause_added_ns.unwrap_or_default();
        Unloading {
            detector: sent.detector,
            frames: sent.frames,
            samples: sent.samples,
            pause_added_ns: Pauses {
                count: added.count,
                cut_short: sent.pauses_cut_short,
                p50: quantile(&added, 0.5),
                p99: quantile(&added, 0.99),
                max: added.max,
            },
        }
    }
}

impl SelfTest {
    /// Returns all self-tests of the latest statistics.
    pub fn all(statistics: &Statistics) -> Vec<Self> {
        statistics.self_tests.iter().map(Self::new).collect()
    }

    fn new(sent: &v1::SelfTest) -> Self {
        let outcome = match sent.outcome() {
            SelfTestOutcome::Passed => Outcome::Passed,
            SelfTestOutcome::Failed => Outcome::Failed,
            SelfTestOutcome::NotTried | SelfTestOutcome::Unspecified => Outcome::NotTried,
        };
        SelfTest { capability: sent.capability.clone(), outcome, detail: sent.detail.clone() }
    }
}
