//! What a new partition takes over from the one before it.
//!
//! Problem: agents send names once, so a session that goes on needs in the next partition what it has sent; and whoever
//! makes up names must not fill the next dictionary with them before it has begun.
//! Approach: names go along for sessions that have a connection, those with the fewest first, up to half of the memory;
//! then for those that were heard of last, up to an eighth. The others go along without names, as far as there is room
//! for so much: when they come back they are told less than they were told before, upon which an agent sends its names
//! again, as to a collector that lost its memory (`design/wire-format.md`).
//! Invariants: what a session has stored is known wherever it goes along, so nothing is stored twice; a new partition
//! has half of its memory free.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use super::error::StoreError;
use super::memory::{CONNECTED_SHARE, PartitionMemory};
use super::partition::Partition;
use super::session::{StoredSession, Symbols};

/// As [`CONNECTED_SHARE`], for sessions without a connection.
const OTHERS_SHARE: usize = 8;

/// Starts `next` with what the sessions of `elder` that are alive at `now_ns` may still refer to; `connected` are those
/// that have a connection.
pub(super) fn hand_over(
    next: &Partition,
    elder: &Partition,
    connected: &FxHashSet<u64>,
    now_ns: u64,
) -> Result<(), StoreError> {
    let old = elder.memory.read();
    let mut memory = next.memory.write();
    let memory = &mut *memory;
    memory.dictionary.limit = old.dictionary.limit;
    memory.session_limit = old.session_limit;
    // Clocks of agents may stand anywhere, so whoever was heard of in this partition is not asked for its own.
    let is_alive = |id: &u64, session: &StoredSession| {
        let was_heard = connected.contains(id) || session.applied > 0;
        session.goodbye.is_none() && (was_heard || session.is_alive(now_ns))
    };
    let alive = old.sessions.iter().filter(|(id, session)| is_alive(id, session));
    let (mut here, mut away): (Vec<_>, Vec<_>) = alive.partition(|(id, _)| connected.contains(id));
    here.sort_by_key(|(_, session)| session.dictionary_bytes + session.row_bytes());
    away.sort_by_key(|(_, session)| Reverse((session.applied, session.last_ns)));
    let all = here.into_iter().zip(std::iter::repeat(CONNECTED_SHARE));
    for ((&id, session), share) in all.chain(away.into_iter().zip(std::iter::repeat(OTHERS_SHARE))) {
        let mut carried = session.for_next_partition();
        let room = memory.session_limit / share;
        let is_named = session.symbols == Symbols::Present
            && !session.lacks_symbols
            && memory.session_bytes() + carried.bytes() + session.row_bytes() <= room
            && copy_symbols(memory, &mut carried, session, &old, share);
        if !is_named {
            carried.symbols = Symbols::Dropped;
            if memory.session_bytes() + carried.bytes() > room {
                carried.remove_threads();
            }
            if share != CONNECTED_SHARE && memory.session_bytes() + carried.bytes() > room {
                // As one that was silent for too long.
                continue;
            }
        }
        memory.insert_session(id, carried);
    }
    Ok(())
}

/// Lets `carried` keep the names of `session` if they fit, all of them or none.
fn copy_symbols(
    memory: &mut PartitionMemory,
    carried: &mut StoredSession,
    session: &StoredSession,
    old: &PartitionMemory,
    share: usize,
) -> bool {
    let dictionary = &mut memory.dictionary;
    let (limit, before) = (dictionary.limit, dictionary.bytes());
    dictionary.limit /= share;
    let numbers = session.rows.renumbered(dictionary, &old.dictionary);
    let fits = dictionary.refused() == 0;
    dictionary.clear_refused();
    dictionary.limit = limit;
    if fits {
        carried.dictionary_bytes = dictionary.bytes() - before;
        *carried.rows = numbers;
    }
    fits
}
