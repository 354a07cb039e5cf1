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

#[cfg(test)]
mod tests {
    use proto::v1::{Statistics, ThreadAccount};

    use super::*;

    /// Each writer has the account of the thread that ran meanwhile, and all but the first have other samples than the
    /// agent's sums.
    #[test]
    fn a_session_of_two_writers_has_the_kernel_time_of_all_its_threads() {
        let account = |writer, thread, last_sequence, received, [kernel_ns, sampled_ns]: [u64; 2]| {
            let mut session = Session::default();
            (session.sampled_ns, session.last_sequence) = (received, last_sequence);
            let threads =
                vec![ThreadAccount { thread, kernel_ns: 100, sampled_ns: 90, ..ThreadAccount::default() }];
            session.add_statistics(Statistics { threads, kernel_ns, sampled_ns, ..Statistics::default() });
            Account::of(7, writer, &session)
        };
        let mut sessions = Sessions::default();
        sessions.add(vec![account(1, 1, 5, 90, [100, 90]), account(2, 2, 9, 95, [200, 185])]);
        let all = sessions.all();
        let session = &all[&7];
        assert_eq!(
            (session.kernel_ns(), session.sampled_ns, session.accounted_sampled_ns()),
            (200, 185, 185)
        );
    }
}
