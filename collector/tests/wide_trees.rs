//! Programs whose stacks are nearly all different: tables are sums over all samples, and trees say what they leave out.

use crate::support::{INTERVAL_NS, Stream};
use profile::api::question::answer;
use profile::query::flat::{Flat, Order};
use profile::query::selection::Selection;
use profile::query::tree::{LEFT_OUT, Naming};
use profile::source::recording::Recording;
use proto::v1::{Dictionary, Entries, FrameKind, SampleBatch, Thread, ThreadKind, agent_message::Body};
use serde_json::Value;

/// More nodes than a tree has: its bound is 2^20.
const STACKS: u32 = 11_000;
const DEPTH: u32 = 110;
const METHODS: u32 = 200;
const WHOLE_NS: u64 = STACKS as u64 * INTERVAL_NS;
const BURN: &str = "Deep.burn";
const THREADS: [&str; 2] = ["odd", "even"];

/// Records methods that call one another at random, below which `Deep.burn` uses all CPU time, in two threads
/// alternately.
fn deep() -> Recording {
    let mut stream = Stream::new();
    let threads = (1..).zip(THREADS).map(|(id, name)| Thread {
        id,
        tid: 10_000 + id,
        name: name.to_owned(),
        kind: ThreadKind::Java.into(),
        ..Default::default()
    });
    // String 1 is the class, 2 the stop reason, 3 the signature; method and frame 1 are burn().
    let names = (1..METHODS).map(|number| format!("method{number}"));
    let texts = ["Deep", "end_of_stack", "()V", "burn"].map(str::to_owned).into_iter().chain(names);
    let every = |value| vec![value; METHODS as usize];
    let mut entries = Entries {
        first_string: 1,
        string: texts.collect(),
        first_method: 1,
        method_class: every(1),
        method_name: (4..4 + METHODS).collect(),
        method_signature: every(3),
        method_source: every(0),
        method_modifiers: every(0),
        first_frame: 1,
        frame_kind: vec![FrameKind::C2.into(); METHODS as usize],
        frame_method: (1..=METHODS).collect(),
        frame_bci: vec![7; METHODS as usize],
        frame_line: every(12),
        frame_symbol: every(0),
        first_node: 1,
        ..Default::default()
    };
    let mut random = 5_u32;
    for _ in 0..STACKS {
        entries.node_parent.push(0);
        entries.node_frame.push(2);
        for depth in 1..=DEPTH {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let called = 2 + (random >> 16) % (METHODS - 1);
            entries.node_parent.push(1);
            entries.node_frame.push(if depth == DEPTH { 1 } else { called });
        }
    }
    stream.send(Body::Dictionary(Dictionary { threads: threads.collect(), entries: Some(entries) }));
    let batch = SampleBatch {
        thread: (0..STACKS).map(|stack| 1 + stack % 2).collect(),
        node: (1..=STACKS).map(|stack| stack * (DEPTH + 1)).collect(),
        cpu_unit_ns: INTERVAL_NS,
        ..Default::default()
    };
    stream.send(Body::Samples(batch));
    stream.goodbye();
    stream.recording()
}

fn ask(recording: &Recording, question: &str, pairs: &[(&str, &str)]) -> Value {
    let pairs: Vec<_> = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let answer = answer(recording, question, &pairs, 0).expect("an answer");
    serde_json::from_slice(&answer.bytes).expect("JSON")
}

#[test]
fn tables_are_sums_over_samples_and_trees_say_what_they_leave_out() {
    let recording = deep();
    let methods = ask(&recording, "methods", &[]);
    let first = &methods["methods"][0];
    assert_eq!((first["name"].as_str(), first["self_ns"].as_u64()), (Some(BURN), Some(WHOLE_NS)), "{first}");
    let flat = Flat::of(&recording, &Selection::default(), 0).expect("a table").0;
    assert!(flat.methods(Order::TotalTime).iter().all(|row| row.name != LEFT_OUT));
    let classes = Flat::named(&recording, &Selection::default(), Naming::Class, 0).expect("a table").0;
    let classes = classes.methods(Order::TotalTime);
    assert_eq!((classes.len(), classes[0].self_ns, classes[0].total_ns), (1, WHOLE_NS, WHOLE_NS));
    let lines = ask(&recording, "lines", &[("method", BURN)]);
    assert_eq!(lines["method"]["lines"][0]["self_ns"], WHOLE_NS, "{lines}");

    let sides = [("before.thread", THREADS[0]), ("after.thread", THREADS[1])];
    let difference = ask(&recording, "diff/methods", &sides);
    let burn = difference["methods"].as_array().expect("rows").iter().find(|row| row["name"] == BURN);
    assert_eq!(burn.expect("a row")["before_ns"], WHOLE_NS / 2);
    assert_eq!(burn.expect("a row")["change"], 0.0);

    let tree = ask(&recording, "flamegraph", &[]);
    let unseen = ["nodes_left_out", "left_out_ns"].map(|field| tree[field].as_u64().expect("a number"));
    assert!(unseen[0] > 1_000_000 && unseen[1] > WHOLE_NS / 2, "{unseen:?}");
    let both = ask(&recording, "diff", &sides);
    assert_eq!(both["tree"]["before_ns"][0], WHOLE_NS / 2);
    assert_eq!(both["tree"]["after_ns"][0], WHOLE_NS / 2);
    assert!(both["left_out_ns"].as_u64().expect("a number") > WHOLE_NS / 2);

    // All of the method, wherever it was called from.
    for question in ["callers", "callees"] {
        let tree = ask(&recording, question, &[("method", BURN)]);
        assert_eq!((&tree["total_ns"], &tree["samples"]), (&WHOLE_NS.into(), &STACKS.into()), "{question}");
    }
    assert_eq!(ask(&recording, "callees", &[("method", BURN)])["left_out_ns"], 0);
}
