//! `tickwalk serve`: serves the page and the HTTP API of a recording or of a store that no collector has open.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use collector::http::{HttpServer, Probe};
use collector::source_path::{SourcePath, WithSources};
use nix::sys::signal::Signal;

use crate::launch::signals::Signals;
use crate::options::collector::http_access;
use crate::source::Source;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk serve recording.tickwalk             then open http://127.0.0.1:4172 in a browser
  tickwalk serve --http 127.0.0.1:0 store/      any free port; the log shows it")]
pub struct Arguments {
    /// Recording, or directory of a store
    source: Source,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4172")]
    http: SocketAddr,
    /// File with the token of clients in its first line; they send it as bearer token or as password
    #[arg(long, value_name = "FILE", env = "TICKWALK_HTTP_TOKEN_FILE")]
    http_token_file: Option<PathBuf>,
    /// Serve other machines without a token
    #[arg(long, env = "TICKWALK_HTTP_INSECURE")]
    http_insecure: bool,
    /// Folder, .jar or .zip with source files, shown beside the CPU time of lines; can be repeated (in the variable, separated by colons)
    #[arg(long, value_name = "PATH", env = "TICKWALK_SOURCE_PATH", value_delimiter = ':')]
    source_path: Vec<PathBuf>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (samples, store) = arguments.source.open_to_serve()?;
    let source = Arc::new(WithSources { samples, texts: SourcePath::open(&arguments.source_path)? });
    // Threads inherit the mask, so the signals are blocked before the server starts its threads.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM])?;
    let access = http_access(arguments.http_token_file.as_deref(), arguments.http_insecure)?;
    let probe = Probe { store, ..Probe::default() };
    let http = HttpServer::start_for(access, arguments.http, source, probe)
        .with_context(|| format!("cannot listen on {}; choose another with --http", arguments.http))?;
    tracing::info!("open http://{} in a browser; Ctrl-C stops the server", http.address());
    signals.next()?;
    http.stop();
    Ok(ExitCode::SUCCESS)
}
