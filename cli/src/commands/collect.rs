//! `tickwalk collect`: a collector that records until it is told to stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use collector::address::Address;
use collector::ingest::{Access, Destination, Limits, Server};
use nix::sys::signal::Signal;

use crate::signals::Signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk collect --dir /var/lib/tickwalk
  tickwalk collect --listen unix:/run/tickwalk.sock
  tickwalk collect --listen tls:0.0.0.0:4171 --tls-cert cert.pem --tls-key key.pem --token-file token
  java -agentpath:/opt/tickwalk/lib/libtickwalk.so=collector=127.0.0.1:4170 -jar app.jar")]
pub struct Arguments {
    /// Where agents connect: unix:/path, host:port or tls:host:port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4170")]
    listen: Address,
    /// Directory for the recordings, one file a session
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// File whose first line agents must send as their token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain in PEM form, for tls: addresses
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without encryption
    #[arg(long)]
    insecure: bool,
}

impl Arguments {
    fn access(&self) -> anyhow::Result<Access> {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let access = Access { token, insecure: self.insecure, ..Access::default() };
        match (&self.tls_cert, &self.tls_key) {
            (Some(chain), Some(key)) => Ok(access.with_certificate(chain, key)?),
            _ => Ok(access),
        }
    }
}

fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    anyhow::ensure!(!token.is_empty(), "{} is empty: its first line is the token", path.display());
    Ok(token.to_owned())
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Blocked before the server has threads, so that the signals wait for this one.
    let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM])?;
    let access = arguments.access()?;
    let directory = arguments.dir;
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    let server = Server::start_for(
        access,
        &arguments.listen,
        Destination::Directory(directory.clone()),
        Limits::default(),
    )
    .with_context(|| format!("cannot listen on {}; choose another with --listen", arguments.listen))?;
    tracing::info!(address = %server.address(), directory = %directory.display(), "collector is ready");
    let received = signals.next()?;
    tracing::info!(signal = received.signal.as_str(), "stopping");
    let sessions = server.stop();
    tracing::info!(sessions = sessions.len(), "all recordings are written");
    Ok(ExitCode::SUCCESS)
}
