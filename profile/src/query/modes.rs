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

    /// Returns whether times of both sides have the same meaning, also if one of them has no processes.
    ///
    /// # Errors
    /// [`QueryError::DifferentModes`].
    pub fn check(before: &[impl AsRef<str>], after: &[impl AsRef<str>]) -> Result<(), QueryError> {
        let (before, after) = (text_of(before), text_of(after));
        match before.is_empty() || after.is_empty() || before == after {
            true => Ok(()),
            false => Err(QueryError::DifferentModes(before, after)),
        }
    }

    /// Returns a warning if the times of the processes have different meanings.
    pub fn warning(&self) -> Option<String> {
        let names = text_of(&self.names());
        let first = self.0.iter().next().filter(|_| self.0.len() > 1)?.name();
        Some(format!(
            "the sums mix modes whose times differ in meaning ({names}); select one, as with --label mode={first}"
        ))
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|mode| mode.name()).collect()
    }
}

fn text_of(modes: &[impl AsRef<str>]) -> String {
    modes.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")
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

    #[test]
    fn times_of_different_modes_are_neither_compared_nor_summed_silently() {
        let check =
            |before: &[&str], after: &[&str]| Modes::check(before, after).map_err(|error| error.to_string());
        assert_eq!(check(&["wall"], &["wall"]), Ok(()));
        assert_eq!(check(&[], &["wall"]), Ok(()), "a side without processes");
        let error = "the sides have different modes (wall and cputime), so their times cannot be compared";
        assert_eq!(check(&["wall"], &["cputime"]), Err(error.to_owned()));
        let warning = |modes: &[Mode]| Modes(modes.iter().copied().collect()).warning();
        assert_eq!(warning(&[Mode::Wall]), None);
        let mixed = warning(&[Mode::Wall, Mode::CpuTime]).expect("a warning");
        assert!(mixed.contains("cputime, wall") && mixed.ends_with("--label mode=cputime"), "{mixed}");
    }
}
