//! Samples since the store was opened, by service and, if lost, by reason.
//!
//! Sums over the stored sessions would fall when retention removes old ones, which monitoring takes for a restart.

use std::collections::BTreeMap;

use proto::v1::Lost;

use super::session::StoredSession;

/// Maximum number of services and of reasons. A sender can invent names without end; further ones are counted together.
const MOST_NAMES: usize = 1000;

/// Maximum length of a name in bytes.
const NAME_BYTES: usize = 256;

/// Name of all that exceed [`MOST_NAMES`].
const OTHERS: &str = "(others)";

/// Samples since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stored samples by service.
    pub stored: BTreeMap<String, u64>,
    /// Lost samples by reason.
    pub lost: BTreeMap<String, u64>,
}

/// Counts of a session before a message.
pub(super) struct Received {
    samples: u64,
    lost: Vec<Lost>,
}

impl Received {
    pub(super) fn of(session: Option<&StoredSession>) -> Received {
        let samples = session.map_or(0, |session| session.samples);
        let statistics = session.and_then(|session| session.statistics.as_ref());
        Received { samples, lost: statistics.map_or_else(Vec::new, |statistics| statistics.lost.clone()) }
    }
}

impl Tally {
    /// Adds what `session` received since `before`.
    pub(super) fn add(&mut self, before: &Received, session: &StoredSession) {
        add(&mut self.stored, session.service(), session.samples.saturating_sub(before.samples));
        for lost in session.statistics.iter().flat_map(|statistics| &statistics.lost) {
            let known = before.lost.iter().find(|known| known.cause == lost.cause);
            add(&mut self.lost, &lost.cause, lost.count.saturating_sub(known.map_or(0, |known| known.count)));
        }
    }
}

fn add(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    let name = &name[..name.floor_char_boundary(NAME_BYTES)];
    let name = if counts.len() < MOST_NAMES || counts.contains_key(name) { name } else { OTHERS };
    let sum = counts.entry(name.to_owned()).or_default();
    *sum = sum.saturating_add(count);
}
