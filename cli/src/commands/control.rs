//! `tickwalk start`, `stop`, `dump` and `status`: profiles that the JVM writes to a file or sends to a collector
//! while no command waits.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use profile::characters::shown_lines;
use profile::export::Options;
use profile::export::table::{self, Report};
use profile::export::whole_file;
use profile::query::selection::Selection;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use super::profiling::Sampling;
use crate::jvm::agent::{self, Status};
use crate::jvm::attach::Jvm;
use crate::jvm::errors::AttachError;
use crate::jvm::foreign::{self, Links};
use crate::jvm::target::Target;
use crate::launch::agent_library;
use crate::launch::plain;
use crate::options::values::{Time, rows};
use crate::output::table::TableOutput;
use crate::output::{self, tell};
use crate::source::file_format::{FileFormat, ResultFile, ResultOptions, WrongResult, format_by_name};
use crate::source::{now_ns, read_recording};

/// Most bytes of a recording that are copied from another process; a profile of a busy JVM writes some 100 MB in a day.
const MAX_RECORDING: u64 = 8 << 30;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk start 4321                              writes 4321.tickwalk
  tickwalk start --duration 30s -o /tmp/app.html 4321   a page, after 30 s
  tickwalk start --loop 1h -o /var/log/app-%t.jfr 4321  a file an hour
  tickwalk start --collector 127.0.0.1:4170 4321
  tickwalk dump 4321                               the profile so far; it goes on
  tickwalk stop 4321

The JVM writes the recording, so FILE is a path that the JVM sees and its user may write to. An agent that was loaded
with start=no keeps its options, unless others are given here.")]
pub struct Start {
    #[command(flatten)]
    sampling: Sampling,
    /// Recording that the JVM writes; with the suffix of another format, that file when the profile ends. Or the name
    /// of a format, such as collapsed, or flat for the agent's table of methods, for the file of -f. `-o flat` without
    /// -f: 'tickwalk stop' prints the table [default: PID.tickwalk in the current directory]
    #[arg(short, long, value_name = "FILE|FORMAT", conflicts_with = "collector")]
    output: Option<PathBuf>,
    /// File to write, if --output is the name of a format
    #[arg(short, long, value_name = "FILE", conflicts_with = "collector")]
    file: Option<PathBuf>,
    /// End the profile after this time, such as 30s
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Time>,
    /// Start a new profile with a new file after each period of this length; %t in FILE stands for the time
    #[arg(long = "loop", value_name = "TIME", conflicts_with = "collector")]
    repeats_after: Option<Time>,
    /// Collector that the JVM sends its samples to: unix:PATH, HOST:PORT or tls:HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    collector: Option<String>,
    /// Process id of the JVM, or a part of its command such as the main class or jar
    #[arg(value_name = "PID|NAME")]
    jvm: Target,
}

#[derive(Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    shown: Shown,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The profile continues. The recording lacks at most the last second. If the profile goes to a collector, ask the collector.")]
pub struct Dump {
    #[command(flatten)]
    shown: Shown,
}

/// Options of the verbs that print the recording of a JVM.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("destination").args(["output", "file"]).multiple(true))]
struct Shown {
    /// Copy the recording to this file; a recording of the same name is kept as FILE.1. Or the name of a format, such
    /// as collapsed, for the file of -f
    #[arg(short, long, value_name = "FILE|FORMAT")]
    output: Option<PathBuf>,
    /// File to write, if --output is the name of a format
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Format of FILE, as for 'tickwalk export' [default: by the suffix of FILE, else a recording]
    #[arg(long, value_name = "FORMAT", requires = "destination", value_parser = format_by_name)]
    format: Option<FileFormat>,
    /// Methods shown in each table
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = rows)]
    top: usize,
    /// Print the account and the tables as JSON
    #[arg(long)]
    json: bool,
    /// Process id of the JVM, or a part of its command such as the main class or jar
    #[arg(value_name = "PID|NAME")]
    jvm: Target,
}

impl Shown {
    /// Returns the file that the options name.
    fn result(&self) -> Result<Option<ResultFile>, WrongResult> {
        let (output, file) = (self.output.as_deref(), self.file.as_deref());
        ResultFile::of(ResultOptions { output, file, format: self.format })
    }

