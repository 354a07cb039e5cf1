//! Options of `tickwalk collect`, from the command line, the environment and a file.
//!
//! Order of precedence: option, environment variable `TICKWALK_*`, file, default.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, value_parser};
use collector::address::Address;
use collector::http::Access as HttpAccess;
use collector::ingest::{Access, Limits};
use collector::store::Retention;
use serde::Deserialize;

use crate::options::forward::{Forward, ForwardArguments};
use crate::options::values::{Age, Size, from_text};

/// Options of the command line and the environment, or of the configuration file; `None` if not given.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectorArguments {
    /// Address at which agents connect: unix:/path, host:port or tls:host:port [default: 127.0.0.1:4170]
    #[arg(long, value_name = "ADDR", env = "TICKWALK_LISTEN")]
    #[serde(deserialize_with = "from_text")]
    listen: Option<Address>,
    /// Directory for recordings, one file per session [default: .]
    #[arg(long, value_name = "DIR", env = "TICKWALK_DIR", conflicts_with = "store")]
    dir: Option<PathBuf>,
    /// Directory of a store for all sessions, instead of recordings
    #[arg(long, value_name = "DIR", env = "TICKWALK_STORE")]
    store: Option<PathBuf>,
    /// Address of the HTTP API, the metrics and the page; needs --store [default: 127.0.0.1:4172]
    #[arg(long, value_name = "ADDR", env = "TICKWALK_HTTP")]
    http: Option<SocketAddr>,
    /// File with the token of the HTTP server in its first line; clients send it as bearer token or as password
    #[arg(long, value_name = "FILE", env = "TICKWALK_HTTP_TOKEN_FILE")]
    http_token_file: Option<PathBuf>,
    /// Serve HTTP to other machines without a token
    #[arg(long, env = "TICKWALK_HTTP_INSECURE")]
    http_insecure: bool,
    /// Folder, .jar or .zip with source files, shown beside the CPU time of lines; can be repeated (in the variable, separated by colons)
    #[arg(long, value_name = "PATH", env = "TICKWALK_SOURCE_PATH", value_delimiter = ':')]
    source_path: Vec<PathBuf>,
    /// Most connections of agents at a time, 1 to 4096; more are refused [default: 256]
    #[arg(long, value_name = "N", env = "TICKWALK_MAX_CONNECTIONS", value_parser = value_parser!(u16).range(1..=4096))]
    max_connections: Option<u16>,
    /// Delete data older than this, such as 30d [default: 90d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP")]
    #[serde(deserialize_with = "from_text")]
    keep: Option<Age>,
    /// Delete the oldest data above this size, such as 5G [default: 20G]
    #[arg(long, value_name = "SIZE", env = "TICKWALK_KEEP_BYTES")]
    #[serde(deserialize_with = "from_text")]
    keep_bytes: Option<Size>,
    /// Keep single samples for this time, then sums per minute [default: 2d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_SAMPLES")]
    #[serde(deserialize_with = "from_text")]
    keep_samples: Option<Age>,
    /// Keep sums per minute for this time, then sums per hour [default: 14d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_MINUTES")]
    #[serde(deserialize_with = "from_text")]
    keep_minutes: Option<Age>,
    /// Keep sums per hour for this time, then sums per day [default: 60d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_HOURS")]
    #[serde(deserialize_with = "from_text")]
    keep_hours: Option<Age>,
    /// File with the shared secret of the agents in its first line
    #[arg(long, value_name = "FILE", env = "TICKWALK_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain in PEM form, for tls: addresses
    #[arg(long, value_name = "FILE", env = "TICKWALK_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM form
    #[arg(long, value_name = "FILE", env = "TICKWALK_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow unencrypted connections from other machines
    #[arg(long, env = "TICKWALK_INSECURE")]
    insecure: bool,
    #[command(flatten)]
    forward: ForwardArguments,
    /// TOML file with these options, named as here but with underscores
    #[arg(long, value_name = "FILE", env = "TICKWALK_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
}

/// Options in effect.
#[derive(Debug)]
pub struct CollectorOptions {
    /// Address at which agents connect.
    pub listen: Address,
    /// Place where received data is kept.
    pub keep: Keep,
    token_file: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    insecure: bool,
    /// Maximum number of connections of agents.
    pub max_connections: usize,
    /// Receivers that get everything forwarded.
    pub forward: Forward,
}

impl CollectorOptions {
    /// Returns the token and the certificate of the collector.
    ///
    /// # Errors
    /// If a file cannot be read or is not valid.
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
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("cannot read the token file {}; name a file that this user may read", path.display())
    })?;
    let token = text.lines().next().unwrap_or_default().trim();
    anyhow::ensure!(
        !token.is_empty(),
        "the token file {} is empty; write the token into its first line",
        path.display()
    );
    Ok(token.to_owned())
}

/// Place where received data is kept.
#[derive(Debug)]
pub enum Keep {
    /// Recordings in this directory.
    Recordings(PathBuf),
    /// A store with an HTTP server.
    Store {
        /// Directory of the store.
        directory: PathBuf,
        /// Limits of time and size for the data that is kept.
        retention: Retention,
        /// Address of the HTTP server.
        http: SocketAddr,
        /// File with its token.
        http_token_file: Option<PathBuf>,
        /// Permits other machines to ask without a token.
        http_insecure: bool,
        /// Folders and archives with source files.
        source_path: Vec<PathBuf>,
    },
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::Recordings(directory) => write!(f, "recordings in {}", directory.display()),
            Keep::Store { directory, retention, .. } => {
                let days = retention.age.as_secs() / 86_400;
                write!(f, "store {}, for {days} days", directory.display())
            }
        }
    }
}

