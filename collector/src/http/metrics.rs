//! Metrics in the text format of Prometheus.
//!
//! Most values are read from the store for each scrape; only the duration of queries is recorded here.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lake::write::spool::Delivery;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeVal;
use prometheus::{CounterVec, Encoder, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, TextEncoder};

use crate::forward::{Account, Accounts, Cause};
use crate::ingest::Health;
use crate::store::{Status, Store, Tally};
use profile::api::question::Answer;

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
    started: SystemTime,
}

impl Metrics {
    pub(super) fn new() -> prometheus::Result<Metrics> {
        let registry = Registry::new();
        let options = HistogramOpts::new("tickwalk_query_duration_seconds", "Duration of queries");
        let questions = HistogramVec::new(options.buckets(SECONDS.to_vec()), &["query"])?;
        registry.register(Box::new(questions.clone()))?;
        let version = [(vec![env!("CARGO_PKG_VERSION")], 1.0)];
        Metric::new("tickwalk_build_info Version of the collector", &["version"], version)
            .add_to(&registry)?;
        Ok(Metrics { registry, questions, started: SystemTime::now() })
    }

    /// Records the duration of a query.
    pub(super) fn record(&self, answer: &Answer, time: Duration) {
        self.questions.with_label_values(&[answer.question]).observe(time.as_secs_f64());
    }

    pub(super) fn text(&self, probe: &Probe) -> prometheus::Result<Vec<u8>> {
        let store = probe.store.as_ref();
        let tally = store.map(|store| store.tally()).unwrap_or_default();
        let accounts = probe.forwarded.get();
        let registry = Registry::new();
        let status = store.map(|store| store.status()).unwrap_or_default();
        let plain =
            of_store(&status).into_iter().chain(of_agents((probe.agents)())).chain(of_process(self.started));
        plain
            .map(|(text, value)| Metric::new(text, &[], [(Vec::new(), value)]))
            .chain(status.lake.iter().flat_map(of_lake))
            .chain(of_sessions(&tally))
            .chain(of_receivers(&accounts))
            .try_for_each(|metric| metric.add_to(&registry))?;
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text)?;
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// A metric. It is a counter if its name ends with `_total`, else a gauge.
struct Metric<'v> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    /// Values by the values of the labels; a metric without any is left out.
    values: Vec<(Vec<&'v str>, f64)>,
}

impl<'v> Metric<'v> {
    /// Returns the metric described by `text`: its name, a space and its help text.
    fn new(
        text: &'static str,
        labels: &'static [&'static str],
        values: impl IntoIterator<Item = (Vec<&'v str>, f64)>,
    ) -> Self {
        let (name, help) = text.split_once(' ').unwrap_or((text, ""));
        Metric { name, help, labels, values: values.into_iter().collect() }
    }

