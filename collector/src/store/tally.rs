//! Samples and waiting for processors since the store was opened, by service; lost samples by reason.
//!
//! Sums over the stored sessions would fall when retention removes old ones, which monitoring takes for a restart.

use std::collections::BTreeMap;

use profile::session::Session;
use profile::session::account::Waiting;
use proto::v1::Lost;

use super::session::StoredSession;

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

/// Counts of a session before a message.
pub(super) struct Received {
    samples: u64,
    biased: Option<u64>,
    lost: Vec<Lost>,
    waiting: Waiting,
}

impl Received {
    pub(super) fn of(session: Option<&StoredSession>) -> Received {
        let samples = session.map_or(0, |session| session.seen.samples);
        let statistics = session.and_then(|session| session.seen.statistics.as_ref());
        Received {
            samples,
            biased: statistics.and_then(|statistics| statistics.biased),
            lost: statistics.map_or_else(Vec::new, |statistics| statistics.lost.clone()),
            waiting: statistics.map(Waiting::new).unwrap_or_default(),
        }
    }
}

impl Tally {
    /// Adds what `session` received since `before`.
    pub(super) fn add(&mut self, before: &Received, session: &Session) {
        let stored = self.stored.entry(session.mode().name()).or_default();
        add(stored, session.service(), session.samples.saturating_sub(before.samples));
        for lost in session.statistics.iter().flat_map(|statistics| &statistics.lost) {
            let known = before.lost.iter().find(|known| known.cause == lost.cause);
            add(&mut self.lost, &lost.cause, lost.count.saturating_sub(known.map_or(0, |known| known.count)));
        }
        let waiting = session.statistics.as_ref().map(Waiting::new).unwrap_or_default();
        let known = &before.waiting;
        let biased = session.statistics.as_ref().and_then(|statistics| statistics.biased);
        for (sums, present, known) in [
            (&mut self.biased, biased, before.biased),
            (&mut self.run_delay_ns, waiting.run_delay_ns, known.run_delay_ns),
            (&mut self.throttled_periods, waiting.throttled_periods, known.throttled_periods),
            (&mut self.throttled_ns, waiting.throttled_ns, known.throttled_ns),
        ] {
            // A figure that is not reported has no metric.
            if let Some(present) = present {
                add(sums, session.service(), present.saturating_sub(known.unwrap_or(0)));
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
