//! `tickwalk export`: profiles in the formats of other tools.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use profile::export::whole_file::Readers;
use profile::export::{Options, collapsed};
use profile::text::format::{Format, UnknownFormat};

use crate::options::values::{Offered, rows};
use crate::output::{self, tell};
use crate::source::file_format::files;
use crate::source::{SelectionArguments, Source, check_output};

#[derive(Debug, Args)]
#[command(after_help = "\
Formats:
  collapsed    one line \"root;...;leaf number\" per stack (.collapsed, .folded, .txt, .csv)
  traces       the heaviest stacks as text, a block each (.traces)
  flamegraph   the page with its data, one HTML file (.html)
  pprof        for go tool pprof, Grafana, Parca (.pb.gz, .pprof)
  jfr          for JDK Mission Control, IDEs and the jfr tool (.jfr)
  speedscope   for speedscope (.speedscope.json)
  firefox      for the Firefox Profiler (.firefox.json)
  otlp         OpenTelemetry profiles, one request (.otlp)
  parquet      two tables for SQL, NAME.samples.parquet and NAME.stacks.parquet (.parquet)

Examples:
  tickwalk export recording.tickwalk -o app.jfr
  tickwalk export recording.tickwalk --format collapsed --unit ns --threads > stacks.txt
  tickwalk export recording.tickwalk -o busy.pb.gz --thread worker --from -2m --to -1m
  tickwalk export http://127.0.0.1:4172 -o shop.parquet --process shop.jar --from -1h

If several processes are selected, the file has all of them; docs/formats.md says how each format names them.")]
pub struct Arguments {
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    #[arg(value_name = "RECORDING|DIR|URL")]
    source: Source,
    /// Format to write [default: by the suffix of FILE]
    #[arg(long, value_name = "FORMAT", value_parser = Offered::new(Format::names()))]
    format: Option<String>,
    /// File to write, or - [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Unit of the numbers in collapsed stacks
    #[arg(long, value_enum, default_value_t = Unit::Samples)]
    unit: Unit,
    /// Stacks of the format traces [default: 200]
    #[arg(long, value_name = "N", value_parser = rows)]
    limit: Option<usize>,
    /// Put the name of the thread in front of each collapsed stack, and at the root of each trace
    #[arg(long)]
    threads: bool,
    /// Make each line of a method a frame of its own in collapsed stacks (Class.method:LINE) and in speedscope
    #[arg(long)]
    lines: bool,
    /// In JFR, write jdk.CPUTimeSample events, which have the CPU time of each sample, instead of jdk.ExecutionSample;
    /// the views cpu-time-* of JDK 25 read them, most other tools, such as Pyroscope and jfrconv --cpu, do not
    #[arg(long)]
    cpu_time_samples: bool,
    #[command(flatten)]
    selection: SelectionArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    /// Sampling intervals of CPU time
    Samples,
    /// Nanoseconds of CPU time
    Ns,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let format = match chosen_format(&arguments) {
        Ok(format) => format,
        Err(error) => {
            tell!("tickwalk: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    let source = arguments.selection.configured(arguments.source.clone());
    let options = Options {
        unit: match arguments.unit {
            Unit::Samples => collapsed::Unit::Samples,
            Unit::Ns => collapsed::Unit::Nanoseconds,
        },
        threads: arguments.threads,
        lines: arguments.lines,
        cpu_time_samples: arguments.cpu_time_samples,
        internal_names: false,
        stacks: arguments.limit,
        table: None,
    };
    let pairs = arguments.selection.pairs();
    // Each file of an export has the same warnings.
    let mut warnings = Vec::new();
    let mut write = |options, out: &mut (dyn io::Write + Send)| {
        source.export(format, options, &pairs, out).map(|found| warnings = found)
    };
    match output::named_file(arguments.output.as_deref()) {
        Some(path) => {
            let files = files(format, path, options);
            files.iter().try_for_each(|(path, _)| check_output(Some(path), [&source]))?;
            for (path, options) in &files {
                output::write_file(path, Readers::Umask, |out| write(*options, out))?;
            }
            output::warn(&warnings);
            files.iter().for_each(|(path, _)| tell!("{:<12} {}", format.name(), path.display()));
        }
        None if format.is_binary() && (format == Format::Parquet || io::stdout().is_terminal()) => {
            bail!("the format is binary; name a file to write, for example -o app{}", format.suffix());
        }
        None => {
            output::print(|out| write(options, out))?;
            output::warn(&warnings);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn chosen_format(arguments: &Arguments) -> Result<Format, UnknownFormat> {
    match (&arguments.format, &arguments.output) {
        (Some(name), _) => Format::of_name(name),
        (None, Some(path)) => Format::of_file(path),
        (None, None) => Format::of_name(""),
    }
}
