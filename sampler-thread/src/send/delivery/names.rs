//! Dictionary entries that wait for room, those of threads aside.
//!
//! Problem: a collector that comes back may have lost everything, entries that were acknowledged long ago included, and
//! rows that wait name them by numbers whose meaning the agent does not keep.
//! Approach: in a long absence the sampler is asked once to send everything again that it uses from then on, under new
//! numbers (a renewal); these entries wait, or lie in the window, until the collector is back. Rows that wait and name
//! older ones lose their stacks if it has lost its memory.
//! Invariant: what waits here is sent before any row that names it, and refers to nothing that a collector lacks.

use proto::v1::Dictionary;

use crate::name::dictionaries::append;

/// Entries held back, in rough bytes; beyond, stacks nobody was told of are given up.
const MAX_BYTES: usize = 8 << 20;

/// Entries are sent under new numbers since an absence of the collector.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    /// Connections there had been.
    connections: u64,
    /// First stack with a new number, once there is one.
    from: Option<u64>,
}

/// What waits.
#[derive(Debug, Default)]
pub struct Names {
    /// Refer to entries from before the sampler was asked last to send everything again.
    older: Vec<Dictionary>,
    /// Refer to each other and to those of a window only.
    newer: Vec<Dictionary>,
    bytes: usize,
    /// Stacks from here on have lost their entries, because too much was held.
    dropped_from: Option<u64>,
    /// Whether entries were dropped that will have to be sent again.
    overflowed: bool,
    /// Whether the collector lost its memory and the sampler was not asked yet to send everything again.
    is_lost: bool,
    renewal: Option<Renewal>,
}

impl Names {
    /// Whether what comes next may go out at once: until everything is sent again, it may name what is lacking.
    pub fn is_passed(&self) -> bool {
        self.older.is_empty() && self.newer.is_empty() && !self.overflowed && !self.is_lost
    }

    /// Whether entries of this stack were or will be sent.
    pub fn knows(&self, stack: u64) -> bool {
        !self.is_lost && self.dropped_from.is_none_or(|dropped| stack < dropped)
    }

    /// Whether everything has to be sent again: at once, or because entries were dropped.
    pub fn lacking(&self) -> (bool, bool) {
        (self.is_lost, self.overflowed)
    }

    /// The sampler sends everything again that it uses from now on.
    pub fn asked(&mut self) {
        (self.is_lost, self.overflowed, self.dropped_from) = (false, false, None);
        self.older.append(&mut self.newer);
    }

    /// Whether a renewal is of use: one an absence, and none where entries are to be sent again anyway.
    pub fn may_renew(&self, connections: u64) -> bool {
        let renewed = self.renewal.is_some_and(|renewal| renewal.connections == connections);
        connections > 0 && !renewed && !self.overflowed && !self.is_lost
    }

    /// As [`asked`](Self::asked), in the absence after so many connections.
    pub fn renewed(&mut self, connections: u64) {
        self.asked();
        self.renewal = Some(Renewal { connections, from: None });
    }

    /// The collector of this connection, counted from 1, lost its memory. Gives the first stack whose entries are still
    /// on their way to it; without one, everything has to be sent again.
    pub fn lost(&mut self, connection: u64) -> Option<u64> {
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

    /// Notes entries, without threads, before they are sent or held; false if they are of no use.
    pub fn note(&mut self, dictionary: &Dictionary) -> bool {
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

    /// Keeps entries until there is room.
    pub fn keep(&mut self, more: Dictionary) {
        self.bytes += prost::Message::encoded_len(&more);
        // Numbers follow each other, so this is one message unless entries were dropped in between.
        let apart = match self.newer.last_mut() {
            Some(last) => append(last, more),
            None => Some(more),
        };
        self.newer.extend(apart);
    }

    /// Keeps entries that refer to nothing before all others.
    pub fn keep_first(&mut self, dictionary: Dictionary) {
        self.newer.insert(0, dictionary);
    }

    /// Takes what waits, in order; it is sent now.
    pub fn take(&mut self) -> impl Iterator<Item = Dictionary> {
        self.bytes = 0;
        std::mem::take(&mut self.older).into_iter().chain(std::mem::take(&mut self.newer))
    }
}
