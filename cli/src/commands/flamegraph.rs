//! `tickwalk flamegraph`: writes the page with its data as one HTML file.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use profile::export::Options;
use profile::export::whole_file::Readers;
use profile::text::format::Format;

use crate::output::{self, tell};
use crate::source::{SelectionArguments, Source, check_output};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk flamegraph                              from recording.tickwalk, which record and attach write
  tickwalk flamegraph --open recording.tickwalk
  tickwalk flamegraph -o /tmp/app.html --from -15m http://127.0.0.1:4172")]
pub struct Arguments {
    /// File to write, or - for standard output [default: the recording's name with .html; flamegraph.html for a store
    /// or a collector]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Open the page in the browser
    #[arg(long)]
    open: bool,
    /// Recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake
    #[arg(value_name = "RECORDING|DIR|URL", default_value = "recording.tickwalk")]
    source: Source,
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { output, open, source, selection } = arguments;
    let source = selection.configured(source);
    let page = output.unwrap_or_else(|| source.page_path());
    if let Some(other) = Format::of_file(&page).ok().filter(|format| *format != Format::Flamegraph) {
        bail!(
            "{} is the name of another format ({}); write -o NAME.html, or use 'tickwalk export'",
            page.display(),
            other.name()
        );
    }
    let pairs = selection.pairs();
    let mut warnings = Vec::new();
    let write = |out: &mut (dyn io::Write + Send)| {
        let written = source.export(Format::Flamegraph, Options::default(), &pairs, out);
        written.map(|found| warnings = found)
    };
    if output::named_file(Some(&page)).is_none() {
        if open {
            bail!("--open needs a file; leave out -o -");
        }
        output::print(write)?;
        output::warn(&warnings);
        return Ok(ExitCode::SUCCESS);
    }
    check_output(Some(&page), [&source])?;
    output::write_file(&page, Readers::Umask, write)?;
    output::warn(&warnings);
    tell!("flame graph  {}", page.display());
    if open {
        output::browser::open(&page);
    }
    Ok(ExitCode::SUCCESS)
}
