//! Options and report that `record` and `attach` share.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use collector::address::Address;
use collector::ingest::{Destination, Limits, Server, SessionReport};
use profile::export::Options;
use profile::export::table::{self, Report};
use profile::export::whole_file::Readers;
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::summary::Summary;
use profile::text::format::Format;
use profile::text::quantity::duration;
use profile::ui::standalone;

use super::busiest::{Recorded, busiest_first};
use crate::options::agent_flags::{self, AgentFlags, WrongOptions};
use crate::options::values::rows;
use crate::output::{self, tell};
use crate::source::file_format::{FileFormat, ResultFile, ResultOptions, WrongResult, format_by_name};
use crate::source::{now_ns, read_recording};

/// Options of sampling.
#[derive(Debug, Default, Args)]
pub struct Sampling {
    /// Event by async-profiler's name, instead of --mode: cpu, ctimer, itimer or wall
    #[arg(short, long, value_name = "EVENT", conflicts_with = "mode")]
    pub event: Option<String>,
    /// Agent library [default: TICKWALK_AGENT, or libtickwalk.so near this program]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// Further option for the agent; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub agent_option: Vec<String>,
    #[command(flatten)]
    named: AgentFlags,
}

impl Sampling {
    /// Returns unchecked options of the agent.
    pub fn of(options: Vec<String>) -> Self {
        Self { agent_option: options, ..Self::default() }
    }

    /// Returns the agent's options and `more`, which come last and so override them. All are checked, so that
    /// mistakes are found before anything starts.
    pub fn checked(&self, more: impl IntoIterator<Item = String>) -> Result<Vec<String>, WrongOptions> {
        let event = self.event.iter().map(|event| format!("event={event}"));
        let mut all: Vec<String> = event.chain(self.named.options()).collect();
        all.extend(self.agent_option.iter().cloned());
        all.extend(more);
        if chooses_java(&all) {
            all.push("threads=kind=java".to_owned());
        }
        agent_flags::check("", &all.join(","))?;
        Ok(all)
    }
}

/// Returns whether the options leave the choice of threads open where threads of the JVM would hide those of the
/// program: nearly all of their wall time is waiting.
fn chooses_java(options: &[String]) -> bool {
    let is_wall = options.iter().any(|option| ["mode=wall", "event=wall"].contains(&option.as_str()));
    let is_chosen = ["threads", "skipthreads", "filter"];
    let name = |option: &String| option.split('=').next().unwrap_or_default().to_owned();
    is_wall && !options.iter().any(|option| is_chosen.contains(&name(option).as_str()))
}

/// Options of the results.
#[derive(Debug, Args)]
pub struct Results {
    /// Recording to write; with the suffix of another format, that file and the recording beside it. Or the name of a
    /// format, such as flamegraph, for the file of -f [default: recording.tickwalk]
    #[arg(short, long, value_name = "FILE|FORMAT")]
    output: Option<PathBuf>,
    /// File to write, if --output is the name of a format
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep threads apart in the stacks of --output
    #[arg(short = 't')]
    by_thread: bool,
    /// Format of FILE, as for 'tickwalk export' [default: by the suffix of FILE, else a recording]
    #[arg(long, value_name = "FORMAT", value_parser = format_by_name)]
    format: Option<FileFormat>,
    /// Also write the account of CPU time as JSON
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Flame graph to write [default: the recording's name with .html]
    #[arg(long, value_name = "FILE")]
    pub flamegraph: Option<PathBuf>,
    /// Open the flame graph in the browser
    #[arg(long)]
    open: bool,
    /// Methods shown in each table
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = rows)]
    pub top: usize,
    /// Also print how the samples were collected: rate, requests, queues, pauses
    #[arg(long)]
    pub verbose: bool,
}

impl Results {
    /// Returns the file that the options name.
    fn result(&self) -> Result<ResultFile, WrongResult> {
        let (output, file) = (self.output.as_deref(), self.file.as_deref());
        let usual = || ResultFile {
            path: "recording.tickwalk".into(),
            format: FileFormat::Recording,
            is_format_named: false,
        };
        let named = ResultFile::of(ResultOptions { output, file, format: self.format })?;
        Ok(named.unwrap_or_else(usual))
    }

    /// Returns the path of the recording.
    ///
    /// # Errors
    /// If the options name a format that is not written.
    pub fn recording(&self) -> Result<PathBuf, WrongResult> {
        let ResultFile { path, format, .. } = self.result()?;
        Ok(format.recording_path(&path))
    }

    /// Returns the path of the page, unless `--output` is the page.
    fn page(&self) -> Result<PathBuf, WrongResult> {
        let ResultFile { path, format, .. } = self.result()?;
        Ok(match (&self.flamegraph, format) {
            (Some(page), _) => page.clone(),
            // The output is the page.
            (None, FileFormat::Export(Format::Flamegraph)) => path,
            (None, _) => format.recording_path(&path).with_extension("html"),
        })
    }

