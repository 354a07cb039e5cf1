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

/// Sessions of `view` that are wanted, each with the threads that are, `None` for all.
fn wanted(view: &View, selection: &Selection) -> FxHashMap<u64, Option<FxHashSet<u32>>> {
    view.names(|_, sessions| {
        sessions
            .iter()
            .filter(|&(&id, session)| selection.wants_session(id, session))
            .map(|(&id, session)| (id, selection.threads_of(session)))
            .collect()
    })
}
