//! The state of a thread, running or waiting. In a profile of wall time, each stack has one.

use std::borrow::Cow;

/// The state of a thread at the moment of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// It ran, or was ready to run and had no processor.
    Running,
    /// A system call of it waited in the kernel.
    Waiting,
}

impl ThreadState {
    const ALL: [Self; 2] = [Self::Running, Self::Waiting];

    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
        }
    }

    /// Returns the state with this number in messages.
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// Returns the number in messages, in which 0 is an unknown state.
    pub fn number(self) -> u32 {
        match self {
            Self::Running => 1,
            Self::Waiting => 2,
        }
    }

    /// Returns the text of a root: the stop reason, with the state if it is known.
    pub fn after(stop: &str, state: Option<Self>) -> Cow<'_, str> {
        state.map_or(Cow::Borrowed(stop), |state| Cow::Owned(format!("{stop} {}", state.name())))
    }

    /// Returns stop reason and state of the text of a root.
    pub fn split(root: &str) -> (&str, Option<Self>) {
        let parts = root.rsplit_once(' ');
        let state = parts.and_then(|(_, name)| Self::ALL.into_iter().find(|state| state.name() == name));
        state.and(parts).map_or((root, None), |(stop, _)| (stop, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_reason_and_state() {
        for state in [None, Some(ThreadState::Running), Some(ThreadState::Waiting)] {
            assert_eq!(ThreadState::of_number(state.map_or(0, ThreadState::number)), state);
            let root = ThreadState::after("end_of_stack", state);
            assert_eq!(ThreadState::split(&root), ("end_of_stack", state), "{root}");
        }
        assert_eq!(ThreadState::after("end_of_stack", Some(ThreadState::Waiting)), "end_of_stack waiting");
    }
}
