//! Recordings of real JVMs, from `tests/recordings/`, and a large profile grown from one.
//!
//! They were made with `-agentpath:libtickwalk.so=file=...`: `h2-25` is the demo's H2 script on JDK 25, `planted-17`
//! and `steady-25` the workload PlantedRegression with its stages equal, `planted-25` with one that does three times
//! the work, and `lossy-21` an equal one with queues of 16 entries that are drained every half second, so that its
//! account shows losses; `twice-25-1` and `-2` are two runs of RegexStrings with C1 alone at an interval of 1 ms;
//! `virtual-25` is VirtualThreads, a thousand virtual threads, at 1 ms.

use std::path::Path;

use collector::store::{Store, StoreError};
use profile::query::process::ProcessProfile;
use profile::source::recording::{Recording, RecordingReader};
use proto::framing::{Checksums, FramedMessage};
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, FrameKind, ThreadKind};
use serde_json::Value;

use crate::support::{INTERVAL_NS, Stream};

/// The messages of a recording.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn recorded(name: &str) -> Vec<AgentMessage> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/recordings")
        .join(name)
        .with_extension("tickwalk.zst");
    let packed = std::fs::read(path).expect("a recording");
    let bytes = zstd::decode_all(&packed[..]).expect("packed with zstd");
    let reader = RecordingReader::new(&bytes[..]).expect("a recording");
    let messages: Vec<AgentMessage> = reader.collect();
    assert!(messages.len() > 5, "{name} is cut");
    messages
}

/// A recording of an earlier version of the agent, without ids of stacks and without a count of biased samples.
#[allow(dead_code, reason = "each test binary uses its part")]
pub const EARLIER: &str = "planted-17";

/// The profile of a recording.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn profile(name: &str) -> ProcessProfile {
    let mut messages = recorded(name).into_iter();
    let Some(Body::Hello(hello)) = messages.next().and_then(|message| message.body) else {
        panic!("hello comes first")
    };
    let mut recording = Recording::new(hello);
    messages.for_each(|message| recording.add(message));
    ProcessProfile::whole(&recording).expect("one process")
}

/// Puts a session into a store as if it had begun at `start_ns`, a time of the day.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn keep(store: &Store, mut messages: Vec<AgentMessage>, start_ns: u64) -> Result<(), StoreError> {
    let Some(Body::Hello(hello)) = &mut messages[0].body else { panic!("hello comes first") };
    hello.wall_clock_ns = start_ns;
    let writer = store.session(&hello.clone())?;
    for message in &messages {
        let message = FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message");
        writer.append(vec![message])?;
    }
    Ok(())
}

/// A session whose call tree has `nodes` nodes or a few more: the stacks of a real one, again and again, each time
/// with classes of other names from some depth on. Depths, names, kinds and weights are those of the original.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn grown(flamegraph: &Value, nodes: usize) -> Stream {
    let tree = &flamegraph["tree"];
    let column = |name: &str| -> Vec<u64> {
        tree[name].as_array().expect("column").iter().map(|value| value.as_u64().expect("number")).collect()
    };
    let (steps, frame_names, kinds, own) =
        (column("parents"), column("frame_names"), column("kinds"), column("self_ns"));
    let names: Vec<&str> =
        tree["names"].as_array().expect("names").iter().map(|name| name.as_str().expect("text")).collect();
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let mut made = 0;
    for copy in 0.. {
        for leaf in (0..own.len()).filter(|&node| own[node] > 0) {
            let mut path = Vec::new();
            let mut node = leaf;
            while node != 0 {
                path.push(node);
                node -= steps[node] as usize;
            }
            // Between a quarter and three quarters of the way down the copies part.
            let split = path.len() * (2 + (leaf * 7 + copy * 3) % 5) / 8;
            let frames: Vec<u32> = path
                .iter()
                .enumerate()
                .map(|(above_leaf, &node)| {
                    let depth = path.len() - above_leaf;
                    let name = names[frame_names[node] as usize];
                    let suffix = if copy > 0 && depth > split { format!("${copy}") } else { String::new() };
                    frame(&mut stream, kinds[node], name, &suffix)
                })
                .collect();
            if frames.is_empty() {
                continue;
            }
            made += if copy == 0 { 1 } else { path.len() - split };
            let stack = stream.stack(&frames, "end_of_stack");
            stream.sample(1, stack, own[leaf].div_ceil(INTERVAL_NS) * INTERVAL_NS / (1 + copy as u64 % 7));
        }
        if made >= nodes * 2 {
            break;
        }
    }
    stream.goodbye();
    stream
}

fn frame(stream: &mut Stream, kind: u64, name: &str, suffix: &str) -> u32 {
    let kind = i32::try_from(kind).ok().and_then(|kind| FrameKind::try_from(kind).ok()).expect("a kind");
    let is_java = matches!(
        kind,
        FrameKind::Interpreted | FrameKind::C1 | FrameKind::C2 | FrameKind::Inlined | FrameKind::NativeMethod
    );
    match name.rsplit_once('.') {
        Some((class, method)) if is_java => {
            stream.frame(kind, &format!("{}{suffix}.{method}", class.replace('.', "/")))
        }
        // A mark such as [unloaded] in the place of a method.
        _ if is_java => stream.frame(FrameKind::Marker, &format!("{name}{suffix}")),
        _ => stream.frame(kind, &format!("{name}{suffix}")),
    }
}
