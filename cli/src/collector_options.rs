//! Options of `tickwalk collect`, from the command line, the environment and a file.
//!
//! The first that says something counts: option, environment variable `TICKWALK_*`, file, default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use collector::address::Address;
use collector::ingest::Access;
use collector::store::Retention;
use serde::Deserialize;

use crate::forward_options::{Forward, ForwardArguments, ForwardFile};
use crate::option_values::{Size, Text, Time};

/// Options as given; what is not is `None`.
#[derive(Debug, Args)]
pub struct CollectorArguments {
    /// Where agents connect: unix:/path, host:port or tls:host:port [default: 127.0.0.1:4170]
    #[arg(long, value_name = "ADDR", env = "TICKWALK_LISTEN")]
    listen: Option<Address>,
    /// Directory for recordings, one file a session [default: .]
    #[arg(long, value_name = "DIR", env = "TICKWALK_DIR", conflicts_with = "store")]
    dir: Option<PathBuf>,
    /// Directory of a store that all sessions go to, instead of recordings
    #[arg(long, value_name = "DIR", env = "TICKWALK_STORE")]
    store: Option<PathBuf>,
    /// Address of API, metrics and UI; needs --store [default: 127.0.0.1:4172]
    #[arg(long, value_name = "ADDR", env = "TICKWALK_HTTP")]
    http: Option<SocketAddr>,
    /// Remove everything after this time, such as 90d
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP")]
    keep: Option<Time>,
    /// Remove the oldest beyond this size, such as 20G
    #[arg(long, value_name = "SIZE", env = "TICKWALK_KEEP_BYTES")]
    keep_bytes: Option<Size>,
    /// Keep single samples for this time, then sums of minutes
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_SAMPLES")]
    keep_samples: Option<Time>,
    /// Keep sums of minutes for this time, then sums of hours
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_MINUTES")]
    keep_minutes: Option<Time>,
    /// Keep sums of hours for this time, then sums of days
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_HOURS")]
    keep_hours: Option<Time>,
    /// File whose first line agents must send as their token
    #[arg(long, value_name = "FILE", env = "TICKWALK_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain in PEM form, for tls: addresses
    #[arg(long, value_name = "FILE", env = "TICKWALK_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM form
    #[arg(long, value_name = "FILE", env = "TICKWALK_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without encryption
    #[arg(long, env = "TICKWALK_INSECURE")]
    insecure: bool,
    #[command(flatten)]
    forward: ForwardArguments,
    /// File with these options in TOML, names as here with underscores
    #[arg(long, value_name = "FILE", env = "TICKWALK_CONFIG")]
    config: Option<PathBuf>,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<Text<Address>>,
    dir: Option<PathBuf>,
    store: Option<PathBuf>,
    http: Option<SocketAddr>,
    keep: Option<Text<Time>>,
    keep_bytes: Option<Text<Size>>,
    keep_samples: Option<Text<Time>>,
    keep_minutes: Option<Text<Time>>,
    keep_hours: Option<Text<Time>>,
    token_file: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    forward: ForwardFile,
}

/// Options in effect.
#[derive(Debug)]
pub struct CollectorOptions {
    /// Where agents connect.
    pub listen: Address,
    /// What they send goes here.
    pub keep: Keep,
    token_file: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    insecure: bool,
    /// Receivers that everything is handed on to.
    pub forward: Forward,
}

impl CollectorOptions {
    /// Whom the collector admits, and how.
    ///
    /// # Errors
    /// If a file cannot be read or is not what it should be.
    pub fn access(&self) -> anyhow::Result<Access> {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let access = Access { token, insecure: self.insecure, ..Access::default() };
        match &self.certificate {
            Some((chain, key)) => Ok(access.with_certificate(chain, key)?),
            None => Ok(access),
        }
    }
}

fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    anyhow::ensure!(!token.is_empty(), "{} is empty: its first line is the token", path.display());
    Ok(token.to_owned())
}

/// Where data goes.
#[derive(Debug)]
pub enum Keep {
    /// Recordings in this directory.
    Recordings(PathBuf),
    /// A store, and where questions to it are answered.
    Store {
        /// Directory of the store.
        directory: PathBuf,
        /// What is kept.
        retention: Retention,
        /// Address of the HTTP server.
        http: SocketAddr,
    },
}

impl CollectorArguments {
    /// What is in effect.
    ///
    /// # Errors
    /// If the file cannot be read or says something that is not understood.
    pub fn resolve(self) -> anyhow::Result<CollectorOptions> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let default = Retention::default();
        let time = |option: Option<Time>, file: Option<Text<Time>>, default| {
            option.or(file.map(|text| text.0)).map_or(default, |time| time.0)
        };
        let retention = Retention {
            age: time(self.keep, file.keep, default.age),
            bytes: self
                .keep_bytes
                .or(file.keep_bytes.map(|text| text.0))
                .map_or(default.bytes, |size| size.0),
            samples: time(self.keep_samples, file.keep_samples, default.samples),
            minutes: time(self.keep_minutes, file.keep_minutes, default.minutes),
            hours: time(self.keep_hours, file.keep_hours, default.hours),
        };
        let listen = match self.listen.or(file.listen.map(|text| text.0)) {
            Some(address) => address,
            None => "127.0.0.1:4170".parse()?,
        };
        let http = match self.http.or(file.http) {
            Some(address) => address,
            None => "127.0.0.1:4172".parse()?,
        };
        // A directory named on the command line is not overruled by a store named in the file.
        let store = self.store.or(if self.dir.is_none() { file.store } else { None });
        let keep = match store {
            Some(directory) => Keep::Store { directory, retention, http },
            None => Keep::Recordings(self.dir.or(file.dir).unwrap_or_else(|| ".".into())),
        };
        let forward = self.forward.resolve(file.forward, matches!(keep, Keep::Store { .. }))?;
        let certificate = match (self.tls_cert.or(file.tls_cert), self.tls_key.or(file.tls_key)) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => anyhow::bail!("tls_cert and tls_key are needed together"),
        };
        let token_file = self.token_file.or(file.token_file);
        Ok(CollectorOptions {
            listen,
            keep,
            token_file,
            certificate,
            insecure: self.insecure || file.insecure,
            forward,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<File> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not understood", path.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn options_come_before_the_file_and_the_file_before_defaults() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("collector.toml");
        std::fs::write(&path, "store = \"/a\"\nkeep = \"7d\"\nkeep_bytes = \"1G\"\n").expect("write");
        let arguments = CollectorArguments {
            listen: None,
            dir: None,
            store: None,
            http: None,
            keep: Some(Time(Duration::from_secs(60))),
            keep_bytes: None,
            keep_samples: None,
            keep_minutes: None,
            keep_hours: None,
            token_file: None,
            tls_cert: None,
            tls_key: None,
            insecure: false,
            forward: ForwardArguments::default(),
            config: Some(path),
        };
        let options = arguments.resolve().expect("good file");
        let Keep::Store { directory, retention, http } = options.keep else { panic!("a store") };
        assert_eq!(directory, PathBuf::from("/a"));
        assert_eq!((retention.age.as_secs(), retention.bytes), (60, 1 << 30));
        assert_eq!(retention.minutes, Retention::default().minutes);
        assert!(http.ip().is_loopback());
    }

    #[test]
    fn a_word_the_file_may_not_have_is_an_error() {
        for text in ["stroe = \"/a\"", "keep = \"7\"", "keep_bytes = \"1M\"", "listen = 1"] {
            assert!(toml::from_str::<File>(text).is_err(), "{text}");
        }
    }
}
