//! Bytes on the wire a sample, by windows of time and by column:
//! `cargo run --release -p collector --example wire -- FILE.tickwalk [WINDOW_SECONDS=10]`.
//!
//! A recording is the agent's half of the connection, byte by byte. The windows show when the steady state begins: the
//! columns are of the whole recording and of its second half. Acknowledgements, the other half, are counted as one for
//! each message, which is more than a collector sends.

use std::collections::BTreeMap;
use std::path::Path;

use profile::source::recording::RecordingReader;
use prost::Message;
use proto::rows::rows;
use proto::v1::agent_message::Body;
use proto::v1::{Acknowledgement, CollectorMessage, Entries, SampleBatch, Statistics, collector_message};

/// Flag and length in front of a message.
const FRAMING: usize = 5;

/// Bytes by what they are for.
#[derive(Default)]
struct Bytes {
    samples: usize,
    by_kind: BTreeMap<&'static str, usize>,
    by_column: BTreeMap<&'static str, usize>,
}

impl Bytes {
    fn add(&mut self, kind: &'static str, bytes: usize) {
        *self.by_kind.entry(kind).or_default() += bytes;
    }

    fn whole(&self) -> usize {
        self.by_kind.values().sum()
    }

    fn a_sample(&self, bytes: usize) -> f64 {
        bytes as f64 / self.samples.max(1) as f64
    }

    /// Bytes that the message loses without the column that `clear` empties.
    fn column<M: Message + Clone>(&mut self, name: &'static str, message: &M, clear: impl Fn(&mut M)) {
        let mut less = message.clone();
        clear(&mut less);
        *self.by_column.entry(name).or_default() += message.encoded_len() - less.encoded_len();
    }

    fn samples(&mut self, batch: &SampleBatch) {
        self.column("samples: time", batch, |batch| batch.time_delta_us.clear());
        self.column("samples: thread", batch, |batch| batch.thread.clear());
        self.column("samples: stack", batch, |batch| batch.node.clear());
        self.column("samples: CPU time", batch, |batch| batch.cpu_units.clear());
        self.column("samples: flags", batch, |batch| batch.flags.clear());
    }

    fn entries(&mut self, entries: &Entries) {
        self.column("dictionary: strings", entries, |entries| entries.string.clear());
        self.column("dictionary: methods", entries, |entries| {
            entries.method_class.clear();
            entries.method_name.clear();
            entries.method_signature.clear();
            entries.method_source.clear();
            entries.method_modifiers.clear();
        });
        self.column("dictionary: frames", entries, |entries| {
            entries.frame_kind.clear();
            entries.frame_method.clear();
            entries.frame_bci.clear();
            entries.frame_line.clear();
            entries.frame_symbol.clear();
            entries.frame_library.clear();
        });
        self.column("dictionary: nodes", entries, |entries| {
            entries.node_parent.clear();
            entries.node_frame.clear();
        });
        self.column("dictionary: ids of stacks", entries, |entries| {
            entries.stack_node.clear();
            entries.stack_id.clear();
        });
        *self.by_column.entry("(new nodes)").or_default() += entries.node_frame.len();
    }

    fn statistics(&mut self, statistics: &Statistics) {
        self.column("statistics: accounts", statistics, |statistics| statistics.threads.clear());
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a recording");
    let window_s: u64 = arguments.next().map_or(10, |text| text.parse().expect("seconds"));
    let mut windows: Vec<Bytes> = Vec::new();
    let reader = RecordingReader::open(Path::new(&path)).expect("a recording");
    let start_ns = reader.hello().monotonic_ns;
    let mut now_ns = start_ns;
    for message in reader {
        // The dictionary of a batch comes before it, so its time is that of the batch before.
        if let Some(Body::Samples(batch)) = &message.body {
            now_ns = now_ns.max(batch.first_time_ns);
        }
        let index = (now_ns - start_ns) / 1_000_000_000 / window_s;
        windows.resize_with(windows.len().max(index as usize + 1), Bytes::default);
        let Some(window) = windows.get_mut(index as usize) else { continue };
        let kind = match &message.body {
            Some(Body::Samples(batch)) => {
                window.samples += rows(batch).len();
                window.samples(batch);
                "samples"
            }
            Some(Body::Dictionary(dictionary)) => {
                dictionary.entries.iter().for_each(|entries| window.entries(entries));
                "dictionary"
            }
            Some(Body::Statistics(statistics)) => {
                window.statistics(statistics);
                "statistics"
            }
            _ => "other",
        };
        window.add(kind, message.encoded_len() + FRAMING);
        let answer = Acknowledgement { sequence: message.sequence };
        let answer = CollectorMessage { body: Some(collector_message::Body::Acknowledgement(answer)) };
        window.add("acknowledgements", answer.encoded_len() + FRAMING);
    }
    println!(
        "{:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "from s", "samples", "samples", "entries", "statist.", "acks", "all"
    );
    for (index, window) in windows.iter().enumerate() {
        let of = |kind| window.a_sample(window.by_kind.get(kind).copied().unwrap_or(0));
        println!(
            "{:>7} {:>8} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
            index as u64 * window_s,
            window.samples,
            of("samples"),
            of("dictionary"),
            of("statistics"),
            of("acknowledgements"),
            window.a_sample(window.whole()),
        );
    }
    print("whole recording", &windows);
    print("second half", &windows[windows.len() / 2..]);
}

/// Prints the bytes of these windows by column and by kind of message.
fn print(title: &str, windows: &[Bytes]) {
    let mut sum = Bytes::default();
    for window in windows {
        sum.samples += window.samples;
        window.by_kind.iter().for_each(|(kind, bytes)| sum.add(kind, *bytes));
        window.by_column.iter().for_each(|(name, bytes)| *sum.by_column.entry(name).or_default() += bytes);
    }
    println!("\n{title}: {} samples", sum.samples);
    for (name, bytes) in sum.by_column.iter().chain(&sum.by_kind) {
        println!("{name:24} {bytes:10}  {:6.2} a sample", sum.a_sample(*bytes));
    }
    println!("{:24} {:10}  {:6.2} a sample", "all", sum.whole(), sum.a_sample(sum.whole()));
}
