//! The parser: one pass over the parts of a text, then the checks that need all of them.
//!
//! Invariant: every mistake is looked for to the end of the text, because `strict` may come last.

use std::path::PathBuf;

use super::draft::Draft;
use super::words::{self, Meaning, Reading};
use super::{Action, Door, Request};
use crate::error::{BadRequest, OptionError, Warning};
use crate::kinds::file_name;
use crate::kinds::output::{Format, ResultFile, format_of, is_of_the_command};
use crate::options::{ClockOption, Mode, Options};
use crate::values::SIGNALS_OF_EVENTS;

/// Options that name a destination.
const DESTINATIONS: [&str; 2] = ["file", "collector"];

impl Request {
    /// Reads a request; empty parts are skipped.
    ///
    /// # Errors
    /// The leftmost mistake.
    pub fn parse(door: Door, text: &str) -> Result<Self, BadRequest> {
        Self::of_layers(door, &[text])
    }

    /// Reads a request from several texts: the last is the request, the ones before have defaults for a start. A
    /// destination in one of them replaces those of the ones before.
    ///
    /// # Errors
    /// The leftmost mistake.
    pub fn of_layers(door: Door, layers: &[&str]) -> Result<Self, BadRequest> {
        let read = |layers: &[&str]| {
            let mut draft = Draft::new(door);
            layers.iter().for_each(|layer| draft.read(layer));
            draft
        };
        let last = read(layers.get(layers.len().saturating_sub(1)..).unwrap_or_default());
        match last.starts() && layers.len() > 1 {
            true => read(layers).finish(),
            false => last.finish(),
        }
    }
}

impl Draft {
    /// Returns whether a start is requested, as far as the text is read.
    fn starts(&self) -> bool {
        matches!(self.action.or(self.door.action()), Some(Action::Start | Action::Resume))
    }

