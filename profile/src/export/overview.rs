//! A summary of a selection as text, for a reader who has nothing else: account, hot methods, threads, processes.

use crate::export::table::{self, Report};
use crate::query::error::QueryError;
use crate::query::selection::Selection;
use crate::query::view::view;
use crate::source::Source;

/// Rows of each table.
const ROWS: usize = 10;

/// Returns the report of the selection, its busiest threads and its processes.
///
/// # Errors
/// If the source cannot be read, or the selection has no samples.
pub fn text(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<String, QueryError> {
    let mut text = table::report(source, selection, Report::of_methods(ROWS), now_ns)?;
    for (title, name) in [("Threads", "threads"), ("Processes", "processes")] {
        text.push_str(&format!("\n{title}\n"));
        text.push_str(&view(name, source, selection, ROWS, now_ns)?);
    }
    Ok(text)
}
