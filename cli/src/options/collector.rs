//! Options of `tickwalk collect`, from the command line, the environment and a file.
//!
//! Order of precedence: option, environment variable `TICKWALK_*`, file, default. The values of the file become
//! defaults of the parser, which then reads the command line again.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::parser::ValueSource;
use clap::{Args, Command, FromArgMatches, value_parser};
use collector::address::Address;
use collector::http::Access as HttpAccess;
use collector::ingest::Access;
use collector::source_path::SourcePath;
use collector::store::{Intervals, Retention};
use lake::storage::LakeUrl;
use toml::{Table, Value};

use crate::options::forward::{Forward, ForwardArguments};
use crate::options::values::{Age, Size, lake_every};

/// Options of a server of the page.
#[derive(Debug, Args)]
pub struct PageArguments {
    /// File with the token of the HTTP server in its first line; clients send it as bearer token or as password
    #[arg(long, value_name = "FILE", env = "TICKWALK_HTTP_TOKEN_FILE")]
    http_token_file: Option<PathBuf>,
    /// Serve HTTP to other machines without a token
    #[arg(long, env = "TICKWALK_HTTP_INSECURE")]
    http_insecure: bool,
    /// Folder, .jar or .zip with source files, shown beside the CPU time of lines; can be repeated (in the variable,
    /// separated by colons)
    #[arg(long, value_name = "PATH", env = "TICKWALK_SOURCE_PATH", value_delimiter = ':')]
    source_path: Vec<PathBuf>,
}

impl PageArguments {
    /// Returns the conditions for clients.
    pub fn access(&self) -> anyhow::Result<HttpAccess> {
        let token = self.http_token_file.as_deref().map(read_token).transpose()?;
        Ok(HttpAccess { token, insecure: self.http_insecure })
    }

    /// Opens the folders and archives with source files.
    pub fn texts(&self) -> anyhow::Result<SourcePath> {
        Ok(SourcePath::open(&self.source_path)?)
    }
}

/// Options as given; `None` if not given.
#[derive(Debug, Args)]
pub struct CollectorArguments {
    /// Address at which agents connect: unix:PATH, HOST:PORT or tls:HOST:PORT
    #[arg(long, value_name = "ADDR", env = "TICKWALK_LISTEN", default_value = "127.0.0.1:4170")]
    listen: Address,
    /// Directory for recordings, one file per session
    #[arg(long, value_name = "DIR", env = "TICKWALK_DIR", default_value = ".", conflicts_with = "store")]
    dir: PathBuf,
    /// Directory of a store for all sessions, instead of recordings
    #[arg(long, value_name = "DIR", env = "TICKWALK_STORE")]
    store: Option<PathBuf>,
    /// Write all samples to a lake of Parquet files as well: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or
    /// file:///PATH; needs --store, in which they wait for it
    #[arg(long, value_name = "URL", env = "TICKWALK_LAKE")]
    lake: Option<LakeUrl>,
    /// Time between uploads to the lake, 10s to 1h; a longer one makes fewer requests and larger files, and the lake is
    /// behind by as much [default: 1m]
    #[arg(long, value_name = "TIME", env = "TICKWALK_LAKE_EVERY", value_parser = lake_every)]
    lake_every: Option<Duration>,
    /// Bytes that wait on the disk while the lake is away; beyond, agents are not acknowledged and keep their data
    /// [default: 4G]
    #[arg(long, value_name = "SIZE", env = "TICKWALK_LAKE_SPOOL")]
    lake_spool: Option<Size>,
    /// Address of the HTTP API, the metrics and the page; needs --store [default: 127.0.0.1:4172]
    #[arg(long, value_name = "ADDR", env = "TICKWALK_HTTP")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    page: PageArguments,
    /// Maximum number of connected agents, 1 to 4096; others are refused
    #[arg(
        long,
        value_name = "N",
        env = "TICKWALK_MAX_CONNECTIONS",
        default_value = "256",
        value_parser = value_parser!(u16).range(1..=4096)
    )]
    max_connections: u16,
    /// Delete data older than this, such as 30d [default: 90d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP")]
    keep: Option<Age>,
    /// Delete the oldest data above this size, such as 5G [default: 20G]
    #[arg(long, value_name = "SIZE", env = "TICKWALK_KEEP_BYTES")]
    keep_bytes: Option<Size>,
    /// Keep single samples for this time, then sums per minute [default: 2d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_SAMPLES")]
    keep_samples: Option<Age>,
    /// Keep sums per minute for this time, then sums per hour [default: 14d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_MINUTES")]
    keep_minutes: Option<Age>,
    /// Keep sums per hour for this time, then sums per day [default: 60d]
    #[arg(long, value_name = "TIME", env = "TICKWALK_KEEP_HOURS")]
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
    config: Option<PathBuf>,
    /// True if `--dir` replaces a store of the file.
    #[arg(skip)]
    replaces_store: bool,
}

