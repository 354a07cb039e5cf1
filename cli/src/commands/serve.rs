//! `tickwalk serve`: serves the page and the HTTP API of a recording, of a store that no collector has open, or of a
//! lake.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use collector::http::{HttpServer, Probe};
use collector::source_path::WithSources;
use nix::sys::signal::Signal;

use crate::launch::signals::Signals;
use crate::options::collector::PageArguments;
use crate::source::Source;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk serve recording.tickwalk             then open http://127.0.0.1:4172 in a browser
  tickwalk serve --http 127.0.0.1:0 store/      any free port; the log shows it
  tickwalk serve s3://profiles/tickwalk         a lake: the last hour, or the time that is chosen in the page")]
pub struct Arguments {
    /// Recording, directory of a store, or URL of a lake
    source: Source,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4172")]
    http: SocketAddr,
    #[command(flatten)]
    page: PageArguments,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (samples, store) = arguments.source.open_to_serve()?;
    let source = Arc::new(WithSources { samples, texts: arguments.page.texts()? });
    // Threads inherit the mask, so the signals are blocked before the server starts its threads.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM])?;
    let probe = Probe { store, ..Probe::default() };
    let http = HttpServer::start_for(arguments.page.access()?, arguments.http, source, probe)
        .with_context(|| format!("cannot listen on {}; choose another with --http", arguments.http))?;
    tracing::info!("open http://{} in a browser; Ctrl-C stops the server", http.address());
    signals.next()?;
    http.stop();
    Ok(ExitCode::SUCCESS)
}
