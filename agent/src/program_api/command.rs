//! The commands of async-profiler's API: a list of words and `name=value`, separated by commas.
//!
//! Words that name what Tickwalk does are read here; all others are options of the agent, whose parser also says what to
//! write in place of events and options that have no counterpart.
//! Source: async-profiler 4, `docs/ProfilerOptions.md`, `docs/IntegratingAsyncProfiler.md`.

use crate::options::{Options, file_name};
use crate::profile::output::{Format, Output, format_of};
use crate::profile::results::Failure;

/// The effect of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start a profile.
    Start,
    /// Start a profile and keep the results of the last one.
    Resume,
    /// End the profile; write a result if one is asked for.
    Stop,
    /// Write a result.
    Dump,
    /// Tell whether a profile runs.
    Status,
    /// Check the options.
    Check,
    /// List the events.
    List,
    /// Tell the version.
    Version,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The effect.
    pub action: Action,
    /// Options of the agent, checked.
    pub options: String,
    /// Result that is asked for.
    pub output: Option<Output>,
    /// File for the result.
    pub file: Option<String>,
    /// True if results have the samples of chosen threads only.
    pub filters: bool,
}

/// Words for the looks of results, and sizes of memory, without effect here: the page has its own looks and search, names
/// are complete, native frames are always unwound.
const WITHOUT_EFFECT: [&str; 21] = [
    "title",
    "width",
    "height",
    "minwidth",
    "reverse",
    "inverted",
    "simple",
    "norm",
    "sig",
    "ann",
    "lib",
    "cstack",
    "framebuf",
    "mcache",
    "features",
    "safemode",
    "loglevel",
    "chunksize",
    "chunktime",
    "clock",
    "quiet",
];

/// Words that would change which samples a result has, each with what to do instead.
const REFUSED: [(&str, &str); 12] = [
    ("include", "write a recording and select: tickwalk export --include"),
    ("exclude", "write a recording and select: tickwalk export --exclude"),
    ("alluser", "leave it out: samples have no frames of the kernel, and time there is part of the caller's"),
    ("allkernel", "leave it out: samples have no frames of the kernel"),
    ("alloc", "leave it out: Tickwalk samples CPU time only"),
    ("nativemem", "leave it out: Tickwalk samples CPU time only"),
    ("live", "leave it out: Tickwalk samples CPU time only"),
    ("lock", "leave it out: Tickwalk samples CPU time only"),
    ("wall", "write event=wall, with interval=T beside it"),
    ("jfrsync", "leave it out and write file=NAME.jfr"),
    ("begin", "leave it out: samples have no trigger"),
    ("end", "leave it out: samples have no trigger"),
];

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    /// [`Failure::Request`], for the leftmost mistake of the first kind: of this list, then of the agent's options.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let mut action = None;
        let mut output = Output::of(Format::Text);
        let mut format = None;
        let mut file = None;
        let mut pattern = "";
        let mut filters = false;
        let mut options: Vec<String> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
            if let Some((_, remedy)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                return Err(Failure::Request(format!("'{name}' has no effect in Tickwalk; {remedy}")));
            }
            match (name, value) {
                ("start", None) => action = Some(Action::Start),
                ("resume", None) => action = Some(Action::Resume),
                ("stop", None) => action = Some(Action::Stop),
                ("dump", None) => action = Some(Action::Dump),
                ("status", None) => action = Some(Action::Status),
                ("check", None) => action = Some(Action::Check),
                ("list", None) => action = Some(Action::List),
                ("version", _) => action = Some(Action::Version),
                ("collapsed", _) => format = Some(Format::Collapsed),
                ("flamegraph" | "tree", _) => format = Some(Format::Page),
                ("jfr", _) => format = Some(Format::Jfr),
                ("otlp", _) => format = Some(Format::Otlp),
                ("text", None) => format = Some(Format::Text),
                ("summary", _) => (format, output.summary) = (Some(Format::Text), true),
                ("traces", count) => {
                    (format, output.traces) = (Some(Format::Text), Some(number(name, count)?))
                }
                ("flat", count) => (format, output.flat) = (Some(Format::Text), Some(number(name, count)?)),
                ("samples", None) => output.total = false,
                ("total", None) => output.total = true,
                ("threads", None | Some("true")) => output.threads = true,
                ("filter", None | Some("" | "0")) => filters = true,
                ("filter", Some(_)) => {
                    return Err(Failure::Request(
                        "'filter' takes no list of threads; write filter, and add threads by the API"
                            .to_owned(),
                    ));
                }
                ("file", Some(given)) => (pattern, file) = (given, Some(path_of(given)?)),
                // A number without a unit is in nanoseconds; 0 stands for the default.
                ("interval", Some("0")) => {}
                ("interval", Some(value)) if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                    options.push(format!("interval={value}ns"));
                }
                (name, _) if WITHOUT_EFFECT.contains(&name) => {}
                _ => options.push(part.to_owned()),
            }
        }
        // Each period has a file of its own, so the agent keeps the pattern.
        if file.is_some() && options.iter().any(|option| option.starts_with("loop=")) {
            (options, file) = ([options, vec![format!("file={pattern}")]].concat(), None);
        }
        let options = options.join(",");
        Options::parse(&options)?;
        output.format = match (format, &file) {
            (Some(format), _) => format,
            (None, Some(file)) => format_of(file),
            (None, None) => Format::Text,
        };
        let wants_output = format.is_some() || file.is_some();
        let action = action.or(wants_output.then_some(Action::Dump)).ok_or_else(|| {
            Failure::Request("no command; write start, stop, dump, status or version, or a format".to_owned())
        })?;
        Ok(Self { action, options, output: wants_output.then_some(output), file, filters })
    }
}

