//! Places of connections, of agents and of HTTP clients.
//!
//! A peer without the token can open any number of connections. So connections that have not shown the token have
//! places of their own. When these are taken, the oldest such connection is closed for the next one: agents and clients
//! send the token at once, so they get through.
//! Invariant: a peer without the token takes no place of those that have it.

use std::collections::BTreeMap;

/// The open connections by id, with a handle that closes each. Ids grow, so the oldest is the first.
pub(crate) struct Places<C> {
    unknown: BTreeMap<u64, C>,
    admitted: BTreeMap<u64, C>,
    most_unknown: usize,
    most_admitted: usize,
}

impl<C> Places<C> {
    pub(crate) fn new(most_unknown: usize, most_admitted: usize) -> Self {
        let most_unknown = most_unknown.max(1);
        Places { unknown: BTreeMap::new(), admitted: BTreeMap::new(), most_unknown, most_admitted }
    }

    /// Adds an unknown connection; returns the oldest one, which the caller closes, if there are too many of them.
    pub(crate) fn add(&mut self, id: u64, connection: C) -> Option<(u64, C)> {
        let is_full = self.unknown.len() >= self.most_unknown;
        let oldest = if is_full { self.unknown.pop_first() } else { None };
        self.unknown.insert(id, connection);
        oldest
    }

    /// Gives a connection a place among the admitted ones, if it has none; returns false if all of them are taken.
    pub(crate) fn admit(&mut self, id: u64) -> bool {
        if self.admitted.contains_key(&id) {
            return true;
        }
        let has_room = self.admitted.len() < self.most_admitted;
        if has_room {
            self.admitted.extend(self.unknown.remove_entry(&id));
        }
        has_room
    }

    /// Frees the place of a connection.
    pub(crate) fn remove(&mut self, id: u64) {
        self.unknown.remove(&id);
        self.admitted.remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        self.unknown.len() + self.admitted.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.unknown.values().chain(self.admitted.values())
    }
}
