//! Questions a profile answers.
//!
//! [`selection`] says what a question is about; [`tree`], [`timeline`] and [`processes`] answer it from a store or
//! a recording, [`view`] as text. Command line, HTTP API and UI all ask through [`question`].
//! [`flamegraph`], [`threads`] and [`top`] answer for one whole session in memory.

pub mod drains;
pub mod flamegraph;
pub mod processes;
pub mod question;
pub mod selection;
pub mod threads;
pub mod timeline;
pub mod top;
pub mod tree;
pub mod view;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::store::View;
use selection::Selection;

/// Sessions, each with its threads, `None` for all of them.
type Wanted = FxHashMap<u64, Option<FxHashSet<u32>>>;

/// Sessions of `view` that are wanted, with the threads that are.
fn wanted(view: &View, selection: &Selection) -> Wanted {
    view.names(|_, sessions| {
        sessions
            .iter()
            .filter(|&(&id, session)| selection.wants_session(id, session))
            .map(|(&id, session)| (id, selection.threads_of(session)))
            .collect()
    })
}

/// Whether a thread of a session is among them.
fn wants(wanted: &Wanted, session: u64, thread: u32) -> bool {
    wanted.get(&session).is_some_and(|threads| threads.as_ref().is_none_or(|ids| ids.contains(&thread)))
}
