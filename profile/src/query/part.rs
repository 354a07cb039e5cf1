//! The part of a source that a question is about, for sources that are too large to be read as a whole.

use std::ops::Range;

use super::selection::Selection;
use crate::session::Session;
use crate::source::{ReadError, SharedSource, Source, Wanted};

/// Reads what `selections` select in `source`, without samples if `has_samples` is false; `None` if the source can be
/// asked itself.
///
/// # Errors
/// If the source cannot be read.
pub fn part_of(
    source: &dyn Source,
    selections: &[&Selection],
    has_samples: bool,
    now_ns: u64,
) -> Result<Option<SharedSource>, ReadError> {
    let ranges_ns: Vec<Range<u64>> = selections.iter().map(|selection| selection.limits_ns(now_ns)).collect();
    let is_limited = selections.iter().all(|selection| !selection.processes().is_empty());
    let processes = selections.iter().filter(|_| is_limited).flat_map(|selection| selection.processes());
    let is_selected = |id: u64, session: &Session| {
        selections.iter().any(|selection| selection.matches_session(id, session))
    };
    let filters = selections.iter().all(|selection| selection.filters_sessions());
    source.read_part(&Wanted {
        ranges_ns: &ranges_ns,
        processes: &processes.cloned().collect::<Vec<_>>(),
        sessions: filters.then_some(&is_selected),
        has_samples,
        is_over: &|| false,
    })
}
