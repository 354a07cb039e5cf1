//! `tickwalk collect`: receives sessions of agents until a signal ends it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use collector::forward::{Accounts, Forwarder};
use collector::http::{HttpServer, Probe};
use collector::ingest::{Destination, Limits, Server};
use collector::source_path::WithSources;
use collector::store::Store;
use lake::storage::Lake;
use lake::write::upload::Uploader;
use nix::sys::signal::Signal;

use crate::launch::signals::Signals;
use crate::options::collector::{CollectorArguments, Keep};
use crate::options::forward::Forward;

#[derive(Debug, Args)]
#[command(after_help = "\
Order of precedence: option, environment variable, file (--config), default.

Examples:
  tickwalk collect --dir /var/lib/tickwalk
  tickwalk collect --store /var/lib/tickwalk --keep 30d --http 127.0.0.1:4172
  tickwalk collect --store /var/lib/tickwalk --forward http://pyroscope:4317
  tickwalk collect --store /var/lib/tickwalk --lake s3://profiles/tickwalk
  tickwalk collect --listen unix:/run/tickwalk.sock
  tickwalk collect --listen tls:0.0.0.0:4171 --tls-cert cert.pem --tls-key key.pem --token-file token
  java -agentpath:/opt/tickwalk/lib/libtickwalk.so=collector=127.0.0.1:4170 -jar app.jar")]
pub struct Arguments {
    #[command(flatten)]
    options: CollectorArguments,
}

/// Makes the directory for recordings if necessary, and checks that files can be made there. Recordings have class
/// names and command lines, so a new directory is private.
fn prepare_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Removed at once.
    tempfile::tempfile_in(directory).map(drop)
}

/// Opens the place that keeps sessions; the second part is the store, if it is one.
fn open_destination(keep: &Keep) -> anyhow::Result<(Destination, Option<Arc<Store>>)> {
    match keep {
        Keep::Recordings(directory) => {
            prepare_directory(directory).with_context(|| {
                format!(
                    "cannot write recordings to {}; --dir needs a directory that exists or can be made, and can be written",
                    directory.display()
                )
            })?;
            Ok((Destination::Directory(directory.clone()), None))
        }
        Keep::Store { directory, retention, lake, .. } => {
            let store = match lake {
                Some(lake) => Store::open_for_lake(directory, *retention, lake.intervals),
                None => Store::open(directory, *retention),
            };
            let store = Arc::new(store.with_context(|| {
                format!(
                    "cannot open the store {}; --store needs a directory that exists or can be made, and can be written",
                    directory.display()
                )
            })?);
            Ok((Destination::Store(Arc::clone(&store)), Some(store)))
        }
    }
}

/// Starts the upload to the lake, if there is one.
fn start_upload(keep: &Keep, store: Option<&Store>) -> anyhow::Result<Option<Uploader>> {
    let Keep::Store { lake: Some(options), .. } = keep else { return Ok(None) };
    let Some(spool) = store.and_then(Store::spool) else { return Ok(None) };
    let lake = Lake::create(&options.url).context("cannot open the lake; correct --lake or its variables")?;
    Ok(Some(Uploader::start(spool, lake).context("cannot start the upload to the lake")?))
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let options = arguments.options.with_file(std::env::args_os().skip(1))?.resolve()?;
    // Threads inherit the mask, so the signals are blocked before the server starts its threads.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM])?;
    let listen = options.listen.clone();
    let (destination, store) = open_destination(&options.keep)?;
    let uploader = start_upload(&options.keep, store.as_deref())?;
    // The forwarder starts before agents can connect, so that it forwards everything that is stored.
    let forwarder = match &store {
        Some(store) if !options.forward.targets.is_empty() => {
            let Forward { targets, settings } = &options.forward;
            Some(Forwarder::start(store, targets, *settings).context("cannot start forwarding")?)
        }
        _ => None,
    };
    let limits = Limits { connections: options.max_connections, ..Limits::default() };
    let server = Server::start_for(options.access()?, &listen, destination, limits)
        .with_context(|| format!("cannot listen on {listen}; choose another with --listen"))?;
    let http = match (&options.keep, &store) {
        (Keep::Store { http, page, .. }, Some(store)) => {
            let source = Arc::new(WithSources { samples: store.clone(), texts: page.texts()? });
            let agents = server.stop_handle();
            let forwarded = forwarder.as_ref().map_or_else(Accounts::default, Forwarder::accounts);
            let probe = Probe {
                store: Some(Arc::clone(store)),
                agents: Arc::new(move || agents.health()),
                forwarded,
            };
            let http = HttpServer::start_for(page.access()?, *http, source, probe).with_context(|| {
                format!("cannot listen on {http} for HTTP; choose another address with --http")
            })?;
            Some(http)
        }
        _ => None,
    };
    // One line with the options in effect, including ports chosen by the system.
    let http_address = http.as_ref().map(|http| tracing::field::display(http.address()));
    let keep = options.keep.to_string();
    tracing::info!(address = %server.address(), http = http_address, keep, "collector is ready");
    let received = signals.next()?;
    tracing::info!(signal = received.signal.as_str(), "stopping");
    // Agents are stopped first: what has arrived is stored and acknowledged while the HTTP server still answers.
    let sessions = server.stop();
    if let Some(forwarder) = forwarder {
        forwarder.stop();
    }
    if let Some(http) = http {
        http.stop();
    }
    if let Some(store) = store {
        store.flush().context(
            "cannot write the store at the end; its journal has all data, and the next start reads it",
        )?;
    }
    // Uploads for a limited time; the next start uploads the rest.
    drop(uploader);
    tracing::info!(sessions = sessions.len(), "everything received is written");
    Ok(ExitCode::SUCCESS)
}
