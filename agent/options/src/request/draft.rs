//! A request while its text is read.

use std::path::PathBuf;
use std::time::Duration;

use super::{Action, Door, Filter};
use crate::error::{OptionError, Warning};
use crate::kinds::file_name;
use crate::kinds::output::{Format, Output};
use crate::options::Options;
use crate::table::{AgentOption, Checked};
use crate::values::Wrong;

/// Options and words read so far.
pub(crate) struct Draft {
    pub(crate) door: Door,
    pub(crate) action: Option<Action>,
    pub(crate) options: Options,
    /// Options as the present text has them.
    pub(crate) given: Vec<(&'static AgentOption, String)>,
    pub(crate) parts: Vec<String>,
    /// Number of the present text.
    pub(crate) layer: usize,
    /// The text that names the destination.
    pub(crate) destination: Option<usize>,
    pub(crate) format: Option<Format>,
    pub(crate) output: Output,
    /// True if the text names CPU or wall time.
    pub(crate) has_event: bool,
    /// Wall time beside another event, with its interval.
    pub(crate) wall: Option<Option<Duration>>,
    /// The first named event that is not sampled.
    pub(crate) not_sampled: Option<String>,
    /// True if names of classes have dots in every format.
    pub(crate) is_dotted: bool,
    pub(crate) filter: Option<Filter>,
    pub(crate) is_quiet: bool,
    pub(crate) messages: Option<PathBuf>,
    pub(crate) reply: Option<PathBuf>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) error: Option<OptionError>,
}

impl Draft {
    pub(crate) fn new(door: Door) -> Self {
        Self {
            door,
            action: None,
            options: Options::default(),
            given: Vec::new(),
            parts: Vec::new(),
            layer: 0,
            destination: None,
            format: None,
            output: Output::of(door.format()),
            has_event: false,
            wall: None,
            not_sampled: None,
            is_dotted: false,
            filter: None,
            is_quiet: false,
            messages: None,
            reply: None,
            warnings: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let Some(option) = AgentOption::of(name) else {
            self.warnings.push(Warning::Unknown(name.to_owned()));
            return Ok(());
        };
        let text = value.unwrap_or_default();
        if text.is_empty() && !option.is_switch() {
            return Err(OptionError::NoValue(name.to_owned()));
        }
        let bad =
            || OptionError::BadValue { option: option.name, value: text.to_owned(), expected: option.form };
        let is_unresolved = match option.checked {
            Checked::Pattern => file_name::path(text).is_none(),
            Checked::Anywhere | Checked::InJvm => false,
        };
        if option.is_switch() && value.is_some() || is_unresolved && self.door.is_in_jvm() {
            return Err(bad());
        }
        self.given.push((option, text.to_owned()));
        if option.checked == Checked::InJvm && !self.door.is_in_jvm() {
            return Ok(());
        }
        self.has_event |= option.name == "mode";
        (option.set)(&mut self.options, text).map_err(|wrong| match wrong {
            Wrong::Form => bad(),
            Wrong::TokenFile(error) => OptionError::TokenFile { path: text.to_owned(), error },
            Wrong::NoHooks => OptionError::NoHooks(text.to_owned()),
        })
    }
}
