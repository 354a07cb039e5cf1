//! The mode of a profile: which time its samples stand for.
//!
//! Invariant: every output states the mode, in its own words where it has them (`design/account.md`).

use proto::v1::{self, Hello};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// CPU time; also of sessions of agents that do not state a mode.
    #[default]
    CpuTime,
    /// Wall time, waiting included.
    Wall,
    /// CPU time, shown at the stacks of the next safepoints.
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
            Mode::Jvmti => "CPU time at safepoints",
        }
    }

    /// Returns the name of the sample type in pprof and OTLP.
    pub fn sample_type(self) -> &'static str {
        match self {
            Mode::CpuTime => "cpu",
            Mode::Wall => "wall",
            Mode::Jvmti => "cpu_at_safepoints",
        }
    }

    /// Returns what a reader must know of a mode other than the usual one, as a sentence without capital and full stop.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Mode::CpuTime => None,
            Mode::Wall => Some("mode=wall: samples stand for wall time, waiting included"),
            Mode::Jvmti => Some(
                "mode=jvmti: samples stand for CPU time, but their stacks are those of the next safepoints (GetStackTrace), \
                 which code without safepoint polls never reaches",
            ),
        }
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
        let jvmti = Mode::of(&Hello { mode: v1::Mode::Jvmti.into(), ..Hello::default() });
        assert_eq!((jvmti.name(), jvmti.sample_type()), ("jvmti", "cpu_at_safepoints"));
    }
}
