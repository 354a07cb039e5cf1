//! Places of connections.
//!
//! A peer without a token can open any number of connections and say nothing. So connections without an accepted
//! `Hello` have places of their own. When these are taken, the oldest such connection is closed for the next one: an
//! agent sends its `Hello` at once, so it gets through.
//! Invariant: a peer without the token takes no place of an agent.

use std::collections::{BTreeMap, HashMap};

use super::socket::Stream;

/// Handles of the open connections, to close them.
#[derive(Default)]
pub(super) struct Places {
    /// Without an accepted `Hello`; ids grow, so the oldest is the first.
    waiting: BTreeMap<u64, Stream>,
    /// With a session.
    admitted: HashMap<u64, Stream>,
}

impl Places {
    /// Adds a connection. If `max` connections wait already, closes the oldest of them and returns its id.
    pub(super) fn add(&mut self, id: u64, stream: Stream, max: usize) -> Option<u64> {
        let oldest = if self.waiting.len() >= max.max(1) { self.waiting.pop_first() } else { None };
        self.waiting.insert(id, stream);
        oldest.map(|(id, stream)| {
            stream.close();
            id
        })
    }

    /// Gives a connection a place among those with a session; returns false if all `max` are taken.
    pub(super) fn admit(&mut self, id: u64, max: usize) -> bool {
        if self.admitted.len() >= max {
            return false;
        }
        self.admitted.extend(self.waiting.remove_entry(&id));
        true
    }

    /// Frees the place of a connection.
    pub(super) fn remove(&mut self, id: u64) {
        self.waiting.remove(&id);
        self.admitted.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.admitted.len()
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.waiting.values().chain(self.admitted.values())
    }
}
