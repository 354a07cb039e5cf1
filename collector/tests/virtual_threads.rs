//! Virtual threads in a stream: a number for each carrier, a name that may come late, an account with the carrier.

use crate::support::Stream;
use collector::store::{Retention, Store};
use profile::api::question::answer;
use profile::export::table;
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::threads::{threads, virtual_threads};
use profile::source::Source;
use profile::source::recording::Recording;
use proto::framing::{Checksums, FramedMessage};
use proto::v1::ThreadKind;
use proto::v1::agent_message::Body;
use serde_json::Value;

const MS: u64 = 1_000_000;

/// Two carriers; one virtual thread with a name that ran on both, one without, and samples of carriers alone.
fn stream() -> Stream {
    stream_naming([true, true])
}

/// The same, with the virtual thread's name sent with these of its carriers only.
fn stream_naming(carriers: [bool; 2]) -> Stream {
    let [first, second] = carriers.map(|is_named| if is_named { "order" } else { "" });
    let mut stream = Stream::new();
    stream.thread(1, "worker-1", ThreadKind::Java);
    stream.thread(2, "worker-2", ThreadKind::Java);
    stream.carried(3, 1, 77, "");
    stream.carried(4, 1, 78, "");
    stream.carried(5, 2, 77, second);
    // The name was read late, so the thread is sent again.
    stream.carried(3, 1, 77, first);
    let stack = stream.java_stack(&["a/Main.main"]);
    for (thread, ms) in [(1, 1), (3, 10), (4, 20), (5, 30), (2, 2), (3, 40)] {
        stream.sample(thread, stack, ms * MS);
    }
    stream.goodbye();
    stream
}

#[test]
fn virtual_threads_are_in_the_accounts_of_their_carriers() {
    let profile = stream().profile();
    let accounts: Vec<_> = threads(&profile).into_iter().map(|row| (row.name, row.sampled_ns / MS)).collect();
    assert_eq!(accounts, [("worker-1".to_owned(), 71), ("worker-2".to_owned(), 32)]);
    let rows = virtual_threads(&profile);
    let found: Vec<_> = rows.iter().map(|row| (row.java_id, &*row.name, row.sampled_ns / MS)).collect();
    assert_eq!(found, [(77, "order", 80), (78, "virtual thread #78", 20)]);
    assert_eq!((&rows[0].carriers[..], rows[0].samples), (&["worker-1".into(), "worker-2".into()][..], 3));
}

#[test]
fn the_rows_of_the_account_add_up() {
    let text = table::threads(&stream().profile(), &Selection::default(), 10).expect("samples");
    let rows: Vec<&str> = text.lines().skip(5).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(rows[0].ends_with("order on worker-1, worker-2") && rows[0].contains("80.0 ms"), "{text}");
    assert!(rows[0].trim_start().starts_with("3 "), "few samples are counted: {text}");
    assert!(rows[1].ends_with("virtual thread #78 on worker-1"), "{text}");
    assert!(rows[2].ends_with("10002  worker-2") && rows[3].ends_with("10001  worker-1"), "{text}");
}

#[test]
fn a_name_sent_with_one_carrier_applies_to_all() {
    for carriers in [[true, false], [false, true]] {
        let mut stream = stream_naming(carriers);
        let names: Vec<String> = virtual_threads(&stream.profile()).into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["order", "virtual thread #78"], "{carriers:?}");
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("recording.tickwalk");
        std::fs::write(&path, stream.bytes()).expect("a recording");
        let answer = ask(&Recording::read(&path).expect("a recording"), &[]);
        assert_eq!(answer["threads"][0]["thread"], "order", "{carriers:?}");
        assert_eq!(answer["threads"][0]["cpu_ns"], 80 * MS);
    }
}

