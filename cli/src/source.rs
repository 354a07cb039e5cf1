//! What questions are put to: a recording, a store that no collector has open, or a running collector.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use collector::query::question;
use collector::store::Store;

/// Longest answer taken from a collector, in bytes: a call tree of 200,000 nodes is about 10 MB.
const ANSWER_BYTES: u64 = 256 << 20;

/// A collector answers within a second; a busy one has four questions before this one.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A recording (FILE), a store (DIR), or a collector (`http://HOST:PORT`).
#[derive(Clone, Debug)]
pub enum Source {
    Path(PathBuf),
    Url(String),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.starts_with("http://") {
            true => Source::Url(text.trim_end_matches('/').to_owned()),
            false => Source::Path(text.into()),
        })
    }
}

impl Source {
    /// The answer to `question`, the part of an address behind `/api/v1/`, as bytes.
    pub fn ask(&self, question: &str, pairs: &[(String, String)]) -> anyhow::Result<Vec<u8>> {
        match self {
            Source::Path(_) => {
                let store = self.open()?;
                let (question, name) =
                    question.split_once('/').map_or((question, None), |(q, n)| (q, Some(n)));
                Ok(question::answer(&store, question, name, pairs, now_ns())?.bytes)
            }
            Source::Url(url) => fetch(url, question, pairs),
        }
    }

    /// The recording or store itself.
    pub fn open(&self) -> anyhow::Result<Store> {
        match self {
            Source::Path(path) if path.is_dir() => {
                Store::open_for_reading(path).with_context(|| path.display().to_string())
            }
            Source::Path(path) => {
                Store::of_recording(path).map_err(|error| anyhow!("{}: {error}", path.display()))
            }
            Source::Url(url) => bail!("{url} is a collector, a FILE or DIR is needed"),
        }
    }
}

fn fetch(url: &str, question: &str, pairs: &[(String, String)]) -> anyhow::Result<Vec<u8>> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .build()
        .into();
    let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut answer = agent
        .get(format!("{url}/api/v1/{question}"))
        .query_pairs(pairs)
        .call()
        .with_context(|| format!("no answer from {url}"))?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec()?;
    if status.is_success() {
        return Ok(body);
    }
    let error: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    match error.as_ref().and_then(|error| error["error"].as_str()) {
        Some(error) => bail!("{error}"),
        None => bail!("{url} answers {status}"),
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Options that say what a question is about; the words are those of the HTTP API.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArguments {
    /// Begin: seconds since the epoch, or back from now (from the end, for a recording), such as -15m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// End, exclusive, as for --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Process: its id in `view processes`, its pid, or its service
    #[arg(long, value_name = "NAME")]
    process: Vec<String>,
    /// host=, service=, jvm=, command= or pid= of the process
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Part of a thread's name, or its kernel id
    #[arg(long, value_name = "NAME")]
    thread: Vec<String>,
    /// java, virtual, compiler, gc, vm or native
    #[arg(long, value_name = "KIND")]
    thread_kind: Vec<String>,
    /// Kind of the topmost frame: interpreted, c1, c2, inlined, native_method, stub, native, vm or marker
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only stacks with a frame whose text contains this
    #[arg(long, value_name = "TEXT")]
    frame: Vec<String>,
}

impl SelectionArguments {
    /// As parameters of a question.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let single = [("from", &self.from), ("to", &self.to)];
        let repeated = [
            ("process", &self.process),
            ("label", &self.label),
            ("thread", &self.thread),
            ("thread_kind", &self.thread_kind),
            ("kind", &self.kind),
            ("frame", &self.frame),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
        let repeated = repeated
            .into_iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name.to_owned(), value.clone())));
        single.chain(repeated).collect()
    }
}