    /// Checks that every file can be written; callers check before they start a program.
    pub fn check(&self) -> anyhow::Result<()> {
        let (recording, page, result) = (self.recording()?, self.page()?, self.result()?);
        let output = Some(result.path).filter(|output| *output != recording && *output != page);
        let all = [Some(&recording), Some(&page), self.summary.as_ref(), output.as_ref()];
        let all: Vec<&PathBuf> = all.into_iter().flatten().collect();
        for (place, path) in all.iter().enumerate() {
            if all[..place].contains(path) {
                bail!("{} is named for two files; choose another name for one of them", path.display());
            }
            output::check_writable(path)?;
        }
        Ok(())
    }

    /// Starts a server that agents reach at `socket`, and that writes the recording.
    pub fn receive(&self, socket: &Path) -> anyhow::Result<Server> {
        let destination = Destination::File(self.recording()?);
        Server::start(&Address::Unix(socket.to_owned()), destination, Limits::default())
            .with_context(|| format!("cannot listen on {}; set TMPDIR to a short path", socket.display()))
    }

    /// Prints the hot methods of the recording at `path`, and writes its page and the other files.
    pub fn report_one(&self, path: &Path) -> anyhow::Result<()> {
        output::sudo::hand_over(path);
        let recording = read_recording(path)?;
        let all = Selection::default();
        let report = Report { verbose: self.verbose, ..Report::of_methods(self.top) };
        let text = table::report(&recording, &all, report, now_ns())?;
        tell!("\ntickwalk: {text}");

        let (page, result) = (self.page()?, self.result()?);
        output::write_file(&page, Readers::Owner, |out| standalone::write(&recording, &all, now_ns(), out))?;
        tell!("recording    {}", path.display());
        tell!("flame graph  {}", page.display());
        if result.format != FileFormat::Recording && result.path != page {
            let options = Options { threads: self.by_thread, ..Options::default() };
            result.write(&recording, options, &text)?;
            tell!("{:<12} {}", result.format.name(), result.path.display());
        }
        if let Some(path) = &self.summary {
            write_summary(path, &Summary::new(&ProcessProfile::whole(&recording)?))?;
            tell!("summary      {}", path.display());
        }
        if self.open {
            output::browser::open(&page);
        }
        Ok(())
    }

    /// Prints the hot methods of the busiest session, writes its page and summary, and lists the others.
    pub fn report(&self, sessions: Vec<SessionReport>) -> anyhow::Result<()> {
        // A recording that could not be created was reported earlier.
        let sessions = sessions.into_iter().filter(|session| session.path.exists()).collect();
        let sessions = busiest_first(sessions, &self.recording()?);
        let Some((Recorded { report: session, cpu_ns }, others)) = sessions.split_first() else {
            return Ok(());
        };
        self.report_one(&session.path)?;
        if !others.is_empty() {
            let command = &session.hello.command;
            tell!(
                "busiest JVM  {} CPU time, pid {}: {}",
                duration(*cpu_ns),
                session.hello.pid,
                beginning(command)
            );
        }
        for Recorded { report, cpu_ns } in others {
            output::sudo::hand_over(&report.path);
            tell!(
                "further JVM  {} CPU time, pid {}: {}, in {}",
                duration(*cpu_ns),
                report.hello.pid,
                beginning(&report.hello.command),
                report.path.display()
            );
        }
        Ok(())
    }
}

fn beginning(command: &str) -> String {
    const SHOWN_CHARACTERS: usize = 60;
    let mut shown: String = command.chars().take(SHOWN_CHARACTERS).collect();
    if command.chars().count() > SHOWN_CHARACTERS {
        shown.push_str("...");
    }
    shown
}

fn write_summary(path: &Path, summary: &Summary) -> anyhow::Result<()> {
    output::write_file(path, Readers::Owner, |mut out| {
        serde_json::to_writer_pretty(&mut out, summary)?;
        out.write_all(b"\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_that_of_java_threads_unless_others_are_chosen() {
        let checked = |options: &[&str]| {
            let options = options.iter().map(|&option| option.to_owned()).collect();
            Sampling::of(options).checked([]).expect("valid").join(",")
        };
        assert_eq!(checked(&["mode=wall"]), "mode=wall,threads=kind=java");
        assert_eq!(checked(&["event=wall", "interval=5ms"]), "event=wall,interval=5ms,threads=kind=java");
        assert_eq!(checked(&["mode=wall", "threads=*"]), "mode=wall,threads=*");
        assert_eq!(checked(&["mode=cputime"]), "mode=cputime");
    }
}
