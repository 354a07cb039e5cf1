//! Samples and waiting for processors since the store was opened, by service; lost samples by reason.
//!
//! Sums over the stored sessions would fall when retention removes old ones, which monitoring takes for a restart.

use std::collections::BTreeMap;

use profile::session::Session;
use profile::session::account::Waiting;
use proto::v1::Lost;

/// Maximum number of services and of reasons. A sender can invent names without end; further ones are counted together.
const MOST_NAMES: usize = 1000;

/// Maximum length of a name in bytes.
const NAME_BYTES: usize = 256;

/// Name of all that exceed [`MOST_NAMES`].
const OTHERS: &str = "(others)";

/// Sums since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stored samples by service, by the mode of their profiles.
    pub stored: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Samples by service whose newest Java frame is that of a later point, where the agent counts them.
    pub biased: BTreeMap<String, u64>,
    /// Lost samples by reason.
    pub lost: BTreeMap<String, u64>,
    /// Nanoseconds by service in which threads were ready to run and had no processor, where the kernel reports that.
    pub run_delay_ns: BTreeMap<String, u64>,
    /// Periods by service in which the limit of the cgroup stopped the process, where the kernel reports that.
    pub throttled_periods: BTreeMap<String, u64>,
    /// Nanoseconds of this by service.
    pub throttled_ns: BTreeMap<String, u64>,
}

/// Figures of a session at some time.
#[derive(Default)]
pub(super) struct Figures {
    samples: u64,
    lost: Vec<Lost>,
    /// Biased samples, run delay, throttled periods and throttled time, where they are reported.
    optional: [Option<u64>; 4],
}

impl Figures {
    pub(super) fn of(session: &Session) -> Figures {
        let Some(statistics) = &session.statistics else {
            return Figures { samples: session.samples, ..Figures::default() };
        };
        let Waiting { run_delay_ns, throttled_periods, throttled_ns, .. } = Waiting::new(statistics);
        let optional = [statistics.biased, run_delay_ns, throttled_periods, throttled_ns];
        Figures { samples: session.samples, lost: statistics.lost.clone(), optional }
    }
}

impl Tally {
    /// Adds what `session` received since `before`.
    pub(super) fn add(&mut self, before: &Figures, session: &Session) {
        let now = Figures::of(session);
        let stored = self.stored.entry(session.mode().name()).or_default();
        add(stored, session.service(), now.samples.saturating_sub(before.samples));
        for lost in &now.lost {
            let known = before.lost.iter().find(|known| known.cause == lost.cause);
            add(&mut self.lost, &lost.cause, lost.count.saturating_sub(known.map_or(0, |known| known.count)));
        }
        let sums =
            [&mut self.biased, &mut self.run_delay_ns, &mut self.throttled_periods, &mut self.throttled_ns];
        for ((sums, now), before) in sums.into_iter().zip(now.optional).zip(before.optional) {
            // A figure that is not reported has no metric.
            if let Some(now) = now {
                add(sums, session.service(), now.saturating_sub(before.unwrap_or(0)));
            }
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    let name = &name[..name.floor_char_boundary(NAME_BYTES)];
    let name = if counts.len() < MOST_NAMES || counts.contains_key(name) { name } else { OTHERS };
    let sum = counts.entry(name.to_owned()).or_default();
    *sum = sum.saturating_add(count);
}