/// Address of the HTTP server by default.
const DEFAULT_HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4172);

/// Options in effect.
#[derive(Debug)]
pub struct CollectorOptions {
    pub listen: Address,
    pub keep: Keep,
    token_file: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    insecure: bool,
    pub max_connections: usize,
    pub forward: Forward,
}

impl CollectorOptions {
    /// Returns the token and the certificate of the collector.
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
    ensure!(
        !token.is_empty(),
        "the token file {} is empty; write the token into its first line",
        path.display()
    );
    Ok(token.to_owned())
}

#[derive(Debug)]
pub enum Keep {
    /// Recordings in this directory.
    Recordings(PathBuf),
    /// A store with an HTTP server.
    Store {
        directory: PathBuf,
        retention: Retention,
        lake: Option<Box<LakeOptions>>,
        http: SocketAddr,
        page: PageArguments,
    },
}

/// A lake to which a store writes.
#[derive(Debug)]
pub struct LakeOptions {
    pub url: LakeUrl,
    pub intervals: Intervals,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::Recordings(directory) => write!(f, "recordings in {}", directory.display()),
            Keep::Store { directory, retention, lake, .. } => {
                let days = retention.age.as_secs() / 86_400;
                write!(f, "store {}, for {days} days", directory.display())?;
                lake.as_ref().map_or(Ok(()), |lake| write!(f, ", lake {}", lake.url))
            }
        }
    }
}

impl CollectorArguments {
    /// Reads the file of `--config`, and `words`, the command line from its verb on, again.
    pub fn with_file(self, words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let Some(path) = &self.config else { return Ok(self) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}; correct --config", path.display()))?;
        let not_valid = || format!("the configuration file {} is not valid", path.display());
        Self::with_defaults(&text, words).with_context(not_valid)
    }

    fn with_defaults(text: &str, words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut command = Self::augment_args(Command::new("collect"));
        for (id, value) in options_of(text.parse()?)? {
            let is_known = command.get_arguments().any(|argument| argument.get_id() == id.as_str());
            ensure!(is_known, "unknown option {id}");
            // Read once, so that these texts need not be freed.
            let texts = texts(value).with_context(|| format!("{id}: write a text"))?;
            let texts: Vec<&'static str> = texts.into_iter().map(|text| &*text.leak()).collect();
            command = command.mut_arg(id, |argument| argument.default_values(texts));
        }
        let matches = command.try_get_matches_from(words).map_err(first_line)?;
        let is_default = |id: &str| matches.value_source(id) == Some(ValueSource::DefaultValue);
        let replaces_store = !is_default("dir") && is_default("store");
        Ok(Self { replaces_store, ..Self::from_arg_matches(&matches)? })
    }

