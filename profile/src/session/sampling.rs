//! The sampling period of a session.

use serde::Serialize;

use crate::session::Session;
use crate::session::mode::Mode;
use crate::text::quantity::{self, count, duration, percent};

/// The period of the timers, its target and its cost; `docs/formats.md` describes the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// CPU time of a sample in the mean, 0 without samples.
    #[serde(skip)]
    mean_ns: u64,
    #[serde(skip)]
    mode: Mode,
}

impl Sampling {
    /// Reads the statistics of `session`; agents before 0.2 send no such figures.
    pub fn of(session: &Session) -> Self {
        let sampling =
            session.statistics.as_ref().and_then(|statistics| statistics.sampling).unwrap_or_default();
        Self {
            mode: session.mode(),
            mean_ns: session.sampled_ns.checked_div(session.samples).unwrap_or(0),
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
        self.mode == Mode::CpuTime && self.period_ns < self.tick_ns / 20 * 19
    }

    /// Returns the CPU time that a sample stands for in the mean, as measured in the data; without samples what is to
    /// be expected.
    fn true_ns(&self) -> u64 {
        match self.mean_ns {
            0 if self.is_below_tick() => self.tick_ns,
            0 => self.period_ns,
            mean_ns => mean_ns,
        }
    }

    /// Returns the sampling period and its changes in one line of text.
    pub fn sentence(&self) -> String {
        let true_ns = self.true_ns();
        let differs_from = |ns: u64| true_ns.abs_diff(ns) > ns / 10;
        let mut text = format!("a sample every {} of {}", duration(true_ns), self.mode.time());
        let wanted = if self.changes > 0 { "wanted at the end" } else { "were asked for" };
        if self.is_below_tick() && !differs_from(self.tick_ns) {
            text += &format!(", which is the kernel's tick ({} {wanted})", duration(self.period_ns));
        } else if differs_from(self.period_ns) {
            text += &format!(" ({} {wanted})", duration(self.period_ns));
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
    use proto::v1::{Sampling as Message, Statistics};

    use super::*;

    fn sentence(message: Message) -> String {
        sentence_of(message, 0, 0)
    }

    fn sentence_of(message: Message, samples: u64, sampled_ns: u64) -> String {
        let statistics = Some(Statistics { sampling: Some(message), ..Statistics::default() });
        let mut session = Session::default();
        (session.statistics, session.samples, session.sampled_ns) = (statistics, samples, sampled_ns);
        Sampling::of(&session).sentence()
    }

    #[test]
    fn the_mode_is_stated() {
        let mut session = Session::default();
        session.hello.mode = proto::v1::Mode::Wall.into();
        let message = Message { period_ns: 10_000_000, tick_ns: 20_000_000, ..Message::default() };
        session.statistics = Some(Statistics { sampling: Some(message), ..Statistics::default() });
        assert_eq!(Sampling::of(&session).sentence(), "a sample every 10.0 ms of wall time");
    }

    #[test]
    fn the_mean_period_is_computed_from_the_samples() {
        for tick_ns in [0, 1_000_000, 4_000_000] {
            let message = Message { period_ns: 10_000_000, tick_ns, ..Message::default() };
            assert_eq!(sentence_of(message, 100, 985_000_000), "a sample every 9.8 ms of CPU time");
            assert_eq!(
                sentence_of(message, 100, 1_600_000_000),
                "a sample every 16.0 ms of CPU time (10.0 ms were asked for)"
            );
        }
        let retuned = Message { period_ns: 30_000_000, changes: 3, ..Message::default() };
        assert!(
            sentence_of(retuned, 100, 1_200_000_000)
                .starts_with("a sample every 12.0 ms of CPU time (30.0 ms wanted at the end)")
        );
    }

    #[test]
    fn samples_show_the_period_where_the_tick_is_unknown() {
        let unknown = Message { period_ns: 1_000_000, ..Message::default() };
        assert_eq!(
            sentence_of(unknown, 100, 400_000_000),
            "a sample every 4.0 ms of CPU time (1.0 ms were asked for)"
        );
        assert_eq!(sentence_of(unknown, 100, 101_000_000), "a sample every 1.0 ms of CPU time");
        assert_eq!(sentence_of(unknown, 0, 0), "a sample every 1.0 ms of CPU time");
    }

    #[test]
    fn the_sentence_has_the_requested_and_the_actual_period() {
        let tick = Message { period_ns: 1_000_000, tick_ns: 4_001_000, ..Message::default() };
        assert_eq!(
            sentence(tick),
            "a sample every 4.0 ms of CPU time, which is the kernel's tick (1.0 ms were asked for)"
        );
        assert_eq!(sentence_of(tick, 100, 402_000_000), sentence(tick), "the same by the data");
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
