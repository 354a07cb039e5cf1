//! Sources of profiles: a recording, a store that no collector has open, a running collector, or a lake.

pub mod file_format;
mod local_time;

use std::fmt;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use collector::source_path::{SourcePath, WithSources};
use collector::store::{Store, is_partition};
use lake::read::source::LakeSource;
use lake::storage::{Lake, LakeError, LakeUrl};
use profile::api::question;
use profile::export::{self, Options};
use profile::query::part::part_of;
use profile::query::selection::{FRAME_KINDS, Selection, THREAD_KINDS, THREAD_STATES};
use profile::source::SharedSource;
use profile::source::recording::{Recording, RecordingError, Recordings};
use profile::text::format::Format;
use serde_json::Value;
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::options::values::{Offered, Time};
use crate::output::{self, progress};

/// Maximum bytes of an answer of a collector; a call tree of 200,000 nodes has about 10 MB.
const ANSWER_BYTES: u64 = 256 << 20;

/// Default time limit for an answer, which may be queued behind others.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Parameters of a question as names and values.
pub type Pairs = Vec<(String, String)>;

/// A recording (FILE), a store (DIR), a collector (`http(s)://HOST:PORT`), or a lake.
#[derive(Clone, Debug)]
pub enum Source {
    Path(PathBuf),
    Url(String, Requests),
    Lake(LakeUrl, Requests),
}

/// Headers and time limit of requests.
#[derive(Clone, Debug)]
pub struct Requests {
    /// Headers for a collector.
    headers: Vec<Header>,
    /// Time limit for the answer of a collector, and for reading a lake.
    timeout: Duration,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { headers: Vec::new(), timeout: TIMEOUT }
    }
}

/// Name and value of a request header.
pub type Header = (String, String);

impl FromStr for Source {
    type Err = LakeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if LakeUrl::is_one(text) {
            return Ok(Source::Lake(text.parse()?, Requests::default()));
        }
        Ok(match text.starts_with("http://") || text.starts_with("https://") {
            true => Source::Url(text.trim_end_matches('/').to_owned(), Requests::default()),
            false => Source::Path(text.into()),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Path(path) => path.display().fmt(f),
            Source::Url(url, _) => f.write_str(url),
            Source::Lake(url, _) => url.fmt(f),
        }
    }
}

impl Source {
    /// Returns the answer to `question`, the path below `/api/v1/`, with the parameters `pairs`.
    pub fn ask(&self, question: &str, pairs: &[(String, String)]) -> anyhow::Result<Vec<u8>> {
        match self {
            Source::Path(path) => Ok(question::answer(&*open(path)?, question, pairs, now_ns())?.bytes),
            Source::Url(url, requests) => fetch(url, requests, question, pairs),
            Source::Lake(url, requests) => {
                Ok(question::answer(&open_lake(url, requests)?, question, pairs, now_ns())?.bytes)
            }
        }
    }

    /// Answers a question like [`ask`](Self::ask), with source texts for a recording or store; a collector has its own.
    pub fn ask_with(
        &self,
        texts: SourcePath,
        question: &str,
        pairs: &[(String, String)],
    ) -> anyhow::Result<Vec<u8>> {
        if matches!(self, Source::Url(..)) && !texts.is_empty() {
            bail!(
                "--source-path has no effect on a collector; give it to 'tickwalk collect', or leave it out"
            );
        }
        match self {
            Source::Path(_) | Source::Lake(..) if !texts.is_empty() => {
                let source = WithSources { samples: self.open_to_serve()?.0, texts };
                Ok(question::answer(&source, question, pairs, now_ns())?.bytes)
            }
            _ => self.ask(question, pairs),
        }
    }

