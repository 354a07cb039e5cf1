//! Metrics in the text format of Prometheus.
//!
//! Most values are read from the store for each scrape; only the duration of queries is recorded here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Counter, CounterVec, Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::forward::{Accounts, Cause};
use crate::store::Store;
use profile::query::processes::each_account;
use profile::query::question::Answer;
use profile::query::selection::Selection;
use profile::source::Source;

/// State of the collector that readiness and metrics show beside the profiles.
#[derive(Clone)]
pub struct Probe {
    /// The store, unless a recording is served.
    pub store: Option<Arc<Store>>,
    /// Returns the number of open connections of agents.
    pub connections: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Accounts of forwarding.
    pub forwarded: Accounts,
}

impl Default for Probe {
    fn default() -> Self {
        Probe { store: None, connections: Arc::new(|| 0), forwarded: Accounts::default() }
    }
}

/// Upper bounds of the buckets for the duration of a query, in seconds.
const SECONDS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

pub(super) struct Metrics {
    registry: Registry,
    questions: HistogramVec,
}

impl Metrics {
    pub(super) fn new() -> prometheus::Result<Metrics> {
        let registry = Registry::new();
        let options = HistogramOpts::new("tickwalk_query_duration_seconds", "Duration of queries");
        let questions = HistogramVec::new(options.buckets(SECONDS.to_vec()), &["query"])?;
        registry.register(Box::new(questions.clone()))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let build =
            IntGaugeVec::new(Opts::new("tickwalk_build_info", "Version of the collector"), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(build))?;
        Ok(Metrics { registry, questions })
    }

    /// Records the duration of a query.
    pub(super) fn record(&self, answer: &Answer, time: Duration) {
        self.questions.with_label_values(&[answer.question]).observe(time.as_secs_f64());
    }