#[test]
fn a_virtual_thread_is_selected_whole() {
    for carriers in [[true, false], [false, true]] {
        let mut stream = stream_naming(carriers);
        let bytes = stream.bytes();
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("recording.tickwalk");
        std::fs::write(&path, &bytes).expect("a recording");
        let store = Recording::read(&path).expect("a recording");
        for name in ["order", "virtual thread #77"] {
            // The name it would have without one of its own is shown only if no other name was sent.
            let selected = ask(&store, &[("thread", name)]);
            assert_eq!(selected["total_ns"], 80 * MS, "{carriers:?} {name}");
            assert_eq!(selected["threads"].as_array().map(Vec::len), Some(1), "{carriers:?} {name}");
            let pairs = [("thread", name), ("by", "thread")];
            let timeline = ask_for(&store, "timeline", &pairs);
            let rows = timeline["rows"].as_array().expect("rows");
            assert_eq!(rows.len(), 1, "{carriers:?} {name}: {timeline}");
            assert_eq!(rows[0]["thread"], "order");
            assert_eq!(rows[0]["java_id"], 77);
            let cells = rows[0]["cpu_ns"].as_array().expect("cells");
            assert_eq!(cells.iter().filter_map(Value::as_u64).sum::<u64>(), 80 * MS);
            let selection = Selection::of(&[("thread".to_owned(), name.to_owned())]).expect("a selection");
            for source in [&store as &dyn Source, &stream.recording()] {
                let exported = ProcessProfile::of(source, &selection, 0).expect("one process");
                assert_eq!(exported.total().cpu_ns, 80 * MS, "{carriers:?} {name}");
            }
        }
        let rows = ask_for(&store, "timeline", &[("by", "thread")])["rows"].as_array().map(Vec::len);
        assert_eq!(rows, Some(4), "two carriers, two virtual threads");
    }
}

#[test]
fn a_virtual_thread_without_a_carrier_is_shown_once() {
    let mut stream = Stream::new();
    stream.carried(1, 0, 77, "order");
    let stack = stream.java_stack(&["a/Main.main"]);
    stream.sample(1, stack, 10 * MS);
    stream.goodbye();
    let text = table::threads(&stream.profile(), &Selection::default(), 10).expect("samples");
    assert_eq!(text.lines().filter(|line| line.contains("order")).count(), 1, "{text}");
    assert_eq!(text.matches("       1     10.0 ms").count(), 1, "{text}");
}

fn ask(store: &dyn Source, pairs: &[(&str, &str)]) -> Value {
    ask_for(store, "threads", pairs)
}

fn ask_for(store: &dyn Source, question: &str, pairs: &[(&str, &str)]) -> Value {
    let pairs: Vec<_> = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let answer = answer(store, question, &pairs, 1_790_000_100_000_000_000).expect("an answer");
    serde_json::from_slice(&answer.bytes).expect("JSON")
}

#[test]
fn recording_and_store_answer_alike() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("recording.tickwalk");
    std::fs::write(&path, stream().bytes()).expect("a recording");
    let recording = Recording::read(&path).expect("a recording");
    let mut stream = stream();
    let Some(Body::Hello(hello)) = stream.messages()[0].body.clone() else { panic!("hello comes first") };
    let framed = stream
        .messages()
        .iter()
        .map(|message| FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message"));
    let place = folder.path().join("store");
    let stored = Store::open(&place, Retention::default()).expect("new store");
    let writer = stored.session(&hello).expect("open store");
    writer.append(framed.collect()).expect("stored");
    check(|pairs| ask(&recording, pairs));
    check(|pairs| ask(&stored, pairs));
    stored.flush().expect("fold");
    check(|pairs| ask(&stored, pairs));
}

fn check(ask: impl Fn(&[(&str, &str)]) -> Value) {
    let all = ask(&[]);
    assert_eq!(all["total_ns"], 103 * MS);
    let row = &all["threads"][0];
    assert_eq!(
        (&row["thread"], &row["kind"], &row["java_id"]),
        (&"order".into(), &"virtual".into(), &77.into())
    );
    assert_eq!((&row["cpu_ns"], &row["tid"]), (&(80 * MS).into(), &0.into()));
    assert_eq!(row["carriers"], serde_json::json!(["worker-1", "worker-2"]));
    assert_eq!(all["threads"].as_array().map(Vec::len), Some(4));
    assert_eq!(ask(&[("thread_kind", "virtual")])["total_ns"], 100 * MS);
    assert_eq!(ask(&[("thread", "order")])["total_ns"], 80 * MS);
    assert_eq!(ask(&[("thread", "10001")])["total_ns"], 71 * MS, "by the carrier's kernel id");
    assert!(all["threads"][2].get("java_id").is_none());
}