    /// Writes the selection of `pairs` in `format` to `out`; returns warnings about what is missing in it.
    pub fn export(
        &self,
        format: Format,
        options: Options,
        pairs: &[(String, String)],
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<Vec<String>> {
        let named = ("format".to_owned(), format.name().to_owned());
        let exported = [pairs, &[named], &options.pairs()].concat();
        // Damage is found while samples are read, so the warnings come second.
        match self {
            Source::Url(url, requests) => {
                out.write_all(&fetch(url, requests, "export", &exported)?)?;
                // The warnings are the same for any number of rows.
                let one = [pairs, &[("limit".to_owned(), "1".to_owned())]].concat();
                let answer = fetch(url, requests, "processes", &one).unwrap_or_default();
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                let Some(warnings) = answer["warnings"].as_array() else {
                    return Ok(vec!["the collector did not say whether samples are missing".to_owned()]);
                };
                let of_sums = answer.get("warning_of_sums").filter(|_| format.sums_processes());
                let all = warnings.iter().chain(of_sums).filter_map(Value::as_str);
                Ok(all.map(str::to_owned).collect())
            }
            Source::Path(_) | Source::Lake(..) => {
                let (selection, now_ns, (whole, store)) =
                    (Selection::of(pairs)?, now_ns(), self.open_to_serve()?);
                let part = part_of(&*whole, &[&selection], true, now_ns)?;
                let source = part.as_deref().unwrap_or(&*whole);
                match store {
                    // Like the answer of a collector, it begins again without a partition that is found damaged.
                    Some(_) => {
                        out.write_all(&question::answer(source, "export", &exported, now_ns)?.bytes)?;
                    }
                    None => export::write(source, &selection, format, options, now_ns, out)?,
                }
                let span = match format.sums_processes() {
                    true => selection.span_with_modes(source, now_ns)?,
                    false => selection.span(source, now_ns),
                };
                Ok(span.warnings().collect())
            }
        }
    }

    /// Returns whether both are the same file, directory or collector.
    pub fn is_same(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Path(one), Source::Path(other)) => match (one.canonicalize(), other.canonicalize()) {
                (Ok(one), Ok(other)) => one == other,
                _ => one == other,
            },
            (Source::Url(one, _), Source::Url(other, _)) => one == other,
            (Source::Lake(one, _), Source::Lake(other, _)) => one == other,
            _ => false,
        }
    }

    /// Checks that `output` is not what this source reads.
    fn check_apart(&self, output: &Path) -> anyhow::Result<()> {
        let Source::Path(source) = self else { return Ok(()) };
        let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        let is_source = identity(output).is_some_and(|output| Some(output) == identity(source));
        let folder =
            output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_in_store = source.is_dir() && identity(folder) == identity(source) && is_partition(output);
        if is_source || is_in_store {
            bail!("{} is what this command reads; name another file to write", output.display());
        }
        Ok(())
    }

    /// Returns the default path of a flame graph page of this source.
    pub fn page_path(&self) -> PathBuf {
        match self {
            Source::Path(path) if path.is_dir() => path.join("flamegraph.html"),
            Source::Path(path) => path.with_extension("html"),
            Source::Url(..) | Source::Lake(..) => PathBuf::from("flamegraph.html"),
        }
    }

    /// Opens the recording, store or lake, to serve it; the second part is the store, if it is one.
    pub fn open_to_serve(&self) -> anyhow::Result<(SharedSource, Option<Arc<Store>>)> {
        match self {
            Source::Path(path) if path.is_dir() => {
                let store = Arc::new(open_directory(path)?);
                Ok((store.clone(), Some(store)))
            }
            Source::Path(path) => Ok((Arc::new(read_recordings(path)?), None)),
            Source::Url(url, _) => {
                bail!(
                    "{url} is a running collector, which serves its page itself; name a recording, a store directory or a lake"
                )
            }
            Source::Lake(url, requests) => Ok((Arc::new(open_lake(url, requests)?), None)),
        }
    }
}

/// Checks that `path` can be written, and is none of `sources`; callers check before they read. `None` is standard
/// output.
pub fn check_output<'s>(
    path: Option<&Path>,
    sources: impl IntoIterator<Item = &'s Source>,
) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    output::check_writable(path)?;
    sources.into_iter().try_for_each(|source| source.check_apart(path))
}

/// Opens a lake, which is read for each question.
fn open_lake(url: &LakeUrl, requests: &Requests) -> anyhow::Result<LakeSource> {
    Ok(LakeSource::new(Lake::open(url)?, requests.timeout, progress::of_lake()))
}

/// Opens the recording or store at `path`.
fn open(path: &Path) -> anyhow::Result<Box<dyn profile::source::Source>> {
    Ok(match path.is_dir() {
        true => Box::new(open_directory(path)?),
        false => Box::new(read_recordings(path)?),
    })
}

fn open_directory(path: &Path) -> anyhow::Result<Store> {
    Store::open_for_reading(path).with_context(|| path.display().to_string())
}

/// Reads the recording at `path`, of one program.
pub fn read_recording(path: &Path) -> anyhow::Result<Recording> {
    Recording::read(path).map_err(|error| unread(path, error))
}

/// Reads the recordings in the file at `path`.
fn read_recordings(path: &Path) -> anyhow::Result<Recordings> {
    Recordings::read(path).map_err(|error| unread(path, error))
}

fn unread(path: &Path, error: RecordingError) -> anyhow::Error {
    match error {
        RecordingError::Io(ErrorKind::NotFound) => {
            anyhow!("{}: there is no such file; name a recording or the directory of a store", path.display())
        }
        error => anyhow!("{}: {error}", path.display()),
    }
}

