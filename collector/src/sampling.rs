//! How often samples are taken, and what became of each request: figures of a session.

use std::collections::BTreeMap;

use proto::v1::Statistics;
use serde::Serialize;

use crate::quantity::{self, count, duration, percent};

/// The period of the timers, what it follows, and what it costs; described in `collector/API.md`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "described once, for users of the JSON, in collector/API.md")]
#[non_exhaustive]
pub struct Sampling {
    pub period_ns: u64,
    pub shortest_ns: u64,
    pub changes: u64,
    pub replaced: u64,
    pub stragglers: u64,
    pub tick_ns: u64,
    pub processors: u64,
    pub budget: f64,
    pub cost: f64,
}

impl Sampling {
    /// What `statistics` tell; agents before 0.2 tell nothing.
    pub fn new(statistics: &Statistics) -> Self {
        let sampling = statistics.sampling.unwrap_or_default();
        Self {
            period_ns: sampling.period_ns,
            shortest_ns: sampling.shortest_ns,
            changes: sampling.changes,
            replaced: sampling.replaced,
            stragglers: sampling.stragglers,
            tick_ns: sampling.tick_ns,
            processors: sampling.processors,
            budget: sampling.budget_ppm as f64 / 1e6,
            cost: quantity::share(sampling.cost_ns, sampling.cost_of_ns),
        }
    }

    /// In one line, for people.
    pub fn sentence(&self) -> String {
        let mut text = format!("a sample every {} of CPU time", duration(self.period_ns.max(self.tick_ns)));
        if self.period_ns < self.tick_ns {
            text += &format!(", which is the kernel's tick ({} were asked for)", duration(self.period_ns));
        }
        if self.budget > 0.0 {
            text += &format!("; {} of a budget of {} used", percent(self.cost), percent(self.budget));
        }
        if self.processors > 0 {
            text += &format!("; {} processors share the rate", self.processors);
        }
        if self.changes > 0 {
            let (changes, replaced) = (count(self.changes), count(self.replaced));
            text += &format!("; changed {changes} times, {replaced} timers replaced");
        }
        text
    }
}

/// What became of the requests: `requests = resolved + failed`, each counted where it happens.
pub fn failed(statistics: &Statistics) -> BTreeMap<String, u64> {
    statistics.failed.iter().map(|failed| (failed.name.clone(), failed.count)).collect()
}
