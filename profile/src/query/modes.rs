//! The modes of the sessions of a selection.

use std::collections::BTreeSet;

use super::error::QueryError;
use super::selection::Selection;
use crate::session::mode::Mode;
use crate::source::{Extent, Source};

/// The modes of several sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes(BTreeSet<Mode>);

impl Modes {
    pub fn of(source: &dyn Source, selection: &Selection, now_ns: u64) -> Result<Modes, QueryError> {
        let span = selection.span(source, now_ns);
        let mut modes = BTreeSet::new();
        for part in source.parts() {
            part.sessions(Extent::Account, &|_| true, &mut |id, session| {
                if selection.is_during(session, &span) && selection.matches_session(id, session) {
                    modes.insert(session.mode());
                }
            })?;
        }
        Ok(Modes(modes))
    }

    /// Returns in words what the samples measure.
    pub fn time(&self) -> &'static str {
        match self.0.iter().collect::<Vec<_>>()[..] {
            [] => Mode::default().time(),
            [mode] => mode.time(),
            // Sums of different times mean nothing; the list of processes separates them.
            _ => "time of several modes",
        }
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|mode| mode.name()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_named_only_if_all_modes_are_equal() {
        let time = |modes: &[Mode]| Modes(modes.iter().copied().collect()).time();
        assert_eq!(time(&[]), "CPU time");
        assert_eq!(time(&[Mode::Wall]), "wall time");
        assert_eq!(time(&[Mode::Wall, Mode::CpuTime]), "time of several modes");
    }
}