fn fetch(
    url: &str,
    requests: &Requests,
    question: &str,
    pairs: &[(String, String)],
) -> anyhow::Result<Vec<u8>> {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(requests.timeout))
        .http_status_as_error(false)
        // Headers can be secret, so they must not follow a redirect.
        .max_redirects(0);
    if url.starts_with("https://") {
        config = config.tls_config(tls());
    }
    let agent: ureq::Agent = config.build().into();
    let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let request = agent.get(format!("{url}/api/v1/{question}")).query_pairs(pairs);
    let request = requests.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    let mut answer = request.call().with_context(|| {
        format!("no answer from {url}; check the address, its certificate, and that the collector runs")
    })?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec()?;
    if status.is_success() {
        return Ok(body);
    }
    let error: Option<Value> = serde_json::from_slice(&body).ok();
    match error.as_ref().and_then(|error| error["error"].as_str()) {
        Some(error) => bail!("{error}"),
        None => bail!("{url} answered {status} without an explanation; is it a Tickwalk collector?"),
    }
}

/// Returns the configuration of TLS: the certificates that the system trusts, or those of `SSL_CERT_FILE`.
fn tls() -> TlsConfig {
    let found = rustls_native_certs::load_native_certs();
    let roots = found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

/// Returns the current time in nanoseconds since the epoch.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Options that select samples; they are named like the parameters of the HTTP API.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArguments {
    /// Start: before the end (-15m), after the start (3s), a local time of day (14:03:05, by today's distance from UTC)
    /// or date (2026-11-29T14:03), or seconds since the epoch
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = local_time::moment)]
    from: Option<String>,
    /// End, exclusive, written like --from; a time of day is the first one after --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = local_time::moment)]
    to: Option<String>,
    /// Process: its id in `view processes`, its pid, or its service; can be repeated
    #[arg(long, value_name = "NAME")]
    process: Vec<String>,
    /// Label of the process: host=, service=, jvm=, command=, pid=, or one that was set for it; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Thread: part of its name, or its kernel id; can be repeated
    #[arg(long, value_name = "NAME")]
    thread: Vec<String>,
    /// Kind of the thread, also by the words of the report (JIT, GC, JVM, 'native code'); can be repeated
    #[arg(long, value_name = "KIND", value_parser = Offered::new(THREAD_KINDS))]
    thread_kind: Vec<String>,
    /// Kind of the newest frame, whatever the thread, also by the words of the report (Java, 'native code', JVM); can
    /// be repeated
    #[arg(long, value_name = "KIND", value_parser = Offered::new(FRAME_KINDS.map(|(name, _)| name)))]
    kind: Vec<String>,
    /// State of the thread, in a profile of wall time; waiting includes blocked; can be repeated
    #[arg(long, value_name = "STATE", value_parser = Offered::new(THREAD_STATES))]
    state: Vec<String>,
    /// Only stacks with a frame that contains this text; can be repeated
    #[arg(long, value_name = "TEXT")]
    frame: Vec<String>,
    /// Only stacks with a frame that matches this pattern, in which * stands for any text, such as 'java.util.*'; if
    /// it is repeated, one pattern has to match
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// No stacks with a frame that matches this pattern; can be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Header for requests to a collector, such as "Authorization: Bearer TOKEN"; can be repeated
    #[arg(
        long,
        value_name = "NAME: VALUE",
        env = "TICKWALK_HEADER",
        hide_env_values = true,
        value_parser = header,
        help_heading = "Source"
    )]
    header: Vec<Header>,
    /// Time limit for the answer of a collector, and for reading a lake [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Source")]
    timeout: Option<Time>,
}

impl SelectionArguments {
    /// Gives `source` the headers and the time limit for its requests.
    pub fn configured(&self, source: Source) -> Source {
        let timeout = self.timeout.map_or(TIMEOUT, |Time(timeout)| timeout);
        let requests = Requests { headers: self.header.clone(), timeout };
        match source {
            Source::Url(url, _) => Source::Url(url, requests),
            Source::Lake(url, _) => Source::Lake(url, requests),
            Source::Path(path) => Source::Path(path),
        }
    }

    /// Returns the selection as parameters of a question.
    pub fn pairs(&self) -> Pairs {
        let single = [("from", &self.from), ("to", &self.to)];
        let repeated = [
            ("process", &self.process),
            ("label", &self.label),
            ("thread", &self.thread),
            ("thread_kind", &self.thread_kind),
            ("kind", &self.kind),
            ("state", &self.state),
            ("frame", &self.frame),
            ("include", &self.include),
            ("exclude", &self.exclude),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        let repeated = repeated
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name.to_owned(), value.clone())));
        single.chain(repeated).collect()
    }
}

/// Reads a header. Errors do not quote it, because it can be secret.
fn header(text: &str) -> Result<Header, &'static str> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    let is_valid = HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok();
    if is_valid {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err("not a valid header; write NAME: VALUE")
    }
}

/// Splits `parameter`, a `NAME=VALUE` given to `option`.
pub fn pair(option: &str, parameter: &str) -> anyhow::Result<(String, String)> {
    let (name, value) =
        parameter.split_once('=').with_context(|| format!("{option} {parameter}: write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}
