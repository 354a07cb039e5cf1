//! Sessions from their accounts.

use std::collections::BTreeMap;

use profile::session::Session;

use crate::table::accounts::Account;

/// The latest account of each session from each writer.
#[derive(Debug, Default)]
pub struct Sessions {
    latest: BTreeMap<(u64, u64), Session>,
}

impl Sessions {
    /// Adds accounts.
    pub fn add(&mut self, accounts: Vec<Account>) {
        for Account { id, writer, session } in accounts {
            match self.latest.entry((id, writer)) {
                std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(session)),
                std::collections::btree_map::Entry::Occupied(mut known) => {
                    if known.get().last_sequence < session.last_sequence {
                        known.insert(session);
                    }
                }
            }
        }
    }

    /// Returns the sessions. The statistics of a session are its latest ones; each of its writers received other
    /// samples, so their counts are added up.
    pub fn all(self) -> BTreeMap<u64, Session> {
        let mut sessions: BTreeMap<u64, Session> = BTreeMap::new();
        for ((id, _), session) in self.latest {
            let Some(known) = sessions.remove(&id) else {
                sessions.insert(id, session);
                continue;
            };
            let (mut newer, older) =
                if known.last_sequence > session.last_sequence { (known, session) } else { (session, known) };
            newer.first_ns = newer.first_ns.min(older.first_ns);
            newer.samples = newer.samples.saturating_add(older.samples);
            newer.sampled_ns = newer.sampled_ns.saturating_add(older.sampled_ns);
            newer.biased = newer.biased.saturating_add(older.biased);
            newer.unknown_samples = newer.unknown_samples.saturating_add(older.unknown_samples);
            // The messages that the newer writer counts as missing went to the older one.
            newer.missing_messages = newer.missing_messages.saturating_sub(older.last_sequence);
            sessions.insert(id, newer);
        }
        sessions
    }
}