/// Returns the conditions for clients of the HTTP server.
///
/// # Errors
/// If the file of the token cannot be read or is empty.
pub fn http_access(token_file: Option<&Path>, insecure: bool) -> anyhow::Result<HttpAccess> {
    Ok(HttpAccess { token: token_file.map(read_token).transpose()?, insecure })
}

impl CollectorArguments {
    /// Merges the options with the configuration file.
    ///
    /// # Errors
    /// If the file cannot be read or an option is not valid.
    pub fn resolve(self) -> anyhow::Result<CollectorOptions> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => CollectorArguments::default(),
        };
        let of_store = [
            ("--http", self.http.or(file.http).is_some()),
            ("--http-token-file", self.http_token_file.is_some() || file.http_token_file.is_some()),
            ("--http-insecure", self.http_insecure || file.http_insecure),
            ("--source-path", !self.source_path.is_empty() || !file.source_path.is_empty()),
            ("--keep", self.keep.or(file.keep).is_some()),
            ("--keep-bytes", self.keep_bytes.or(file.keep_bytes).is_some()),
            ("--keep-samples", self.keep_samples.or(file.keep_samples).is_some()),
            ("--keep-minutes", self.keep_minutes.or(file.keep_minutes).is_some()),
            ("--keep-hours", self.keep_hours.or(file.keep_hours).is_some()),
        ];
        let default = Retention::default();
        let time = |option: Option<Age>, file, default| option.or(file).map_or(default, |time| time.0);
        let retention = Retention {
            age: time(self.keep, file.keep, default.age),
            bytes: self.keep_bytes.or(file.keep_bytes).map_or(default.bytes, |size| size.0),
            samples: time(self.keep_samples, file.keep_samples, default.samples),
            minutes: time(self.keep_minutes, file.keep_minutes, default.minutes),
            hours: time(self.keep_hours, file.keep_hours, default.hours),
        };
        let listen = match self.listen.or(file.listen) {
            Some(address) => address,
            None => "127.0.0.1:4170".parse()?,
        };
        let http = match self.http.or(file.http) {
            Some(address) => address,
            None => "127.0.0.1:4172".parse()?,
        };
        // --dir overrides a store of the file, and all that belongs to it.
        let overrides_store = self.dir.is_some() && file.store.is_some();
        let store = self.store.or(if overrides_store { None } else { file.store });
        let http_token_file = self.http_token_file.or(file.http_token_file);
        let http_insecure = self.http_insecure || file.http_insecure;
        if store.is_none() && !overrides_store {
            let without_effect = of_store.into_iter().find(|(_, is_given)| *is_given);
            if let Some((option, _)) = without_effect {
                anyhow::bail!("{option} has no effect without --store; add --store or leave it out");
            }
        }
        let source_path = if self.source_path.is_empty() { file.source_path } else { self.source_path };
        let keep = match store {
            Some(directory) => {
                Keep::Store { directory, retention, http, http_token_file, http_insecure, source_path }
            }
            None => Keep::Recordings(self.dir.or(file.dir).unwrap_or_else(|| ".".into())),
        };
        let forward = self.forward.resolve(file.forward, matches!(keep, Keep::Store { .. }))?;
        let certificate = match (self.tls_cert.or(file.tls_cert), self.tls_key.or(file.tls_key)) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => anyhow::bail!("only one of tls_cert and tls_key is set; set both"),
        };
        anyhow::ensure!(
            certificate.is_none() || matches!(listen, Address::Tls { .. }),
            "--tls-cert and --tls-key have no effect on {listen}; listen on tls:HOST:PORT or leave them out"
        );
        let insecure = self.insecure || file.insecure;
        anyhow::ensure!(
            !insecure || matches!(listen, Address::Tcp { .. }),
            "--insecure has no effect on {listen}; leave it out"
        );
        let token_file = self.token_file.or(file.token_file);
        let max_connections = self.max_connections.or(file.max_connections).map(usize::from);
        anyhow::ensure!(
            max_connections.is_none_or(|count| (1..=4096).contains(&count)),
            "max_connections: write a number from 1 to 4096"
        );
        Ok(CollectorOptions {
            listen,
            keep,
            token_file,
            certificate,
            insecure,
            max_connections: max_connections.unwrap_or(Limits::default().connections),
            forward,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<CollectorArguments> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}; correct --config", path.display()))?;
    toml::from_str(&text).with_context(|| format!("the configuration file {} is not valid", path.display()))
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
            keep: Some(Age(Duration::from_secs(60))),
            config: Some(path),
            ..CollectorArguments::default()
        };
        let options = arguments.resolve().expect("good file");
        let Keep::Store { directory, retention, http, .. } = options.keep else { panic!("a store") };
        assert_eq!(directory, PathBuf::from("/a"));
        assert_eq!((retention.age.as_secs(), retention.bytes), (60, 1 << 30));
        assert_eq!(retention.minutes, Retention::default().minutes);
        assert!(http.ip().is_loopback());
    }

    #[test]
    fn a_word_the_file_may_not_have_is_an_error() {
        for text in ["stroe = \"/a\"", "keep = \"7\"", "keep_bytes = \"1M\"", "listen = 1"] {
            assert!(toml::from_str::<CollectorArguments>(text).is_err(), "{text}");
        }
    }
}