    pub(super) fn text(
        &self,
        source: &dyn Source,
        probe: &Probe,
        now_ns: u64,
    ) -> prometheus::Result<Vec<u8>> {
        let registry = Registry::new();
        let status = probe.store.as_ref().map(|store| store.status()).unwrap_or_default();
        let count = |name: &str, help: &str, value: u64| -> prometheus::Result<()> {
            let counter = IntCounter::new(name, help)?;
            counter.inc_by(value);
            registry.register(Box::new(counter))
        };
        let gauge = |name: &str, help: &str, value: u64| -> prometheus::Result<()> {
            let gauge = IntGauge::new(name, help)?;
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(Box::new(gauge))
        };
        count("tickwalk_bytes_received_total", "Bytes of received messages", status.received_bytes)?;
        count("tickwalk_messages_received_total", "Received messages", status.messages)?;
        count("tickwalk_commits_total", "Group commits of the store", status.commits)?;
        let commits = Counter::new("tickwalk_commit_seconds_total", "Duration of all group commits")?;
        commits.inc_by(status.commit_ns as f64 / 1e9);
        registry.register(Box::new(commits))?;
        count("tickwalk_folds_total", "Folds of the journal into blocks", status.folds)?;
        count("tickwalk_storage_failures_total", "Writes to the store that failed", status.failures)?;
        gauge(
            "tickwalk_storage_failing",
            "1 while writes to the store fail",
            status.failing.is_some().into(),
        )?;
        gauge("tickwalk_storage_bytes", "Bytes of the store's files", status.stored_bytes)?;
        gauge("tickwalk_storage_partitions", "Files of the store", status.partitions)?;
        count(
            "tickwalk_storage_early_partitions_total",
            "Partitions begun early because names or sessions filled the memory of the previous one",
            status.early_partitions,
        )?;
        count(
            "tickwalk_sessions_turned_away_total",
            "Refused sessions, for lack of memory",
            status.sessions_turned_away,
        )?;
        gauge("tickwalk_session_bytes", "Memory of sessions and threads", status.session_bytes)?;
        gauge("tickwalk_dictionary_bytes", "Memory of dictionaries", status.dictionary_bytes)?;
        gauge(
            "tickwalk_dictionary_refused",
            "Dictionary entries refused for lack of memory",
            status.dictionary_refused,
        )?;
        count(
            "tickwalk_dictionaries_read_total",
            "Dictionaries of old partitions read from their files for queries",
            status.dictionaries_read,
        )?;
        gauge(
            "tickwalk_ingest_queue_length",
            "Requests waiting for the next commit",
            status.waiting_requests,
        )?;
        gauge("tickwalk_open_samples", "Samples in memory before their fold", status.open_samples)?;
        gauge("tickwalk_agents_connected", "Open connections of agents", (probe.connections)() as u64)?;
        let samples = IntCounterVec::new(
            Opts::new("tickwalk_samples_total", "Stored samples of all retained sessions"),
            &["service"],
        )?;
        let lost = IntCounterVec::new(
            Opts::new("tickwalk_samples_lost_total", "Lost samples of all retained sessions"),
            &["reason"],
        )?;
        let mut by_reason: BTreeMap<String, u64> = BTreeMap::new();
        let mut by_service: BTreeMap<String, u64> = BTreeMap::new();
        let summed_up = each_account(source, &Selection::default(), now_ns, |account| {
            let sum = by_service.entry(account.process.service).or_default();
            *sum = sum.saturating_add(account.process.samples);
            for (reason, count) in account.lost_samples {
                let sum = by_reason.entry(reason).or_default();
                *sum = sum.saturating_add(count);
            }
        });
        if let Err(error) = summed_up {
            tracing::error!(%error, "some sessions cannot be read; the metrics omit them");
        }
        for (service, count) in by_service {
            samples.with_label_values(&[service.as_str()]).inc_by(count);
        }
        for (reason, count) in by_reason {
            lost.with_label_values(&[reason.as_str()]).inc_by(count);
        }
        registry.register(Box::new(samples))?;
        registry.register(Box::new(lost))?;
        forwarded(&registry, &probe.forwarded)?;
        let mut text = Vec::new();
        let encoder = TextEncoder::new();
        encoder.encode(&registry.gather(), &mut text)?;
        encoder.encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// Adds the accounts of all receivers, if there are any.
fn forwarded(registry: &Registry, accounts: &Accounts) -> prometheus::Result<()> {
    let accounts = accounts.get();
    if accounts.is_empty() {
        return Ok(());
    }
    let counter = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<IntCounterVec> {
        let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
        registry.register(Box::new(counter.clone()))?;
        Ok(counter)
    };
    let samples =
        counter("tickwalk_forwarded_samples_total", "Samples delivered to a receiver", &["receiver"])?;
    let cpu = CounterVec::new(
        Opts::new("tickwalk_forwarded_cpu_seconds_total", "CPU time of samples delivered to a receiver"),
        &["receiver"],
    )?;
    registry.register(Box::new(cpu.clone()))?;
    let requests =
        counter("tickwalk_forwarded_requests_total", "Requests delivered to a receiver", &["receiver"])?;
    let bytes = counter(
        "tickwalk_forwarded_bytes_total",
        "Bytes of delivered requests before compression",
        &["receiver"],
    )?;
    let retries =
        counter("tickwalk_forward_retries_total", "Failed attempts that are repeated", &["receiver"])?;
    let dropped = counter(
        "tickwalk_forward_dropped_samples_total",
        "Samples dropped instead of delivered",
        &["receiver", "reason"],
    )?;
    let waiting = IntGaugeVec::new(
        Opts::new("tickwalk_forward_waiting_bytes", "Bytes of waiting requests"),
        &["receiver"],
    )?;
    registry.register(Box::new(waiting.clone()))?;
    for (address, account) in accounts {
        samples.with_label_values(&[address]).inc_by(account.delivered.samples);
        cpu.with_label_values(&[address]).inc_by(account.delivered.cpu_ns as f64 / 1e9);
        requests.with_label_values(&[address]).inc_by(account.delivered.requests);
        bytes.with_label_values(&[address]).inc_by(account.delivered.bytes);
        retries.with_label_values(&[address]).inc_by(account.retries);
        for cause in Cause::ALL {
            dropped.with_label_values(&[address, cause.name()]).inc_by(account.dropped(cause).samples);
        }
        let bytes = i64::try_from(account.waiting.bytes).unwrap_or(i64::MAX);
        waiting.with_label_values(&[address]).set(bytes);
    }
    Ok(())
}
