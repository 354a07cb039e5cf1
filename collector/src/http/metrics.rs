//! Metrics in the text format of Prometheus.
//!
//! Most values are read from the store for each scrape; only the duration of queries is recorded here.

use std::sync::Arc;
use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Counter, CounterVec, Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::forward::{Accounts, Cause};
use crate::ingest::Health;
use crate::store::Store;
use profile::query::question::Answer;

/// State of the collector that readiness and metrics show beside the profiles.
#[derive(Clone)]
pub struct Probe {
    /// The store, unless a recording is served.
    pub store: Option<Arc<Store>>,
    /// Returns the state of the server for agents.
    pub agents: Arc<dyn Fn() -> Health + Send + Sync>,
    /// Accounts of forwarding.
    pub forwarded: Accounts,
}

impl Default for Probe {
    fn default() -> Self {
        Probe { store: None, agents: Arc::new(Health::default), forwarded: Accounts::default() }
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

    pub(super) fn text(&self, probe: &Probe) -> prometheus::Result<Vec<u8>> {
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
        gauge(
            "tickwalk_virtual_threads_folded",
            "Virtual threads counted for their carriers, because a session introduced too many",
            status.virtual_threads_folded,
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
        let agents = (probe.agents)();
        gauge("tickwalk_agents_connected", "Open connections of agents", agents.connections as u64)?;
        gauge(
            "tickwalk_agents_listening",
            "1 while connections of agents are accepted",
            (!agents.has_ended).into(),
        )?;
        count(
            "tickwalk_connections_refused_total",
            "Connections of agents refused because there were too many",
            agents.refused,
        )?;
        count(
            "tickwalk_connections_panicked_total",
            "Connections of agents closed because of an error in the collector",
            agents.panicked,
        )?;
        let samples = IntCounterVec::new(
            Opts::new("tickwalk_samples_total", "Samples stored since the start"),
            &["service", "mode"],
        )?;
        let lost = IntCounterVec::new(
            Opts::new("tickwalk_samples_lost_total", "Samples that agents reported as lost since the start"),
            &["reason"],
        )?;
        let tally = probe.store.as_ref().map(|store| store.tally()).unwrap_or_default();
        for (mode, services) in &tally.stored {
            for (service, &count) in services {
                samples.with_label_values(&[service.as_str(), mode]).inc_by(count);
            }
        }
        for (reason, &count) in &tally.lost {
            lost.with_label_values(&[reason.as_str()]).inc_by(count);
        }
        registry.register(Box::new(samples))?;
        registry.register(Box::new(lost))?;
        for (name, help, sums, unit) in [
            (
                "tickwalk_samples_biased_total",
                "Samples whose newest Java frame is that of a later point; absent if no agent counts them",
                &tally.biased,
                1.0,
            ),
            (
                "tickwalk_run_delay_seconds_total",
                "Time in which threads were ready to run and had no processor; absent if no kernel reports it",
                &tally.run_delay_ns,
                1e9,
            ),
            (
                "tickwalk_throttled_seconds_total",
                "Time in which the CPU limit of its cgroup stopped a process; absent if no kernel reports it",
                &tally.throttled_ns,
                1e9,
            ),
            (
                "tickwalk_throttled_periods_total",
                "Periods in which the CPU limit of its cgroup stopped a process; absent if no kernel reports it",
                &tally.throttled_periods,
                1.0,
            ),
        ] {
            let metric = CounterVec::new(Opts::new(name, help), &["service"])?;
            for (service, &sum) in sums {
                metric.with_label_values(&[service.as_str()]).inc_by(sum as f64 / unit);
            }
            registry.register(Box::new(metric))?;
        }
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
        Opts::new(
            "tickwalk_forwarded_cpu_seconds_total",
            "Time of samples delivered to a receiver: CPU time, of wall profiles wall time",
        ),
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
