//! Copies sessions from a partition to the next one.
//!
//! Problem: agents send each symbol once, so the next partition needs the symbols of sessions that continue. Invented
//! symbols of a hostile session must not fill its dictionary from the start.
//! Approach: symbols are copied for sessions with a connection, those with the fewest first, up to half of the
//! memory; then for the sessions that sent most recently, up to an eighth. Other sessions are copied without symbols,
//! as far as memory permits. When their agent reconnects, the acknowledged sequence number is lower than before, so
//! it resends its symbols, as it does to a collector that lost its memory (`design/wire-format.md`). Resending does not
//! replace the copies: samples in the agent's window have numbers of symbols that only the copies have.
//! Invariants: a copied session keeps its last sequence number, so nothing is stored twice; a new partition has half
//! of its memory free.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use super::memory::{CONNECTED_SHARE, PartitionMemory};
use super::session::{StoredSession, Symbols};

/// The same share for sessions without a connection.
const OTHERS_SHARE: usize = 8;

/// Copies to `next` the sessions of `old` that are alive at `now_ns`, and the symbols they may refer to; `connected`
/// are the sessions with a connection.
pub(super) fn hand_over(
    next: &mut PartitionMemory,
    old: &PartitionMemory,
    connected: &FxHashSet<u64>,
    now_ns: u64,
) {
    next.dictionary.limit = old.dictionary.limit;
    next.session_limit = old.session_limit;
    // Agent clocks may be arbitrarily wrong, so they do not decide for sessions that sent something to this partition.
    let is_alive = |id: &u64, session: &StoredSession| {
        let has_sent = connected.contains(id) || session.applied > 0;
        session.seen.goodbye.is_none() && (has_sent || session.is_alive(now_ns))
    };
    let alive = old.sessions.iter().filter(|(id, session)| is_alive(id, session));
    let (mut online, mut offline): (Vec<_>, Vec<_>) = alive.partition(|(id, _)| connected.contains(id));
    online.sort_by_key(|(_, session)| session.dictionary_bytes + session.rows.bytes());
    offline.sort_by_key(|(_, session)| Reverse((session.applied, session.seen.last_ns)));
    for (sessions, share) in [(online, CONNECTED_SHARE), (offline, OTHERS_SHARE)] {
        let limit = next.session_limit.0 / share;
        for (&id, session) in sessions {
            let mut carried = session.for_next_partition();
            let fits = |next: &PartitionMemory, bytes: usize| next.session_bytes() + bytes <= limit;
            let has_symbols = session.symbols == Symbols::Present
                && !session.lacks_symbols
                && fits(next, carried.bytes() + session.rows.bytes())
                && copy_symbols(next, &mut carried, session, old, share);
            if !has_symbols {
                carried.symbols = Symbols::Dropped;
                if !fits(next, carried.bytes()) {
                    carried.remove_threads();
                }
                if share != CONNECTED_SHARE && !fits(next, carried.bytes()) {
                    // The session is dropped, like one that was silent for too long.
                    continue;
                }
            }
            next.insert_session(id, carried);
        }
    }
}

/// Copies the symbols of `session` to `carried`, all of them or none; returns whether they fit.
fn copy_symbols(
    next: &mut PartitionMemory,
    carried: &mut StoredSession,
    session: &StoredSession,
    old: &PartitionMemory,
    share: usize,
) -> bool {
    let dictionary = &mut next.dictionary;
    let (limit, before) = (dictionary.limit, dictionary.bytes());
    dictionary.limit /= share;
    let rows = session.rows.renumbered(dictionary, &old.dictionary);
    let fits = dictionary.refused() == 0;
    dictionary.clear_refused();
    dictionary.limit = limit;
    if fits {
        carried.dictionary_bytes = dictionary.bytes() - before;
        carried.rows = rows;
    }
    fits
}
