//! Words of async-profiler beside the options: commands, formats, other spellings, and those without a counterpart.
//!
//! A word that is an option as well, such as `start=no`, is an option if it has a value that is not async-profiler's.
//! Source: async-profiler 4.5, `docs/ProfilerOptions.md`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::draft::Draft;
use super::{Action, Door, Filter};
use crate::error::OptionError;
use crate::kinds::output::Format;
use crate::options::Mode;
use crate::table::AgentOption;
use crate::values::{DEPTH_RANGE, INTERVALS, time};

/// Events of async-profiler that are CPU time.
const CPU_EVENTS: [&str; 4] = ["cpu", "ctimer", "itimer", "cpu-clock"];
/// How async-profiler's launcher names the file for messages that it shows and removes.
const LAUNCHER_LOG: &str = "/tmp/asprof-log.";
/// Ways of walking stacks that include native frames.
const NATIVE_WALKS: [&str; 5] = ["fp", "dwarf", "lbr", "vm", "vmx"];
/// Ways of taking time stamps; the first letter is enough.
const TIME_STAMPS: [&str; 4] = ["tsc", "monotonic", "t", "m"];

/// Outcome of reading a word.
pub(crate) enum Reading {
    Done,
    /// It is the option of the same name.
    Option,
    /// It has no effect, for this reason.
    NoEffect(&'static str),
}

pub(crate) enum Meaning {
    /// A command, if the word has no value.
    Action(Action),
    Format(Format),
    /// Another name of an option.
    SameAs(&'static str),
    /// No effect, with the reason or a remedy.
    NoEffect(&'static str),
    /// No effect beside CPU or wall time, which are sampled; alone it is an error.
    NotSampled,
    /// Read by this function.
    Read(fn(&mut Draft, Option<&str>) -> Result<Reading, OptionError>),
}

use Meaning::{NoEffect, NotSampled, Read, SameAs};
use Reading::Done;

pub(crate) static WORDS: &[(&[&str], Meaning)] = &[
    (&["start"], Meaning::Action(Action::Start)),
    (&["resume"], Meaning::Action(Action::Resume)),
    (&["stop"], Meaning::Action(Action::Stop)),
    (&["dump"], Meaning::Action(Action::Dump)),
    (&["status"], Meaning::Action(Action::Status)),
    (&["stacks"], Meaning::Action(Action::Stacks)),
    (&["check"], Meaning::Action(Action::Check)),
    (&["list"], Meaning::Action(Action::List)),
    (&["metrics", "meminfo"], Read(|_, _| Err(OptionError::OtherCommand))),
    (&["version"], Read(|draft, _| draft.act(Action::Version))),
    (&["reply"], Read(Draft::reply)),
    (&["collapsed"], Meaning::Format(Format::Collapsed)),
    (&["flamegraph", "tree"], Meaning::Format(Format::Page)),
    (&["jfr", "jfropts"], Meaning::Format(Format::Jfr)),
    (&["jfrsync"], Read(Draft::jfr_with_events_of_the_jdk)),
    (&["otlp"], Meaning::Format(Format::Otlp)),
    (&["text"], Meaning::Format(Format::Text)),
    (&["summary"], Read(Draft::summary)),
    (&["traces"], Read(Draft::traces)),
    (&["flat"], Read(Draft::flat)),
    (&["samples"], Read(|draft, _| draft.weigh(false))),
    (&["total"], Read(|draft, _| draft.weigh(true))),
    (&["event"], Read(Draft::event)),
    (&["cpu"], Read(|draft, _| draft.event(Some("cpu")))),
    (&["wall"], Read(Draft::wall)),
    (&["all"], Read(Draft::all)),
    (&["alloc", "live", "lock", "nativelock", "nativemem", "proc", "trace"], NotSampled),
    (&["tlab", "nofree"], NoEffect("allocation is not sampled")),
    (&["interval"], Read(Draft::interval)),
    (&["jstackdepth"], Read(Draft::stack_depth)),
    (&["timeout"], SameAs("duration")),
    (&["threads"], Read(Draft::threads)),
    (&["filter"], Read(Draft::filter)),
    (&["cstack"], Read(Draft::native_stacks)),
    (&["log"], Read(Draft::log)),
    (&["loglevel"], SameAs("log")),
    (&["quiet"], Read(Draft::quiet)),
    (&["clock"], Read(Draft::clock)),
    (&["dot"], Read(Draft::dotted)),
    (
        &[
            "simple", "norm", "sig", "ann", "lib", "title", "width", "height", "minwidth", "reverse",
            "inverted",
        ],
        NoEffect("pages, texts and stacks have looks of their own"),
    ),
    (
        &["include", "exclude"],
        NoEffect(
            "the agent keeps all stacks; select when you read them, as in tickwalk top --include PATTERN FILE",
        ),
    ),
    (
        &["alluser", "allkernel"],
        NoEffect("samples have no frames of the kernel, and time there is part of the caller's"),
    ),
    (
        &["framebuf", "mcache", "memlimit", "ratelimit", "chunksize", "chunktime"],
        NoEffect("the size of memory and files follows from the samples"),
    ),
    (
        &["begin", "end", "ttsp", "nostop"],
        NoEffect("a profile begins and ends by start, stop, timeout and loop"),
    ),
    (&["sched"], NoEffect("samples have no scheduling policy")),
    (&["record-cpu"], Read(|_, _| Err(OptionError::OneProcessor("record-cpu")))),
    (&["target-cpu"], Read(|_, _| Err(OptionError::OneProcessor("target-cpu")))),
    (&["features", "safemode"], NoEffect("stacks are walked in one way")),
    (&["nobatch"], NoEffect("each sample is kept")),
    (&["fdtransfer"], NoEffect("perf events are opened by the JVM itself")),
];

pub(crate) fn meaning(name: &str) -> Option<&'static Meaning> {
    WORDS.iter().find(|(words, _)| words.contains(&name)).map(|(_, meaning)| meaning)
}

/// Effects of words.
impl Draft {
    pub(crate) fn act(&mut self, action: Action) -> Result<Reading, OptionError> {
        if action == Action::Start {
            self.options.starts = true;
        }
        self.action = Some(action);
        Ok(Done)
    }

