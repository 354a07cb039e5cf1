//! The modes of the sessions of a selection.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use super::error::QueryError;
use crate::session::mode::Mode;

/// The modes of several sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes(BTreeSet<Mode>);

impl Modes {
    /// Adds the mode of a process.
    pub fn insert(&mut self, mode: Mode) {
        self.0.insert(mode);
    }

    /// Returns whether all times have the same meaning.
    pub fn can_be_summed(&self) -> bool {
        self.0.len() < 2
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
        let first = self.0.iter().next().filter(|_| !self.can_be_summed())?.name();
        Some(format!(
            "the sums mix modes whose times differ in meaning ({names}); select one, as with --label mode={first}"
        ))
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|mode| mode.name()).collect()
    }
}

impl Serialize for Modes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.names().serialize(serializer)
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