    /// Checks that the copy can be written, before the profile is touched.
    fn check(&self) -> anyhow::Result<()> {
        self.result()?.map_or(Ok(()), |result| output::check_writable(&result.path))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
States:
  running      a profile is running
  waiting      loaded with start=no; 'tickwalk start' starts a profile
  idle         the last profile has ended
  starting, ending   the first or last samples are on their way
  off          after an internal error
  not loaded   the JVM has no agent
The exit code is 0 in each.")]
pub struct ShowStatus {
    #[command(flatten)]
    table: TableOutput,
    /// Process id of the JVM, or a part of its command such as the main class or jar
    #[arg(value_name = "PID|NAME")]
    jvm: Target,
}

pub fn start(arguments: &Start) -> anyhow::Result<ExitCode> {
    let Start { sampling, output, file, duration, repeats_after, collector, jvm: target } = arguments;
    let result =
        ResultFile::of(ResultOptions { output: output.as_deref(), file: file.as_deref(), format: None })?;
    let output = result.as_ref().map(|result| &*result.path);
    output.map_or(Ok(()), output::check_named)?;
    let seconds = |time: &Time| time.0.as_secs_f64();
    let duration = duration.iter().map(|time| format!("duration={}s", seconds(time)));
    let format = result.as_ref().map(ResultFile::agent_option).transpose()?.flatten().map(str::to_owned);
    let period = repeats_after.iter().map(|time| format!("loop={}s", seconds(time)));
    let more: Vec<String> = duration.chain(period).chain(format).collect();
    let file = output.map(plain).transpose()?.map(|path| format!("file={path}"));
    sampling.checked(more.iter().cloned().chain(file))?;
    let library = agent_library::find(sampling.agent.as_deref())?;
    let pid = target.pid()?;
    let jvm = Jvm::find(pid)?;
    let mut options = vec!["mode=cputime".to_owned()];
    options.extend(sampling.checked(more)?);
    let kept = Status::of(&jvm)?.filter(|status| status.state() == "waiting" && has_destination(status));
    match (collector, output, kept) {
        (Some(address), _, _) => options.push(format!("collector={address}")),
        (None, None, Some(_)) => {}
        (None, output, _) => {
            options.push(format!("file={}", recording_of(&jvm, output, repeats_after.is_some())?))
        }
    }
    // With this option the agent returns an error code if it cannot start, besides a line on the JVM's standard error.
    options.push("strict".to_owned());
    agent::start(&jvm, &library, &options.join(","))?;
    let status = Status::of(&jvm)?;
    let result = status.as_ref().and_then(|status| status.fact("result")).map(Path::new);
    let file = status.as_ref().and_then(Status::file).or(result).map(|file| file.display().to_string());
    let place = collector.as_ref().map(|address| format!("the collector {address}")).or(file);
    tell!(
        "tickwalk: JVM {pid} is being profiled{}",
        place.map_or(String::new(), |place| format!(", to {place}"))
    );
    tell!("tickwalk: 'tickwalk stop {pid}' ends the profile");
    Ok(ExitCode::SUCCESS)
}

/// Returns whether an agent that waits for a start was loaded with a destination.
fn has_destination(status: &Status) -> bool {
    let options = status.fact("waiting").unwrap_or_default();
    options.split(',').any(|part| part.starts_with("file=") || part.starts_with("collector="))
}

/// Returns the path of the recording for the agent.
fn recording_of(jvm: &Jvm, output: Option<&Path>, repeats: bool) -> anyhow::Result<String> {
    let pid = jvm.process().id();
    let default =
        PathBuf::from(if repeats { format!("{pid}-%t.tickwalk") } else { format!("{pid}.tickwalk") });
    let path = match output {
        Some(path) if path.is_absolute() => path.to_owned(),
        _ if !jvm.process().sees_our_files()? => bail!(
            "JVM {pid} has files of its own (a container, or its own /tmp); pass --output with an absolute path that it sees"
        ),
        path => std::path::absolute(path.unwrap_or(&default)).context("cannot find the current directory")?,
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let outer = jvm.process().outer_path(directory);
    if let Err(error) = jvm.owner().act(|| whole_file::check_folder(&outer)) {
        // The error must name the directory as the JVM sees it, not its path through /proc.
        bail!(
            "the user of JVM {pid} cannot write to {}: {error}; pass --output with a path in another directory",
            directory.display()
        );
    }
    Ok(plain(&path)?.to_owned())
}

pub fn stop(arguments: &Stop) -> anyhow::Result<ExitCode> {
    let pid = arguments.shown.jvm.pid()?;
    arguments.shown.check()?;
    let jvm = Jvm::find(pid)?;
    let status = Status::of(&jvm)?;
    agent::stop(&jvm)?;
    tell!("tickwalk: the profile of JVM {pid} has ended");
    match status.as_ref().and_then(Status::file) {
        Some(file) => show(&jvm, file, &arguments.shown, false),
        None => {
            if let Some(result) = status.as_ref().and_then(|status| status.fact("result")) {
                tell!("result       {result} (as JVM {pid} sees it)");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

pub fn dump(arguments: &Dump) -> anyhow::Result<ExitCode> {
    let pid = arguments.shown.jvm.pid()?;
    arguments.shown.check()?;
    let jvm = Jvm::find(pid)?;
    let status = Status::of(&jvm)?.filter(|status| status.state() == "running");
    if status.is_none() {
        return Err(AttachError::NotProfiled(pid).into());
    }
    match status.as_ref().and_then(Status::file) {
        Some(file) => show(&jvm, file, &arguments.shown, true),
        None if status.as_ref().is_some_and(|status| status.fact("result").is_some()) => bail!(
            "the profile of JVM {pid} is written in another format when it ends; 'tickwalk stop {pid}' ends it, and a profile \
             with file=NAME.tickwalk can be read at any time"
        ),
        None => bail!("the profile of JVM {pid} is not written to a file; its collector has the samples"),
    }
}

/// Prints the recording at `file`, a path that the JVM sees, and copies it if an output is named.
fn show(jvm: &Jvm, file: &Path, shown: &Shown, goes_on: bool) -> anyhow::Result<ExitCode> {
    // The copy does not grow while it is read.
    let directory = output::temporary_directory()?;
    let copy = directory.path().join("recording");
    let from = open_for(jvm, file).with_context(|| format!("cannot read {}", file.display()))?;
    let result = shown.result()?;
    if let Some(ResultFile { path, .. }) = &result
        && is_same_file(&from, path)
    {
        bail!("{} is the recording itself; name another file for the copy", path.display());
    }
    let mut to = fs::File::create(&copy).context("cannot write a temporary file")?;
    // The recording may grow meanwhile.
    let length = from.metadata().context("cannot read the recording")?.len();
    if length > MAX_RECORDING {
        bail!(
            "the recording {} has {length} bytes; read it with tickwalk top, export or query",
            file.display()
        );
    }
    io::copy(&mut from.take(length), &mut to).context("cannot copy the recording")?;
    let recording = read_recording(&copy)?;
    let (all, report) = (Selection::default(), Report { goes_on, ..Report::of_methods(shown.top) });
    let text = match shown.json {
        true => serde_json::to_string_pretty(&table::report_json(&recording, &all, report, now_ns())?)?,
        false => table::report(&recording, &all, report, now_ns())?,
    };
    output::print(|out| writeln!(out, "{text}"))?;
    tell!("recording    {} (as JVM {} sees it)", file.display(), jvm.process().id());
    if let Some(result) = &result {
        if result.format == FileFormat::Recording {
            let mut whole = fs::File::open(&copy).context("cannot read a temporary file")?;
            output::write_beside_existing(&result.path, |out| io::copy(&mut whole, out).map(drop))?;
        }
        result.write(&recording, Options::default(), &text)?;
        tell!("copy         {}", result.path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn is_same_file(file: &fs::File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let of_path = fs::metadata(path).ok().map(identity);
    of_path.is_some() && file.metadata().ok().map(identity) == of_path
}

/// Opens a regular file with the rights of the JVM's user, and as that user sees it: absolute links start at the
/// JVM's root.
fn open_for(jvm: &Jvm, file: &Path) -> io::Result<fs::File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Only this process may have the right to reach the root directory.
    let root = rustix::fs::open(jvm.process().root(), flags, Mode::empty())?;
    jvm.owner().act(|| foreign::open_below(&root, file, Links::Followed))
}

/// The status as JSON.
#[derive(Serialize)]
struct Described<'a> {
    pid: i32,
    state: &'a str,
    library: Option<&'a str>,
    facts: Option<&'a std::collections::BTreeMap<String, String>>,
}

pub fn status(arguments: &ShowStatus) -> anyhow::Result<ExitCode> {
    arguments.table.check()?;
    let pid = arguments.jvm.pid()?;
    let jvm = Jvm::find(pid)?;
    let status = Status::of(&jvm)?;
    let state = status.as_ref().map_or("not loaded", Status::state);
    if arguments.table.is_json() {
        let described = Described {
            pid,
            state,
            library: status.as_ref().map(|status| &*status.library),
            facts: status.as_ref().map(Status::facts),
        };
        arguments.table.write(&serde_json::to_vec(&described)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let running = status.as_ref().and_then(|status| status.fact("running_ns")?.parse::<u64>().ok());
    let mut text = match running {
        Some(ns) => format!("JVM {pid}      {state} for {:.1} s\n", ns as f64 / 1e9),
        None => format!("JVM {pid}      {state}\n"),
    };
    if let Some(status) = &status {
        for (name, label) in [
            ("file", "recording"),
            ("result", "result"),
            ("collector", "collector"),
            ("options", "options"),
            ("waiting", "loaded with"),
            ("version", "version"),
        ] {
            if let Some(value) = status.fact(name) {
                text.push_str(&format!("{label:<12} {value}\n"));
            }
        }
        text.push_str(&format!("{:<12} {}\n", "library", status.library));
    }
    arguments.table.write(shown_lines(&text).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