    pub(crate) fn reply(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        self.reply = value.map(PathBuf::from);
        Ok(Done)
    }

    pub(crate) fn summary(&mut self, _: Option<&str>) -> Result<Reading, OptionError> {
        (self.format, self.output.summary) = (Some(Format::Text), true);
        Ok(Done)
    }

    pub(crate) fn traces(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        (self.format, self.output.traces) = (Some(Format::Text), Some(rows("traces", value)?));
        Ok(Done)
    }

    pub(crate) fn flat(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        (self.format, self.output.flat) = (Some(Format::Text), Some(rows("flat", value)?));
        Ok(Done)
    }

    pub(crate) fn weigh(&mut self, total: bool) -> Result<Reading, OptionError> {
        self.output.total = total;
        Ok(Done)
    }

    pub(crate) fn dotted(&mut self, _: Option<&str>) -> Result<Reading, OptionError> {
        self.is_dotted = true;
        Ok(Done)
    }

    pub(crate) fn jfr_with_events_of_the_jdk(&mut self, _: Option<&str>) -> Result<Reading, OptionError> {
        self.format = Some(Format::Jfr);
        Ok(Reading::NoEffect("the flight recording has the samples only; write jfr"))
    }

    pub(crate) fn event(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        self.options.mode = match value {
            None | Some("") => return Err(OptionError::NoValue("event".to_owned())),
            Some(event) if CPU_EVENTS.contains(&event) && self.options.mode == Mode::Jvmti => Mode::Jvmti,
            Some(event) if CPU_EVENTS.contains(&event) => Mode::CpuTime,
            Some("wall") => Mode::Wall,
            Some(event) => return Err(OptionError::Event(event.to_owned())),
        };
        self.has_event = true;
        Ok(Done)
    }

    pub(crate) fn wall(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        let interval = value.filter(|value| *value != "0").map(|value| {
            let value = with_unit(value, "ns");
            let interval = time(&value, INTERVALS);
            interval.ok_or_else(|| bad_value("interval", &value))
        });
        self.wall = Some(interval.transpose()?);
        Ok(Done)
    }