    fn add_to(self, registry: &Registry) -> prometheus::Result<()> {
        let options = Opts::new(self.name, self.help);
        if self.name.ends_with("_total") {
            let counter = CounterVec::new(options, self.labels)?;
            self.values.iter().for_each(|(labels, value)| counter.with_label_values(labels).inc_by(*value));
            return registry.register(Box::new(counter));
        }
        let gauge = GaugeVec::new(options, self.labels)?;
        self.values.iter().for_each(|(labels, value)| gauge.with_label_values(labels).set(*value));
        registry.register(Box::new(gauge))
    }
}

fn of_store(status: &Status) -> [(&'static str, f64); 18] {
    let commit_seconds = status.commit_ns as f64 / 1e9;
    let failing = f64::from(u8::from(status.failing.is_some()));
    [
        ("tickwalk_bytes_received_total Bytes of received messages", status.received_bytes as f64),
        ("tickwalk_messages_received_total Received messages", status.messages as f64),
        ("tickwalk_commits_total Group commits of the store", status.commits as f64),
        ("tickwalk_commit_seconds_total Duration of all group commits", commit_seconds),
        ("tickwalk_folds_total Folds of the journal into blocks", status.folds as f64),
        ("tickwalk_storage_failures_total Writes to the store that failed", status.failures as f64),
        ("tickwalk_storage_failing 1 while writes to the store fail", failing),
        ("tickwalk_storage_bytes Bytes of the store's files", status.stored_bytes as f64),
        ("tickwalk_storage_partitions Files of the store", status.partitions as f64),
        (EARLY_PARTITIONS, status.early_partitions as f64),
        (
            "tickwalk_sessions_turned_away_total Refused sessions, for lack of memory",
            status.sessions_turned_away as f64,
        ),
        ("tickwalk_session_bytes Memory of sessions and threads", status.session_bytes as f64),
        ("tickwalk_dictionary_bytes Memory of dictionaries", status.dictionary_bytes as f64),
        (
            "tickwalk_dictionary_refused Dictionary entries refused for lack of memory",
            status.dictionary_refused as f64,
        ),
        (FOLDED_THREADS, status.virtual_threads_folded as f64),
        (DICTIONARIES_READ, status.dictionaries_read as f64),
        ("tickwalk_ingest_queue_length Requests waiting for the next commit", status.waiting_requests as f64),
        ("tickwalk_open_samples Samples in memory before their fold", status.open_samples as f64),
    ]
}

fn of_lake<'v>(lake: &Delivery) -> [Metric<'v>; 6] {
    let failing = f64::from(u8::from(lake.is_failing));
    [
        ("tickwalk_lake_waiting_intervals Intervals on the disk that wait for the lake", lake.waiting as f64),
        ("tickwalk_lake_waiting_bytes Bytes of waiting intervals", lake.waiting_bytes as f64),
        ("tickwalk_lake_intervals_total Intervals uploaded to the lake", lake.intervals as f64),
        ("tickwalk_lake_bytes_total Bytes uploaded to the lake", lake.bytes as f64),
        ("tickwalk_lake_failures_total Failed uploads, which are repeated", lake.failures as f64),
        ("tickwalk_lake_failing 1 while uploads fail", failing),
    ]
    .map(|(text, value)| Metric::new(text, &[], [(Vec::new(), value)]))
}

const EARLY_PARTITIONS: &str = "tickwalk_storage_early_partitions_total Partitions begun early because names or \
                                sessions filled the memory of the previous one";
const FOLDED_THREADS: &str = "tickwalk_virtual_threads_folded Virtual threads counted for their carriers, because a \
                              session introduced too many";
const DICTIONARIES_READ: &str = "tickwalk_dictionaries_read_total Dictionaries of old partitions read from their \
                                 files for queries";

fn of_agents(health: Health) -> [(&'static str, f64); 4] {
    let is_listening = f64::from(u8::from(!health.has_ended));
    [
        ("tickwalk_agents_connected Open connections of agents", health.connections as f64),
        ("tickwalk_agents_listening 1 while connections of agents are accepted", is_listening),
        (
            "tickwalk_connections_refused_total Connections of agents refused because there were too many",
            health.refused as f64,
        ),
        (
            "tickwalk_connections_panicked_total Connections of agents closed because of an error in the collector",
            health.panicked as f64,
        ),
    ]
}

/// Returns the metrics that Prometheus's clients have for their own process, as far as the kernel reports them.
fn of_process(started: SystemTime) -> impl Iterator<Item = (&'static str, f64)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let kilobytes = |name: &str| Some(field(name)? * 1024.0);
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let cpu_seconds =
        getrusage(UsageWho::RUSAGE_SELF).map(|used| seconds(used.user_time()) + seconds(used.system_time()));
    // Without the descriptor by which they are counted.
    let open = fs::read_dir("/proc/self/fd").map(|descriptors| descriptors.count().saturating_sub(1) as f64);
    let start = started.duration_since(UNIX_EPOCH).map(|start| start.as_secs_f64());
    let values = [
        ("process_cpu_seconds_total CPU time of all threads of the collector", cpu_seconds.ok()),
        ("process_resident_memory_bytes Resident memory", kilobytes("VmRSS:")),
        ("process_virtual_memory_bytes Reserved addresses", kilobytes("VmSize:")),
        ("process_threads Threads", field("Threads:")),
        ("process_open_fds Open file descriptors", open.ok()),
        (
            "process_max_fds Most file descriptors",
            getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft as f64).ok(),
        ),
        ("process_start_time_seconds Start of the server, in seconds since 1970", start.ok()),
    ];
    values.into_iter().filter_map(|(text, value)| Some((text, value?)))
}

fn of_sessions(tally: &Tally) -> [Metric<'_>; 6] {
    let stored = tally.stored.iter().flat_map(|(mode, services)| {
        services.iter().map(|(service, &count)| (vec![service.as_str(), *mode], count as f64))
    });
    let lost = tally.lost.iter().map(|(reason, &count)| (vec![reason.as_str()], count as f64));
    [
        Metric::new("tickwalk_samples_total Samples stored since the start", &["service", "mode"], stored),
        Metric::new(
            "tickwalk_samples_lost_total Samples that agents reported as lost since the start",
            &["reason"],
            lost,
        ),
        by_service(BIASED, &tally.biased, 1.0),
        by_service(RUN_DELAY, &tally.run_delay_ns, 1e9),
        by_service(THROTTLED, &tally.throttled_ns, 1e9),
        by_service(THROTTLED_PERIODS, &tally.throttled_periods, 1.0),
    ]
}

fn by_service<'v>(text: &'static str, sums: &'v BTreeMap<String, u64>, unit: f64) -> Metric<'v> {
    let values = sums.iter().map(|(service, &sum)| (vec![service.as_str()], sum as f64 / unit));
    Metric::new(text, &["service"], values)
}

const BIASED: &str = "tickwalk_samples_biased_total Samples whose newest Java frame is that of a later point; absent if \
                      no agent counts them";
const RUN_DELAY: &str = "tickwalk_run_delay_seconds_total Time in which threads were ready to run and had no \
                         processor; absent if no kernel reports it";
const THROTTLED: &str = "tickwalk_throttled_seconds_total Time in which the CPU limit of its cgroup stopped a \
                         process; absent if no kernel reports it";
const THROTTLED_PERIODS: &str = "tickwalk_throttled_periods_total Periods in which the CPU limit of its cgroup \
                                 stopped a process; absent if no kernel reports it";

/// Returns the accounts of all receivers.
fn of_receivers<'a>(accounts: &[(&'a str, Account)]) -> Vec<Metric<'a>> {
    let texts = [
        "tickwalk_forwarded_samples_total Samples delivered to a receiver",
        "tickwalk_forwarded_cpu_seconds_total Time of delivered samples: CPU time, of wall profiles wall time",
        "tickwalk_forwarded_requests_total Requests delivered to a receiver",
        "tickwalk_forwarded_bytes_total Bytes of delivered requests before compression",
        "tickwalk_forward_retries_total Failed attempts that are repeated",
        "tickwalk_forward_waiting_bytes Bytes of waiting requests",
    ];
    let values = |Account { delivered, retries, waiting, .. }: &Account| {
        let cpu_seconds = delivered.cpu_ns as f64 / 1e9;
        let [samples, requests] = [delivered.samples, delivered.requests].map(|count| count as f64);
        [samples, cpu_seconds, requests, delivered.bytes as f64, *retries as f64, waiting.bytes as f64]
    };
    let by_receiver = texts.into_iter().enumerate().map(|(at, text)| {
        let values = accounts.iter().map(|(address, account)| (vec![*address], values(account)[at]));
        Metric::new(text, &["receiver"], values)
    });
    let dropped = accounts.iter().flat_map(|(address, account)| {
        Cause::ALL.map(|cause| (vec![*address, cause.name()], account.dropped(cause).samples as f64))
    });
    let dropped = Metric::new(
        "tickwalk_forward_dropped_samples_total Samples dropped instead of delivered",
        &["receiver", "reason"],
        dropped,
    );
    by_receiver.chain([dropped]).collect()
}
