//! Questions a profile answers.
//!
//! [`selection`] says what a question is about; [`tree`], [`difference`], [`timeline`] and [`processes`] answer it from a store or
//! a recording, [`view`] as text. Command line, HTTP API and UI all ask through [`question`].
//! [`embedded`] is the data of the page in a file of its own. [`threads`] and [`top`] answer for one whole session in memory.

pub mod difference;
pub mod embedded;
mod growing;
pub mod processes;
pub mod question;
pub mod selection;
pub mod timeline;
pub mod tree;
pub mod view;

pub use ::profile::query::{drains, threads, top};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::store::{Extent, View};
use selection::{QueryError, Selection};

/// What is wanted of a view: `None` for everything, else sessions, each with its threads, `None` for all of them.
struct Wanted(Option<FxHashMap<u64, Option<FxHashSet<u32>>>>);

impl Wanted {
    /// What `selection` wants of `view`. Sessions are looked at only if it tells them, or their threads, apart.
    fn of(view: &View, selection: &Selection) -> Result<Wanted, QueryError> {
        let extent = match (selection.filters_sessions(), selection.filters_threads()) {
            (false, false) => return Ok(Wanted(None)),
            (true, false) => Extent::Account,
            (_, true) => Extent::Threads,
        };
        let mut wanted = FxHashMap::default();
        view.sessions(
            extent,
            |_| true,
            |id, session| {
                if selection.wants_session(id, session) {
                    wanted.insert(id, selection.threads_of(session));
                }
            },
        )?;
        Ok(Wanted(Some(wanted)))
    }

    fn has(&self, session: u64) -> bool {
        self.0.as_ref().is_none_or(|sessions| sessions.contains_key(&session))
    }

    fn has_thread(&self, session: u64, thread: u32) -> bool {
        let Some(sessions) = &self.0 else { return true };
        sessions.get(&session).is_some_and(|threads| threads.as_ref().is_none_or(|ids| ids.contains(&thread)))
    }
}