    pub(crate) fn all(&mut self, _: Option<&str>) -> Result<Reading, OptionError> {
        self.has_event = true;
        Ok(Reading::NoEffect("one event is sampled; CPU time unless event=wall is written"))
    }

    /// A number without a unit is in nanoseconds; 0 stands for the default.
    pub(crate) fn interval(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        match value {
            Some("0") => Ok(Done),
            Some(value) if self.door == Door::Java || self.action.is_some() => {
                let value = with_unit(value, "ns");
                let shortest = time(&value, Duration::from_nanos(1)..=*INTERVALS.start());
                if shortest.is_some_and(|interval| interval < *INTERVALS.start()) {
                    self.options.interval = *INTERVALS.start();
                    return Ok(Reading::NoEffect("the shortest interval is 10us, which is used"));
                }
                self.set("interval", Some(&value))?;
                Ok(Done)
            }
            _ => Ok(Reading::Option),
        }
    }

    /// The least depth of async-profiler is one frame.
    pub(crate) fn stack_depth(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        let frames = value.and_then(|value| value.parse::<u32>().ok());
        let shallow = frames.filter(|frames| (1..*DEPTH_RANGE.start()).contains(frames));
        match shallow {
            Some(frames) => self.set("depth", Some(&format!("{frames}/{frames}")))?,
            None => self.set("depth", value)?,
        }
        Ok(Done)
    }

    /// Without a value, threads are apart in results; with one, it is an option.
    pub(crate) fn threads(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        if !matches!(value, None | Some("true")) {
            return Ok(Reading::Option);
        }
        self.output.threads = true;
        Ok(Done)
    }

    /// Reads ids of threads and ranges of them, as in `120-127;132`.
    pub(crate) fn filter(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        let parts = value.unwrap_or_default().split([';', '/', '+']).filter(|part| !part.is_empty());
        let threads: Option<Vec<RangeInclusive<i32>>> = parts
            .map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                Some(first.parse().ok()?..=last.parse().ok()?)
            })
            .collect();
        let threads = threads.ok_or_else(|| OptionError::BadValue {
            option: "filter",
            value: value.unwrap_or_default().to_owned(),
            expected: "a list of kernel thread ids and ranges, as in 120-127;132",
        })?;
        self.filter = Some(Filter { threads });
        Ok(Done)
    }

    pub(crate) fn native_stacks(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        if value.is_some_and(|value| !NATIVE_WALKS.contains(&value)) {
            (self.options.shown.native, self.options.shown.vm) = (false, false);
        }
        Ok(Done)
    }

    /// With a path instead of a level, this is the file for messages.
    pub(crate) fn log(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        match value.filter(|value| value.contains(['/', '.'])) {
            None => return Ok(Reading::Option),
            Some(path) if path.starts_with(LAUNCHER_LOG) => self.messages = Some(PathBuf::from(path)),
            path => self.set("logfile", path)?,
        }
        Ok(Done)
    }

    pub(crate) fn quiet(&mut self, _: Option<&str>) -> Result<Reading, OptionError> {
        self.is_quiet = true;
        Ok(Done)
    }

    pub(crate) fn clock(&mut self, value: Option<&str>) -> Result<Reading, OptionError> {
        match value {
            Some(value) if TIME_STAMPS.contains(&value) => {
                Ok(Reading::NoEffect("time stamps are those of the monotonic clock in every format"))
            }
            _ => Ok(Reading::Option),
        }
    }
}

/// Reads the most rows of a table; without a value all.
fn rows(option: &'static str, value: Option<&str>) -> Result<usize, OptionError> {
    let expected = "a number of rows";
    match value {
        None => Ok(usize::MAX),
        Some(text) => {
            text.parse().map_err(|_| OptionError::BadValue { option, value: text.to_owned(), expected })
        }
    }
}

/// Adds a unit to a number without one.
fn with_unit(value: &str, unit: &str) -> String {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("{value}{unit}") } else { value.to_owned() }
}

fn bad_value(name: &str, value: &str) -> OptionError {
    match AgentOption::of(name) {
        Some(option) => {
            OptionError::BadValue { option: option.name, value: value.to_owned(), expected: option.form }
        }
        None => OptionError::NoValue(name.to_owned()),
    }
}
