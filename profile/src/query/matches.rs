//! The sessions and threads of a part that a selection matches.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::QueryError;
use super::selection::Selection;
use crate::source::{Extent, Part};

/// Matching sessions with their matching threads; `None` stands for all sessions, or all threads of a session.
pub struct Matches(Option<FxHashMap<u64, Option<FxHashSet<u32>>>>);

impl Matches {
    /// Returns the matches of `selection` in `part`. Reads sessions only if the selection filters sessions or threads.
    pub fn of(part: &dyn Part, selection: &Selection) -> Result<Matches, QueryError> {
        let extent = match (selection.filters_sessions(), selection.filters_threads()) {
            (false, false) => return Ok(Matches(None)),
            (true, false) => Extent::Account,
            (_, true) => Extent::Threads,
        };
        let mut matches = FxHashMap::default();
        part.sessions(extent, &|_| true, &mut |id, session| {
            if selection.matches_session(id, session) {
                matches.insert(id, selection.matching_threads(session));
            }
        })?;
        Ok(Matches(Some(matches)))
    }

    pub fn has_session(&self, session: u64) -> bool {
        self.0.as_ref().is_none_or(|sessions| sessions.contains_key(&session))
    }

    pub fn has_thread(&self, session: u64, thread: u32) -> bool {
        let Some(sessions) = &self.0 else { return true };
        sessions.get(&session).is_some_and(|threads| threads.as_ref().is_none_or(|ids| ids.contains(&thread)))
    }
}
