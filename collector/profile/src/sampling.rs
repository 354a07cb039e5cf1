//! The sampling period of a session.

use proto::v1::Statistics;
use serde::Serialize;

use crate::quantity::{self, count, duration, percent};

/// The period of the timers, its target and its cost; `collector/API.md` describes the fields.
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
    /// Reads `statistics`; agents before 0.2 send no such figures.
    pub fn new(statistics: &Statistics) -> Self {
        let sampling = statistics.sampling.unwrap_or_default();
        Self {
            period_ns: sampling.period_ns,
            shortest_ns: sampling.shortest_ns,
            changes: sampling.changes,
            replaced: sampling.replaced,
            stragglers: sampling.outdated,
            tick_ns: sampling.tick_ns,
            processors: sampling.processors,
            budget: sampling.budget_ppm as f64 / 1e6,
            cost: quantity::share(sampling.cost_ns, sampling.cost_of_ns),
        }
    }

    /// Returns whether the period is shorter than the kernel's tick. A difference below 5 % counts as measuring error.
    pub fn is_below_tick(&self) -> bool {
        self.period_ns < self.tick_ns / 20 * 19
    }

    /// Returns the sampling period and its changes in one line of text.
    pub fn sentence(&self) -> String {
        let true_ns = if self.is_below_tick() { self.tick_ns } else { self.period_ns };
        let mut text = format!("a sample every {} of CPU time", duration(true_ns));
        if self.is_below_tick() {
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

#[cfg(test)]
mod tests {
    use proto::v1::Sampling as Message;

    use super::*;

    fn sentence(message: Message) -> String {
        Sampling::new(&Statistics { sampling: Some(message), ..Statistics::default() }).sentence()
    }

    #[test]
    fn what_is_asked_for_and_what_is_so() {
        let tick = Message { period_ns: 1_000_000, tick_ns: 4_001_000, ..Message::default() };
        assert_eq!(
            sentence(tick),
            "a sample every 4.0 ms of CPU time, which is the kernel's tick (1.0 ms were asked for)"
        );
        let about_equal = Message { period_ns: 4_000_000, tick_ns: 4_030_000, ..Message::default() };
        assert_eq!(sentence(about_equal), "a sample every 4.0 ms of CPU time");
        let budget = Message {
            period_ns: 30_000_000,
            budget_ppm: 10_000,
            cost_ns: 9,
            cost_of_ns: 1_000,
            processors: 2,
            changes: 3,
            replaced: 40,
            ..Message::default()
        };
        assert_eq!(
            sentence(budget),
            "a sample every 30.0 ms of CPU time; 0.9 % of a budget of 1.0 % used; 2 processors share the rate; \
             changed 3 times, 40 timers replaced"
        );
    }
}
