//! Dictionary entries in the backlog, except those of threads.
//!
//! Problem: a collector may lose everything during an absence, including acknowledged entries, and merged rows refer to
//! them by ids whose meaning the agent does not keep.
//! Approach: once in a long absence the sampler sends every entry again with its next use and a new id (a renewal);
//! these entries wait, or are in the window, until the collector is back. If it has lost its memory, rows that refer to
//! older entries lose their stacks.
//! Invariant: entries are sent before any row that refers to them, and refer only to entries that the collector has.

use proto::v1::Dictionary;

use crate::name::dictionaries::append;

/// Most bytes of entries that wait, approximately; beyond, new stacks are given up.
const MAX_BYTES: usize = 8 << 20;

/// Entries get new ids since an absence of the collector.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    connections: u64,
    /// First stack with a new id, if there is one.
    from: Option<u64>,
}

#[derive(Debug, Default)]
pub struct PendingEntries {
    /// May refer to entries from before everything was sent again.
    older: Vec<Dictionary>,
    /// Refer only to each other and to entries in the window.
    newer: Vec<Dictionary>,
    bytes: usize,
    /// First stack whose entries were dropped, because too many waited.
    dropped_from: Option<u64>,
    /// True if entries were dropped that have to be sent again.
    overflowed: bool,
    /// True if the collector lost its memory and the sampler has not begun to send everything again.
    is_lost: bool,
    renewal: Option<Renewal>,
}

impl PendingEntries {
    /// Returns whether entries may bypass the backlog; until everything is sent again they may refer to missing ones.
    pub fn may_bypass(&self) -> bool {
        self.older.is_empty() && self.newer.is_empty() && !self.overflowed && !self.is_lost
    }

    /// Returns whether the entries of this stack were or will be sent.
    pub fn knows(&self, stack: u64) -> bool {
        !self.is_lost && self.dropped_from.is_none_or(|dropped| stack < dropped)
    }

    /// Returns whether everything has to be sent again: at once, or when there is space.
    pub fn missing(&self) -> (bool, bool) {
        (self.is_lost, self.overflowed)
    }

    /// Notes that the sampler sends every entry again with its next use.
    pub fn begin_again(&mut self) {
        (self.is_lost, self.overflowed, self.dropped_from) = (false, false, None);
        self.older.append(&mut self.newer);
    }

    /// Returns whether a renewal is useful: once per absence, and not if entries have to be sent again anyway.
    pub fn may_renew(&self, connections: u64) -> bool {
        let renewed = self.renewal.is_some_and(|renewal| renewal.connections == connections);
        connections > 0 && !renewed && !self.overflowed && !self.is_lost
    }

    /// Calls [`begin_again`](Self::begin_again) in the absence after this number of connections.
    pub fn renew(&mut self, connections: u64) {
        self.begin_again();
        self.renewal = Some(Renewal { connections, from: None });
    }

    /// Notes that the collector was found on this connection to have lost its memory.
    ///
    /// Returns the first stack whose entries are not sent yet; `None` if everything has to be sent again.
    pub fn collector_forgot(&mut self, connection: u64) -> Option<u64> {
        // Entries of an earlier absence may have been acknowledged since.
        let from = self.renewal.take().filter(|renewal| renewal.connections + 1 == connection);
        let from = from.and_then(|renewal| renewal.from);
        self.older.clear();
        if from.is_none() {
            self.newer.clear();
            self.is_lost = true;
        }
        from
    }

    /// Records entries before they are sent or kept; returns whether they are of use.
    pub fn record(&mut self, dictionary: &Dictionary) -> bool {
        let first = dictionary.entries.as_ref().filter(|entries| !entries.node_frame.is_empty());
        if let (Some(renewal), Some(entries)) = (&mut self.renewal, first) {
            renewal.from.get_or_insert(entries.first_node.into());
        }
        if self.bytes > MAX_BYTES {
            self.overflowed = true;
        }
        if self.overflowed
            && let Some(entries) = first
        {
            self.dropped_from.get_or_insert(entries.first_node.into());
        }
        // Until everything is sent again, a later entry may refer to one that was dropped.
        !self.overflowed && !self.is_lost
    }

    /// Keeps entries until there is space.
    pub fn keep(&mut self, more: Dictionary) {
        self.bytes += prost::Message::encoded_len(&more);
        // Ids are consecutive, so that this is one message unless entries were dropped in between.
        let apart = match self.newer.last_mut() {
            Some(last) => append(last, more),
            None => Some(more),
        };
        self.newer.extend(apart);
    }

    /// Keeps entries that refer to no others, before all others.
    pub fn keep_first(&mut self, dictionary: Dictionary) {
        self.newer.insert(0, dictionary);
    }

    /// Takes the waiting entries, in order, to be sent.
    pub fn take(&mut self) -> impl Iterator<Item = Dictionary> {
        self.bytes = 0;
        std::mem::take(&mut self.older).into_iter().chain(std::mem::take(&mut self.newer))
    }
}
