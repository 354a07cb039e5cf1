//! Bytes on the wire by kind of message, for each sample after the first seconds of a recording:
//! `cargo run --release -p collector --example wire -- FILE.tickwalk [SECONDS=10]`.

use std::collections::BTreeMap;
use std::path::Path;

use collector::recording::RecordingReader;
use prost::Message;
use proto::v1::agent_message::Body;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a recording");
    let skip_s: u64 = arguments.next().map_or(10, |text| text.parse().expect("seconds"));
    let reader = RecordingReader::open(Path::new(&path)).expect("a recording");
    let start_ns = reader.hello().monotonic_ns;
    let (mut now_ns, mut samples) = (start_ns, 0);
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    for message in reader {
        // The dictionary of a batch comes before it, so its time is that of the batch before.
        if let Some(Body::Samples(batch)) = &message.body {
            now_ns = now_ns.max(batch.first_time_ns);
        }
        if now_ns < start_ns + skip_s * 1_000_000_000 {
            continue;
        }
        let kind = match &message.body {
            Some(Body::Samples(batch)) => {
                samples += batch.thread.len();
                let columns = |batch: &proto::v1::SampleBatch| batch.encoded_len();
                let without = |change: fn(&mut proto::v1::SampleBatch)| {
                    let mut less = batch.clone();
                    change(&mut less);
                    columns(batch) - columns(&less)
                };
                *bytes.entry("samples: time").or_default() += without(|batch| batch.time_delta_ns.clear());
                *bytes.entry("samples: thread").or_default() += without(|batch| batch.thread.clear());
                *bytes.entry("samples: stack").or_default() += without(|batch| batch.stack.clear());
                *bytes.entry("samples: cpu_ns").or_default() += without(|batch| batch.cpu_ns.clear());
                *bytes.entry("samples: flags").or_default() += without(|batch| batch.flags.clear());
                "samples"
            }
            Some(Body::Dictionary(_)) => "dictionary",
            Some(Body::Statistics(_)) => "statistics",
            _ => "other",
        };
        // Five bytes of framing.
        *bytes.entry(kind).or_default() += message.encoded_len() + 5;
    }
    println!("{samples} samples after {skip_s} s");
    let mut whole = 0;
    for (kind, bytes) in &bytes {
        println!("{kind:18} {bytes:10} bytes  {:6.2} a sample", *bytes as f64 / samples.max(1) as f64);
        whole += if kind.contains(':') { 0 } else { *bytes };
    }
    println!("{:18} {whole:10} bytes  {:6.2} a sample", "all", whole as f64 / samples.max(1) as f64);
}