    fn read(&mut self, text: &str) {
        self.layer += 1;
        // The texts before are defaults, which may be without effect.
        self.given.clear();
        self.warnings.clear();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
            if DESTINATIONS.contains(&name) {
                self.forget_former_destination();
            }
            self.parts.push(part.to_owned());
            if let Err(error) = self.read_part(name, value) {
                self.error.get_or_insert(error);
            }
        }
    }

    /// A destination replaces those of the texts before.
    fn forget_former_destination(&mut self) {
        if self.destination.replace(self.layer) == Some(self.layer) {
            return;
        }
        let is_destination = |part: &str| DESTINATIONS.contains(&part.split('=').next().unwrap_or_default());
        self.parts.retain(|part| !is_destination(part));
        (self.options.pattern, self.options.collector) = (None, None);
    }

    fn read_part(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        let reading = match words::meaning(name) {
            None => Reading::Option,
            Some(Meaning::Action(action)) if value.is_none() => self.act(*action)?,
            Some(Meaning::Action(_)) => Reading::Option,
            Some(Meaning::Format(format)) => {
                self.format = Some(*format);
                Reading::Done
            }
            Some(Meaning::SameAs(option)) => return self.set(option, value),
            Some(Meaning::NoEffect(reason)) => Reading::NoEffect(reason),
            Some(Meaning::NotSampled) => {
                self.not_sampled.get_or_insert_with(|| name.to_owned());
                Reading::NoEffect("CPU time or wall time is sampled")
            }
            Some(Meaning::Read(read)) => read(self, value)?,
        };
        match reading {
            Reading::Done => Ok(()),
            Reading::Option => self.set(name, value),
            Reading::NoEffect(remedy) => {
                self.warnings.push(Warning::NoEffect { word: name.to_owned(), remedy });
                Ok(())
            }
        }
    }

    /// Checks what needs the whole text, and returns the request.
    fn finish(mut self) -> Result<Request, BadRequest> {
        let finished = self.finish_parts();
        let finished = self.error.take().map_or(finished, Err).and_then(|finished| {
            self.without_warnings_if_strict()?;
            Ok(finished)
        });
        match finished {
            Ok((action, file)) => Ok(self.request(action, file)),
            Err(error) => Err(BadRequest {
                error,
                is_strict: self.options.strict,
                mode: self.options.mode,
                messages: self.messages,
            }),
        }
    }

    fn without_warnings_if_strict(&self) -> Result<(), OptionError> {
        match self.warnings.first().filter(|_| self.options.strict) {
            Some(warning) => Err(OptionError::Strict(warning.clone())),
            None => Ok(()),
        }
    }

    fn finish_parts(&mut self) -> Result<(Action, Option<PathBuf>), OptionError> {
        self.finish_event()?;
        self.find_options_of_other_modes();
        let Options { dumps, signal, .. } = &self.options;
        if let Some(signal) = dumps.signal.filter(|_| dumps.signal == *signal) {
            return Err(OptionError::SameSignal(signal));
        }
        self.check_signal()?;
        // A text with a command is one of async-profiler's.
        self.output.internal_names = (self.door == Door::Java || self.action.is_some()) && !self.is_dotted;
        let pattern = self.options.pattern.clone();
        // What the launcher starts is async-profiler's in every respect.
        let unnamed = if self.messages.is_some() { Format::Text } else { self.door.format() };
        let named = pattern.as_deref().and_then(format_of);
        let writes = self.format.is_some() || pattern.is_some();
        let action = self.action.or(self.door.action()).or(writes.then_some(Action::Dump));
        match action.ok_or(OptionError::NoCommand)? {
            action @ (Action::Start | Action::Resume) => {
                self.output.format = self.format.or(named).unwrap_or(unnamed);
                self.place(pattern.as_deref(), named)?;
                Ok((action, None))
            }
            action => {
                self.output.format = self.format.or(named).unwrap_or(Format::Text);
                Ok((action, pattern.as_deref().map(|pattern| self.path_of(pattern))))
            }
        }
    }

    /// Checks that the signal suits the clock.
    fn check_signal(&self) -> Result<(), OptionError> {
        let Some(signal) = self.options.signal else { return Ok(()) };
        match (self.options.clock, SIGNALS_OF_EVENTS.contains(&signal)) {
            (ClockOption::Perf, false) => Err(OptionError::SignalOfTimers(signal)),
            (ClockOption::Timer, true) => Err(OptionError::SignalOfEvents(signal)),
            _ => Ok(()),
        }
    }

    /// Chooses between CPU time and wall time.
    fn finish_event(&mut self) -> Result<(), OptionError> {
        match self.wall.take() {
            Some(_) if self.has_event && self.options.mode != Mode::Wall => {
                let remedy = "a profile samples one event; write event=wall without event=cpu";
                self.warnings.push(Warning::NoEffect { word: "wall".to_owned(), remedy });
            }
            Some(interval) => {
                self.has_event = true;
                self.options.mode = Mode::Wall;
                self.options.interval = interval.unwrap_or(self.options.interval);
            }
            None => {}
        }
        match self.not_sampled.take() {
            Some(event) if !self.has_event => Err(OptionError::Event(event)),
            _ => Ok(()),
        }
    }

    fn find_options_of_other_modes(&mut self) {
        let mode = self.options.mode;
        let others = self.given.iter().filter(|(option, value)| {
            !option.modes.contains(&mode) && option.default_value() != Some(value.as_str())
        });
        let warnings = others.map(|(option, value)| {
            let separator = if option.is_switch() { "" } else { "=" };
            Warning::OtherMode { option: format!("{}{separator}{value}", option.name), mode }
        });
        self.warnings.extend(warnings);
    }

    /// Sets the file that a profile writes; `named` is the format that its name stands for.
    fn place(&mut self, pattern: Option<&str>, named: Option<Format>) -> Result<(), OptionError> {
        let repeats = self.options.repeats_after.is_some();
        let pattern = match pattern {
            Some(pattern) if repeats && !pattern.contains(file_name::TIME) => {
                return Err(OptionError::SameFile);
            }
            Some(pattern) => pattern,
            None if self.options.mode == Mode::Api => return Ok(()),
            None if self.options.collector.is_some() && repeats => {
                return Err(OptionError::NothingToDivide);
            }
            None if self.options.collector.is_some() => return Ok(()),
            None if repeats => return self.record_to(file_name::DEFAULT_PATTERN_OF_PERIODS),
            None if self.door.names_recording() => return self.record_to(file_name::DEFAULT_PATTERN),
            None => return Ok(()),
        };
        let is_recording = self.output.format == Format::Recording;
        if named.is_none() && self.format.is_none() && is_recording && is_of_the_command(pattern) {
            return Err(OptionError::OtherFormat(pattern.to_owned()));
        }
        match is_recording {
            true => self.record_to(pattern)?,
            false => {
                let result = ResultFile { path: self.path_of(pattern), output: self.output };
                self.options.result = Some(result);
            }
        }
        Ok(())
    }

    fn record_to(&mut self, pattern: &str) -> Result<(), OptionError> {
        self.options.file = Some(self.path_of(pattern));
        Ok(())
    }

    /// Returns the path that a pattern stands for; in the command, its variables are unknown.
    fn path_of(&self, pattern: &str) -> PathBuf {
        file_name::path(pattern).unwrap_or_else(|| pattern.into())
    }

    fn request(self, action: Action, file: Option<PathBuf>) -> Request {
        let writes = self.format.is_some() || file.is_some() || self.options.result.is_some();
        Request {
            door: self.door,
            action,
            output: writes.then_some(self.output),
            file,
            options: self.options,
            text: self.parts.join(","),
            filter: self.filter,
            is_quiet: self.is_quiet,
            messages: self.messages,
            reply: self.reply,
            warnings: self.warnings,
        }
    }
}
