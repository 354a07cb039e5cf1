//! `tickwalk collect`: a collector that records until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use collector::address::Address;
use collector::ingest::{Destination, Limits, Server};
use nix::sys::signal::Signal;

use crate::signals::Signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk collect --dir /var/lib/tickwalk
  tickwalk collect --listen unix:/run/tickwalk.sock
  java -agentpath:/opt/tickwalk/lib/libtickwalk.so=collector=127.0.0.1:4170 -jar app.jar")]
pub struct Arguments {
    /// Where agents connect: unix:/path, tcp:host:port or host:port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4170")]
    listen: Address,
    /// Directory for the recordings, one file a session
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Blocked before the server has threads, so that the signals wait for this one.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM])?;
    let directory = arguments.dir;
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    let server =
        Server::start(&arguments.listen, Destination::Directory(directory.clone()), Limits::default())
            .with_context(|| {
                format!("cannot listen on {}; choose another with --listen", arguments.listen)
            })?;
    tracing::info!(address = %server.address(), directory = %directory.display(), "collector is ready");
    let received = signals.next()?;
    tracing::info!(signal = received.signal.as_str(), "stopping");
    let sessions = server.stop();
    tracing::info!(sessions = sessions.len(), "all recordings are written");
    Ok(ExitCode::SUCCESS)
}