    /// Checks the options together.
    pub fn resolve(mut self) -> anyhow::Result<CollectorOptions> {
        if self.replaces_store {
            // Another option replaces the store, so a store in the configuration file is ignored.
            self.store = None;
        } else if let (None, Some(option)) = (&self.store, self.option_of_store()) {
            bail!("{option} has no effect without --store; add --store or leave it out");
        }
        let certificate = self.certificate()?;
        ensure!(
            !self.insecure || matches!(self.listen, Address::Tcp { .. }),
            "--insecure has no effect on {}; leave it out",
            self.listen
        );
        if let (None, Some(_), Some(option)) = (&self.lake, &self.store, self.option_of_lake()) {
            bail!("{option} has no effect without --lake; add --lake or leave it out");
        }
        let forward = self.forward.resolve(self.store.is_some())?;
        let keep = match self.store {
            None => Keep::Recordings(self.dir),
            Some(directory) => {
                let default = Retention::default();
                let time = |option: Option<Age>, default| option.map_or(default, |Age(time)| time);
                Keep::Store {
                    directory,
                    retention: Retention {
                        age: time(self.keep, default.age),
                        bytes: self.keep_bytes.map_or(default.bytes, |Size(bytes)| bytes),
                        samples: time(self.keep_samples, default.samples),
                        minutes: time(self.keep_minutes, default.minutes),
                        hours: time(self.keep_hours, default.hours),
                    },
                    lake: self.lake.map(|url| {
                        let default = Intervals::default();
                        let intervals = Intervals {
                            every: self.lake_every.unwrap_or(default.every),
                            spool_bytes: self.lake_spool.map_or(default.spool_bytes, |Size(bytes)| bytes),
                        };
                        Box::new(LakeOptions { url, intervals })
                    }),
                    http: self.http.unwrap_or(DEFAULT_HTTP),
                    page: self.page,
                }
            }
        };
        Ok(CollectorOptions {
            listen: self.listen,
            keep,
            token_file: self.token_file,
            certificate,
            insecure: self.insecure,
            max_connections: self.max_connections.into(),
            forward,
        })
    }

    /// Returns an option that was given and has an effect on a lake only.
    fn option_of_lake(&self) -> Option<&'static str> {
        let spool = self.lake_spool.map(|_| "--lake-spool");
        self.lake_every.map(|_| "--lake-every").or(spool)
    }

    /// Returns an option that was given and has an effect on a store only.
    fn option_of_store(&self) -> Option<&'static str> {
        if let Some(option) = self.option_of_lake() {
            return Some(option);
        }
        let given = [
            ("--lake", self.lake.is_some()),
            ("--http", self.http.is_some()),
            ("--http-token-file", self.page.http_token_file.is_some()),
            ("--http-insecure", self.page.http_insecure),
            ("--source-path", !self.page.source_path.is_empty()),
            ("--keep", self.keep.is_some()),
            ("--keep-bytes", self.keep_bytes.is_some()),
            ("--keep-samples", self.keep_samples.is_some()),
            ("--keep-minutes", self.keep_minutes.is_some()),
            ("--keep-hours", self.keep_hours.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    fn certificate(&self) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
        let (Some(chain), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            ensure!(
                self.tls_cert.is_none() && self.tls_key.is_none(),
                "only one of tls_cert and tls_key is set; set both"
            );
            return Ok(None);
        };
        ensure!(
            matches!(self.listen, Address::Tls { .. }),
            "--tls-cert and --tls-key have no effect on {}; listen on tls:HOST:PORT or leave them out",
            self.listen
        );
        Ok(Some((chain.clone(), key.clone())))
    }
}

/// Returns the options of a file by the name of their field.
fn options_of(file: Table) -> anyhow::Result<Vec<(String, Value)>> {
    let mut options = Vec::new();
    for (name, value) in file {
        match (name.as_str(), value) {
            ("forward", Value::Table(forward)) => {
                options.extend(forward.into_iter().map(|(name, value)| match name.as_str() {
                    "to" => ("forward".to_owned(), value),
                    "headers" => ("forward_header".to_owned(), value),
                    name => (format!("forward_{name}"), value),
                }));
            }
            (name, _) if name == "config" || name.starts_with("forward") => bail!("unknown option {name}"),
            (_, value) => options.push((name, value)),
        }
    }
    Ok(options)
}