/// Reads the most rows of a table; without a value all.
fn number(name: &str, value: Option<&str>) -> Result<usize, Failure> {
    match value {
        None => Ok(usize::MAX),
        Some(text) => {
            text.parse().map_err(|_| Failure::Request(format!("'{name}': '{text}' is not a number of rows")))
        }
    }
}

/// Returns the path that a pattern stands for.
fn path_of(pattern: &str) -> Result<String, Failure> {
    let path = Some(pattern).filter(|pattern| !pattern.is_empty()).and_then(file_name::path);
    let path = path.and_then(|path| path.into_os_string().into_string().ok());
    path.ok_or_else(|| Failure::Request(format!("'file': '{pattern}' is not a path")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, action: Action, format: Option<Format>) -> Command {
        let command = Command::parse(text).expect(text);
        assert_eq!((command.action, command.output.map(|output| output.format)), (action, format), "{text}");
        command
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = Command::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }

    /// As `org.openjdk.jmh.profile.AsyncProfiler` of JMH 1.37 writes them.
    #[test]
    fn commands_of_jmh() {
        check("version", Action::Version, None);
        let start = check("start,interval=1000000,threads=true,event=cpu", Action::Start, None);
        assert_eq!(start.options, "interval=1000000ns,event=cpu");
        let start = check("start,event=cpu,file=/tmp/b/jfr-cpu.jfr", Action::Start, Some(Format::Jfr));
        assert_eq!(start.file.as_deref(), Some("/tmp/b/jfr-cpu.jfr"));
        check("stop", Action::Stop, None);
        let text = check("flat=200,traces=100,event=cpu,file=/tmp/s.txt", Action::Dump, Some(Format::Text));
        let output = text.output.expect("a text");
        assert_eq!((output.flat, output.traces, output.summary), (Some(200), Some(100), false));
        check("summary,flat=200,traces=200,event=cpu,file=s", Action::Dump, Some(Format::Text));
        check("collapsed,event=cpu,file=/tmp/collapsed-cpu.csv", Action::Dump, Some(Format::Collapsed));
        check("flamegraph,reverse,event=cpu,title=x,file=a.html", Action::Dump, Some(Format::Page));
        check("tree,event=cpu,file=a.html", Action::Dump, Some(Format::Page));
        check("otlp,event=cpu,file=a.pb", Action::Dump, Some(Format::Otlp));
        assert!(check("start,filter,event=cpu", Action::Start, None).filters);
    }

    /// As async-profiler's own Java class writes them.
    #[test]
    fn commands_of_the_java_class() {
        assert!(check("collapsed,total", Action::Dump, Some(Format::Collapsed)).output.expect("one").total);
        let all = check("traces", Action::Dump, Some(Format::Text)).output.expect("one");
        assert_eq!((all.traces, all.flat), (Some(usize::MAX), None));
        assert_eq!(check("flat=10", Action::Dump, Some(Format::Text)).output.expect("one").flat, Some(10));
        assert_eq!(check("start,event=ctimer,interval=0", Action::Start, None).options, "event=ctimer");
        check("start,file=a.tickwalk,budget=1%", Action::Start, Some(Format::Recording));
        let timed = check("start,event=cpu,timeout=30s,file=a.html", Action::Start, Some(Format::Page));
        assert_eq!(timed.options, "event=cpu,timeout=30s");
        let periods = check("start,event=cpu,loop=1h,file=a-%t.jfr", Action::Start, None);
        assert_eq!(periods.options, "event=cpu,loop=1h,file=a-%t.jfr");
    }

    #[test]
    fn mistakes_say_what_to_write_instead() {
        check_error("start,event=alloc", "'alloc' is not sampled; write event=cpu");
        check_error("start,event=cpu,alloc=512k", "Tickwalk samples CPU time only");
        check_error("collapsed,include=*Foo*", "tickwalk export --include");
        check_error("start,intervall=1ms", "did you mean interval?");
        check_error("start,loop=1h,file=a.jfr", "write %t, the time, into file=");
        check_error("interval=1ms", "no command");
        check_error("flat=x", "not a number of rows");
        check_error("start,filter=1-5", "takes no list");
        check_error("stop,file=", "not a path");
    }
}
