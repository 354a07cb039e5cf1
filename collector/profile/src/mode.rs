//! The mode of a profile: which time its samples stand for, and how they were taken.
//!
//! Invariant: every output states the mode, in its own words where it has them (`design/modes.md`).

use std::collections::BTreeSet;

use proto::v1::{self, Hello};

use crate::query::error::QueryError;
use crate::query::selection::Selection;
use crate::source::{Extent, Source};

/// The mode of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// CPU time, anywhere; also of sessions of agents that do not state a mode.
    #[default]
    CpuTime,
    /// Wall time, waiting included.
    Wall,
    /// CPU time, shown where threads stop for a safepoint.
    Jvmti,
}

impl Mode {
    /// Returns the mode of the session with this introduction.
    pub fn of(hello: &Hello) -> Mode {
        match hello.mode() {
            v1::Mode::CpuTime => Mode::CpuTime,
            v1::Mode::Wall => Mode::Wall,
            v1::Mode::Jvmti => Mode::Jvmti,
        }
    }

    /// Returns the name, which is the value of the agent's option.
    pub fn name(self) -> &'static str {
        match self {
            Mode::CpuTime => "cputime",
            Mode::Wall => "wall",
            Mode::Jvmti => "jvmti",
        }
    }

    /// Returns what the samples stand for, in words.
    pub fn time(self) -> &'static str {
        match self {
            Mode::CpuTime => "CPU time",
            Mode::Wall => "wall time",
            Mode::Jvmti => "CPU time (at safepoints)",
        }
    }

    /// Returns the name of the sample type in pprof and OTLP.
    pub fn sample_type(self) -> &'static str {
        match self {
            Mode::CpuTime | Mode::Jvmti => "cpu",
            Mode::Wall => "wall",
        }
    }

    /// Returns what a reader must know of a mode other than the usual one, as a sentence without capital and full stop.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Mode::CpuTime => None,
            Mode::Wall => Some("mode=wall: samples stand for wall time, waiting included"),
            Mode::Jvmti => Some(
                "mode=jvmti: samples show where threads stop for a safepoint, not where they use CPU time; compare with \
                 mode=cputime",
            ),
        }
    }
}

/// The modes of several sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes(BTreeSet<Mode>);

impl Modes {
    /// Returns the modes of the sessions of a selection.
    ///
    /// # Errors
    /// If the source cannot be read.
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

    /// Returns what the samples stand for, in words.
    pub fn time(&self) -> &'static str {
        match self.0.iter().collect::<Vec<_>>()[..] {
            [] => Mode::default().time(),
            [mode] => mode.time(),
            // Sums of different times mean nothing; the list of processes tells them apart.
            _ => "time of several modes",
        }
    }

    /// Returns the names of the modes.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|mode| mode.name()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_without_a_mode_is_of_cpu_time() {
        assert_eq!(Mode::of(&Hello::default()), Mode::CpuTime);
        let unknown = Hello { mode: 99, ..Hello::default() };
        assert_eq!(Mode::of(&unknown), Mode::CpuTime);
        let wall = Hello { mode: v1::Mode::Wall.into(), ..Hello::default() };
        assert_eq!((Mode::of(&wall).name(), Mode::of(&wall).sample_type()), ("wall", "wall"));
        assert_eq!(Mode::CpuTime.remark(), None);
    }

    #[test]
    fn several_modes_have_no_common_time() {
        let time = |modes: &[Mode]| Modes(modes.iter().copied().collect()).time();
        assert_eq!(time(&[]), "CPU time");
        assert_eq!(time(&[Mode::Wall]), "wall time");
        assert_eq!(time(&[Mode::Wall, Mode::CpuTime]), "time of several modes");
    }
}