/// Returns a value as the command line has it; `None` if it cannot be written there.
fn texts(value: Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Integer(number) => Some(vec![number.to_string()]),
        Value::Boolean(is_on) => Some(vec![is_on.to_string()]),
        Value::Array(values) => values.into_iter().map(|value| texts(value)?.pop()).collect(),
        _ => None,
    }
}

/// Returns the error of a value without the hints for users of the command line.
fn first_line(error: clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    anyhow::anyhow!("{}", line.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(file: &str, options: &[&str]) -> anyhow::Result<CollectorOptions> {
        let words = ["collect"].iter().chain(options).map(OsString::from);
        CollectorArguments::with_defaults(file, words)?.resolve()
    }

    #[test]
    fn options_come_before_the_file_and_the_file_before_defaults() {
        let file = "store = \"/a\"\nkeep = \"7d\"\nkeep_bytes = \"1G\"\nsource_path = [\"a\", \"b\"]\nhttp_insecure = true\n";
        let options = parsed(file, &["--keep", "1m"]).expect("good file");
        let Keep::Store { directory, retention, http, page, .. } = options.keep else { panic!("a store") };
        assert_eq!(directory, PathBuf::from("/a"));
        assert_eq!((retention.age.as_secs(), retention.bytes), (60, 1 << 30));
        assert_eq!(retention.minutes, Retention::default().minutes);
        assert!(http.ip().is_loopback() && page.http_insecure && page.source_path.len() == 2);
        let lake = ["--lake", "file:///b", "--lake-every", "5m"];
        let options = parsed(file, &lake).expect("a lake");
        let Keep::Store { lake: Some(lake), .. } = options.keep else { panic!("a lake") };
        assert_eq!(lake.intervals, Intervals { every: Duration::from_secs(300), ..Intervals::default() });
        let options = parsed(file, &["--dir", "/b"]).expect("a directory in place of the store");
        assert!(matches!(options.keep, Keep::Recordings(directory) if directory == Path::new("/b")));
        let options = parsed("listen = \"[::1]:1\"\nmax_connections = 7", &[]).expect("good file");
        assert_eq!((options.listen.to_string().as_str(), options.max_connections), ("tcp:[::1]:1", 7));
    }

    #[test]
    fn options_without_effect_and_unknown_or_wrong_ones_of_a_file_are_errors() {
        for text in [
            "stroe = \"/a\"",
            "keep = \"7\"",
            "keep_bytes = \"1M\"",
            "listen = 1",
            "keep = \"7d\"",
            "max_connections = 5000",
            "config = \"a\"",
            "forward_header = \"a=b\"",
            "[forward]\nfrom = \"a\"",
            "tls_cert = \"a\"",
            "store = \"/a\"\nlake = \"file:///b\"\nlake_every = \"9s\"",
            "store = \"/a\"\nlake_every = \"5m\"",
            "[store]\na = 1",
        ] {
            assert!(parsed(text, &[]).is_err(), "{text}");
        }
        let error = parsed("keep_bytes = \"1M\"", &[]).expect_err("too small").to_string();
        assert_eq!(
            error,
            "invalid value '1M' for '--keep-bytes <SIZE>': write a size of at least 16M (units k, M, G, T), for example 20G"
        );
    }

    #[test]
    fn a_file_has_a_table_for_forwarding() {
        let file =
            "store = \"/a\"\n[forward]\nto = [\"http://b:4317\"]\nheaders = [\"tenant=1\"]\nevery = \"2s\"";
        let forward = parsed(file, &[]).expect("good options").forward;
        assert_eq!(forward.targets[0].address(), "http://b:4317");
        assert_eq!(forward.settings.every.as_secs(), 2);
        let forward = parsed(file, &["--forward", "http://a:4317"]).expect("good options").forward;
        assert_eq!((forward.targets.len(), forward.targets[0].address()), (1, "http://a:4317"));
    }
}
