//! `tickwalk export`: recordings for other tools.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use collector::export::format::{Format, UnknownFormat};
use collector::export::samples::{Sample, Samples, Selection, summed};
use collector::export::{collapsed, firefox, jfr, otlp, parquet, pprof, speedscope};
use collector::profile::Profile;
use collector::query::selection::{self as query, QueryError};
use collector::recording::RecordingReader;
use collector::ui::standalone;

use super::{open_recording, read_profile};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Formats:
  collapsed    a line \"root;...;leaf number\" for each stack (.collapsed, .folded, .txt)
  flamegraph   interactive page, one HTML file (.html)
  pprof        for go tool pprof, Grafana, Parca (.pb.gz, .pprof)
  jfr          for JDK Mission Control, IDEs and the jfr tool (.jfr)
  speedscope   for speedscope (.speedscope.json)
  firefox      for the Firefox Profiler (.firefox.json)
  otlp         OpenTelemetry profiles, one request (.otlp)
  parquet      two tables for SQL, NAME.samples.parquet and NAME.stacks.parquet (.parquet)

Examples:
  tickwalk export recording.tickwalk -f app.jfr
  tickwalk export recording.tickwalk -o collapsed --unit ns --threads > stacks.txt
  tickwalk export recording.tickwalk -f busy.pb.gz --thread worker --from 10s --to 1m
  tickwalk export recording.tickwalk -f app.parquet")]
pub struct Arguments {
    /// Recording to read
    recording: PathBuf,
    /// Format to write [default: as the suffix of FILE tells]
    #[arg(short = 'o', long, value_name = "FORMAT")]
    format: Option<String>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only threads whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    thread: Option<String>,
    /// Only samples from TIME after the start on
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Only samples before TIME after the start
    #[arg(long, value_name = "TIME")]
    to: Option<Moment>,
    /// What the numbers of collapsed stacks count
    #[arg(long, value_enum, default_value_t = Unit::Samples)]
    unit: Unit,
    /// Begin each collapsed stack with the name of its thread
    #[arg(long)]
    threads: bool,
    /// In JFR, also write jdk.ExecutionSample events, for tools that know no CPU-time samples
    #[arg(long)]
    execution_samples: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    /// Sampling intervals of CPU time
    Samples,
    /// Nanoseconds of CPU time
    Ns,
}

/// A time after the start of a session, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment(u64);

impl FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "write a time after the start with its unit (ms, s, m or h), for example 90s";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let ns_per_unit: u64 = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(WANTED),
        };
        let ns = number.parse::<u64>().ok().and_then(|number| number.checked_mul(ns_per_unit));
        ns.map(Moment).ok_or(WANTED)
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let format = match chosen_format(&arguments) {
        Ok(format) => format,
        Err(error) => {
            eprintln!("tickwalk: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    if arguments.file.is_none() && format.is_binary() && (format == Format::Parquet || terminal()) {
        bail!("name the file to write, for example -f app.{}", suffix(format));
    }
    let profile = read_profile(&arguments.recording)?;
    let selection = selection(&profile, &arguments)?;
    let reader = RecordingReader::open(&arguments.recording)
        .map_err(|error| anyhow!("{}: {error}", arguments.recording.display()))?;
    let samples = Samples::new(reader).filter(|sample| selection.includes(sample));
    match (format, &arguments.file) {
        (Format::Parquet, Some(path)) => write_tables(&profile, samples, path)?,
        (_, Some(path)) => {
            output::write_file(path, |out| write(format, &arguments, &selection, profile, samples, out))?
        }
        (_, None) => {
            output::print(|out| write(format, &arguments, &selection, profile, samples, out))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn chosen_format(arguments: &Arguments) -> Result<Format, UnknownFormat> {
    match (&arguments.format, &arguments.file) {
        (Some(name), _) => Format::of_name(name),
        (None, Some(path)) => Format::of_file(path),
        (None, None) => Format::of_name(""),
    }
}

fn terminal() -> bool {
    io::stdout().is_terminal()
}

fn suffix(format: Format) -> &'static str {
    match format {
        Format::Pprof => "pb.gz",
        Format::Jfr => "jfr",
        Format::Otlp => "otlp",
        _ => "parquet",
    }
}

fn selection(profile: &Profile, arguments: &Arguments) -> anyhow::Result<Selection> {
    let moment = |moment: Option<Moment>| moment.map(|moment| moment.0);
    let selection = Selection::default().during(profile, moment(arguments.from), moment(arguments.to));
    match &arguments.thread {
        None => Ok(selection),
        Some(text) => {
            selection.of_threads(profile, text).with_context(|| format!("no thread has '{text}' in its name"))
        }
    }
}

fn write(
    format: Format,
    arguments: &Arguments,
    selection: &Selection,
    profile: Profile,
    samples: impl Iterator<Item = Sample>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Collapsed => {
            let unit = match arguments.unit {
                Unit::Samples => collapsed::Unit::Samples,
                Unit::Ns => collapsed::Unit::Nanoseconds,
            };
            let options = collapsed::Options { unit, threads: arguments.threads };
            // Collapsed stacks are sums, which the profile has already unless a part of it is selected.
            let profile = if selection.is_all() { profile } else { part(profile, samples) };
            collapsed::write(&profile, options, out)
        }
        Format::Flamegraph => {
            let selection = selection_of_page(&profile, arguments).map_err(io::Error::other)?;
            let store = open_recording(&arguments.recording).map_err(io::Error::other)?;
            standalone::write(&store, &selection, out)
        }
        Format::Pprof => pprof::write(&profile, samples, out),
        Format::Jfr => {
            let options =
                jfr::Options { execution_samples: arguments.execution_samples, losses: selection.is_all() };
            jfr::write(&profile, samples, options, out)
        }
        Format::Speedscope => speedscope::write(&profile, samples, out),
        Format::Firefox => firefox::write(&profile, samples, out),
        Format::Otlp => otlp::write(&profile, samples, out),
        // Parquet is two files, and what is added to the library later is added here.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The same selection for the page.
fn selection_of_page(profile: &Profile, arguments: &Arguments) -> Result<query::Selection, QueryError> {
    let mut selection = query::Selection::default();
    for (name, moment) in [("from", arguments.from), ("to", arguments.to)] {
        if let Some(Moment(ns)) = moment {
            let ns = profile.hello().wall_clock_ns.saturating_add(ns);
            selection.set(name, &format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000))?;
        }
    }
    if let Some(text) = &arguments.thread {
        selection.set("thread", text)?;
    }
    Ok(selection)
}

fn part(profile: Profile, samples: impl Iterator<Item = Sample>) -> Profile {
    profile.with_samples(summed(samples))
}

/// Writes NAME.samples.parquet and NAME.stacks.parquet for NAME.parquet.
fn write_tables(profile: &Profile, samples: impl Iterator<Item = Sample>, path: &Path) -> anyhow::Result<()> {
    let name = path.to_string_lossy();
    let base = name.strip_suffix(".parquet").unwrap_or(&name);
    let create = |table: &str| {
        let path = PathBuf::from(format!("{base}.{table}.parquet"));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok((BufWriter::new(file), path))
    };
    let (samples_out, samples_path) = create("samples")?;
    let (stacks_out, stacks_path) = create("stacks")?;
    parquet::write(profile, samples, samples_out, stacks_out)
        .with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("samples  {}", samples_path.display());
    eprintln!("stacks   {}", stacks_path.display());
    Ok(())
}
