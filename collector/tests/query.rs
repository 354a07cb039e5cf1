//! The questions of the HTTP API against the answers known from elsewhere: the whole session in memory.

use crate::support;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use crate::support::Stream;
use crate::support::realistic::shop;
use collector::http::{HttpServer, Probe};
use collector::ingest::Health;
use collector::store::{Retention, Store};
use profile::api::question::answer;
use profile::export::table::Report;
use profile::query::difference::{Methods, method_differences};
use profile::query::error::QueryError;
use profile::query::flat::{Flat, MethodCost, Order};
use profile::query::process::ProcessProfile;
use profile::query::selection::Selection;
use profile::query::tree::{Naming, Tree};
use profile::source::Source;
use profile::source::recording::Recording;
use proto::framing::{Checksums, FramedMessage};
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, FrameKind, Statistics, ThreadKind};
use serde_json::Value;
use tempfile::TempDir;

const NOW_NS: u64 = 1_790_000_100_000_000_000;

/// The same session as a recording file and in a store, folded or not.
struct Both {
    _directory: TempDir,
    stored: Store,
    recording: Recording,
    profile: ProcessProfile,
}

impl Both {
    fn of(mut stream: Stream) -> Both {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("recording");
        fs::write(&path, stream.bytes()).expect("write");
        let stored = Store::open(&directory.path().join("store"), Retention::default()).expect("new store");
        let framed = |message: &AgentMessage| {
            FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message")
        };
        let messages: Vec<FramedMessage> = stream.messages().iter().map(framed).collect();
        let Some(Body::Hello(hello)) = &stream.messages()[0].body else { panic!("hello comes first") };
        let writer = stored.session(hello).expect("open store");
        let last = messages.len() as u64;
        assert_eq!(writer.append(messages), Ok(last));
        let recording = Recording::read(&path).expect("recording");
        Both {
            _directory: directory,
            stored,
            profile: ProcessProfile::whole(&recording).expect("one process"),
            recording,
        }
    }

    fn ask(&self, question: &str, pairs: &[(&str, &str)]) -> Value {
        let sources: [&dyn Source; 2] = [&self.recording, &self.stored];
        let answers = sources.map(|source| ask(source, question, pairs).expect("answer"));
        assert_eq!(answers[0], answers[1], "recording and store differ: {question} {pairs:?}");
        answers[0].clone()
    }
}

fn ask(store: &dyn Source, question: &str, pairs: &[(&str, &str)]) -> Result<Value, QueryError> {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let answer = answer(store, question, &pairs, NOW_NS)?;
    Ok(serde_json::from_slice(&answer.bytes).expect("JSON"))
}

fn sum(column: &Value) -> u64 {
    column.as_array().expect("column").iter().map(|value| value.as_u64().expect("number")).sum()
}

/// Costs of methods, stack by stack: each sample counts once for each method on its stack.
fn methods(profile: &ProcessProfile, order: Order) -> Vec<MethodCost> {
    let mut costs: BTreeMap<String, (MethodCost, usize)> = BTreeMap::new();
    for (_, stack, cell) in profile.cells() {
        let path = profile.dictionary().path(stack);
        let names: Vec<String> =
            path.iter().map(|&frame| profile.dictionary().frame_text(frame).into_owned()).collect();
        for name in names.iter().collect::<BTreeSet<_>>() {
            let empty =
                MethodCost { name: name.clone(), self_ns: 0, self_samples: 0, total_ns: 0, total_samples: 0 };
            let (cost, least_depth) = costs.entry(name.clone()).or_insert((empty, usize::MAX));
            let outermost = names.iter().rposition(|other| other == name).expect("one of them");
            *least_depth = names.len().saturating_sub(outermost).min(*least_depth);
            cost.total_ns += cell.cpu_ns;
            cost.total_samples += cell.samples;
            if *name == names[0] {
                cost.self_ns += cell.cpu_ns;
                cost.self_samples += cell.samples;
            }
        }
    }
    // A mark above a cut stack is no method.
    costs.retain(|name, (cost, _)| cost.self_samples > 0 || !name.starts_with('['));
    let mut costs: Vec<(MethodCost, usize)> = costs.into_values().collect();
    costs.sort_by_key(|(cost, least_depth)| match order {
        Order::SelfTime => (Reverse((cost.self_ns, cost.total_ns)), *least_depth),
        Order::Samples => (Reverse((cost.self_samples, cost.self_ns)), *least_depth),
        Order::TotalTime => (Reverse((cost.total_ns, 0)), *least_depth),
    });
    costs.into_iter().map(|(cost, _)| cost).collect()
}

#[test]
fn methods_are_those_of_the_whole_session() {
    for folded in [false, true] {
        let both = Both::of(shop(true));
        if folded {
            both.stored.flush().expect("fold");
        }
        for (order, name) in
            [(Order::SelfTime, "self"), (Order::Samples, "samples"), (Order::TotalTime, "total")]
        {
            let expected = methods(&both.profile, order);
            let answer = both.ask("methods", &[("order", name), ("limit", "10000")]);
            assert_eq!(answer["methods"], serde_json::to_value(&expected).expect("JSON"), "folded: {folded}");
            assert_eq!(answer["total_ns"], both.profile.total().cpu_ns);
            assert_eq!(answer["samples"], both.profile.total().samples);
        }
    }
}

#[test]
fn symbols_are_demangled_in_every_source() {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let java = stream.frame(FrameKind::Inlined, "com/example/_ZN9JavaCalls/App._ZN9JavaCalls4callEv");
    for symbol in
        ["_ZN9JavaCalls4callEP9JavaValue", "_ZN9JavaCalls4callEP10JavaThread", "_RNvC3app3run", "brk"]
    {
        let frame = stream.frame(FrameKind::Native, symbol);
        let stack = stream.stack(&[frame, java], "end_of_stack");
        stream.sample(1, stack, 10_000_000);
    }
    let both = Both::of(stream);
    let rows = |answer: Value| -> BTreeSet<(String, u64)> {
        let rows = answer["methods"].as_array().expect("methods").clone();
        let row = |row: &Value| {
            (row["name"].as_str().expect("name").to_owned(), row["self_ns"].as_u64().expect("time"))
        };
        rows.iter().map(row).collect()
    };
    let expected = [
        ("JavaCalls::call", 20_000_000),
        ("app::run", 10_000_000),
        ("brk", 10_000_000),
        ("com.example._ZN9JavaCalls.App._ZN9JavaCalls4callEv", 0),
    ];
    let expected: BTreeSet<_> = expected.into_iter().map(|(name, time)| (name.to_owned(), time)).collect();
    for folded in [false, true] {
        if folded {
            both.stored.flush().expect("fold");
        }
        assert_eq!(rows(both.ask("methods", &[])), expected);
        let selected = both.ask("methods", &[("frame", "JavaCalls::call")]);
        assert_eq!(selected["total_ns"], 20_000_000, "{selected}");
    }
}

#[test]
fn every_view_of_time_adds_up_to_the_whole() {
    let both = Both::of(shop(false));
    both.stored.flush().expect("fold");
    let whole = both.profile.total().cpu_ns;
    let tree = both.ask("flamegraph", &[]);
    assert_eq!(sum(&tree["tree"]["self_ns"]), whole);
    assert_eq!(tree["tree"]["total_ns"][0], whole);
    for by in ["all", "process", "thread"] {
        for bucket in [&[("by", by)][..], &[("by", by), ("bucket", "100")]] {
            let timeline = both.ask("timeline", bucket);
            let rows = timeline["rows"].as_array().expect("rows");
            assert_eq!(rows.iter().map(|row| sum(&row["cpu_ns"])).sum::<u64>(), whole, "{bucket:?}");
            // Rows that are left out are not missing in the sum.
            let busiest = both.ask("timeline", &[bucket, &[("limit", "1")]].concat());
            let shown = sum(&busiest["rows"][0]["cpu_ns"]);
            assert_eq!(shown + busiest["left_out_ns"].as_u64().expect("number"), whole, "{bucket:?}");
        }
    }
    let threads = both.ask("threads", &[("limit", "1000")]);
    assert_eq!(threads["total_ns"], whole);
    let expected: BTreeMap<String, u64> = profile::query::threads::threads(&both.profile)
        .into_iter()
        .map(|row| (row.name, row.sampled_ns))
        .collect();
    let rows = threads["threads"].as_array().expect("rows").iter();
    let found: BTreeMap<String, u64> = rows
        .map(|row| (row["thread"].as_str().expect("name").into(), row["cpu_ns"].as_u64().expect("number")))
        .collect();
    assert_eq!(found, expected);
    // Each kind of leaf is selected once.
    let kinds =
        profile::query::selection::FRAME_KINDS.map(|(kind, _)| both.ask("methods", &[("kind", kind)]));
    assert_eq!(kinds.iter().map(|answer| answer["total_ns"].as_u64().expect("number")).sum::<u64>(), whole);
    let gc = both.ask("methods", &[("thread_kind", "gc")])["total_ns"].as_u64().expect("number");
    let java = both.ask("methods", &[("thread_kind", "java")])["total_ns"].as_u64().expect("number");
    let compiler = both.ask("methods", &[("thread", "C2 Compiler")])["total_ns"].as_u64().expect("number");
    assert_eq!(gc + java + compiler, whole);
    // Patterns of whole frames: those with and those without are all, and one of several must match.
    let of = |pairs: &[(&str, &str)]| both.ask("methods", pairs)["total_ns"].as_u64().expect("number");
    let form = "com.example.shop.tax.*";
    let with = of(&[("include", form)]);
    assert_eq!(with, of(&[("frame", "com.example.shop.tax.")]));
    assert!(0 < with && with < whole, "{with} of {whole}");
    assert_eq!(with + of(&[("exclude", form)]), whole);
    assert_eq!(of(&[("include", "nothing"), ("include", form)]), with);
    assert_eq!(of(&[("include", form), ("exclude", "*.Rules.evaluate"), ("exclude", "*tax*")]), 0);
    assert_eq!(of(&[("include", "shop")]), 0, "a part of a frame");
}

#[test]
fn callers_and_callees_split_the_time_of_a_method() {
    let both = Both::of(shop(false));
    // It calls itself, which must not count twice.
    let method = "com.example.shop.tax.Rules.evaluate";
    let methods = both.ask("methods", &[("limit", "10000")]);
    let methods = methods["methods"].as_array().expect("rows");
    let row = methods.iter().find(|row| row["name"] == method).expect("the method is hot");
    for side in ["callers", "callees"] {
        assert_eq!(both.ask(side, &[("method", method)])["total_ns"], row["total_ns"], "{side}");
    }
    assert_eq!(both.ask("callers", &[("method", "no.such.method")])["total_ns"], 0);
    let filtered = both.ask("methods", &[("frame", method)]);
    assert_eq!(filtered["total_ns"], row["total_ns"]);
}

#[test]
fn pruning_keeps_totals_and_says_how_much_is_left_out() {
    let both = Both::of(shop(false));
    let full = both.ask("flamegraph", &[]);
    let pruned = both.ask("flamegraph", &[("max_nodes", "50")]);
    let nodes = |answer: &Value| answer["tree"]["parents"].as_array().expect("column").len() as u64;
    assert!(nodes(&pruned) <= 50 && nodes(&pruned) > 10, "{} nodes", nodes(&pruned));
    assert_eq!(nodes(&pruned) + pruned["nodes_left_out"].as_u64().expect("number"), nodes(&full));
    assert_eq!(pruned["tree"]["total_ns"][0], full["tree"]["total_ns"][0]);
}

#[test]
fn differences_are_of_shares() {
    let both = Both::of(shop(false));
    let all = Flat::of(&both.stored, &Selection::default(), NOW_NS).expect("table").0;
    let mut half = Selection::default();
    half.set("thread", "http-nio-8080-exec-1").expect("parameter");
    let part = Flat::of(&both.stored, &half, NOW_NS).expect("table").0;
    assert!(method_differences(&Methods::of(&all), &Methods::of(&all)).iter().all(|row| row.change == 0.0));
    let rows = method_differences(&Methods::of(&all), &Methods::of(&part));
    let total =
        |share: fn(&profile::query::difference::MethodDifference) -> f64| rows.iter().map(share).sum::<f64>();
    assert!((total(|row| row.before_share) - 1.0).abs() < 1e-9);
    assert!((total(|row| row.after_share) - 1.0).abs() < 1e-9);
    assert!(rows[0].change.abs() >= rows[1].change.abs());
    let diff = both.ask("diff", &[("after.thread", "http-nio-8080-exec-1")]);
    assert_eq!(diff["tree"]["before_ns"][0], all.total_ns());
    assert_eq!(diff["tree"]["after_ns"][0], part.total_ns());
}

#[test]
fn the_account_is_that_of_the_summary() {
    let both = Both::of(shop(true));
    let summary = profile::query::summary::Summary::new(&both.profile);
    let answer = both.ask("statistics", &[]);
    let account = &answer["processes"][0];
    assert_eq!(account["kernel_ns"], summary.cpu_ns.kernel);
    assert_eq!(account["lost_ns"], serde_json::to_value(&summary.cpu_ns.lost).expect("JSON"));
    // The parser of JSON may round the last bit.
    let explained = account["explained"].as_f64().expect("a number");
    assert!((explained - summary.explained).abs() < 1e-15, "{explained}, {}", summary.explained);
    assert_eq!(account["outside_ns"], summary.cpu_ns.outside);
    assert_eq!(account["stops"], serde_json::to_value(&summary.stops).expect("JSON"));
    assert_eq!(account["handler_cycles"]["p99"], summary.handler_cycles.p99);
}

/// A recording ends at its last sample, wherever in a minute that is.
#[test]
fn relative_times_count_from_the_last_sample_of_a_recording() {
    let recording = support::small().recording();
    let samples = |from: &str| {
        let selection = Selection::of(&[("from".to_owned(), from.to_owned())]).expect("a selection");
        Tree::of(&recording, &selection, 0).expect("a tree").0.samples()
    };
    assert_eq!(samples("-1s"), 10, "samples follow each other at 1 ms");
}

/// All threads have the same native frames below the first method of the program.
#[test]
fn roots_of_threads_are_no_hot_methods() {
    let mut stream = support::Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let native = ["JavaCalls::call_helper(JavaValue*)", "JavaMain", "start_thread", "__GI___clone3"];
    let native = native.map(|name| stream.frame(FrameKind::Vm, name));
    let program = ["b/Leaf.run", "a/Middle.run", "c/Main.main"].map(|name| stream.frame(FrameKind::C2, name));
    let stack = stream.stack(&[&program[..], &native].concat(), "end_of_stack");
    (0..200).for_each(|_| stream.sample(1, stack, support::INTERVAL_NS));
    stream.goodbye();
    let recording = stream.recording();
    let all = Selection::default();
    let shown = Report { orders: &[Order::TotalTime], folds: false, ..Report::of_methods(10) };
    let text = profile::export::table::report(&recording, &all, shown, 0).expect("a report");
    let names: Vec<&str> = text.lines().filter_map(|line| line.split("2.00 s  ").nth(1)).collect();
    assert_eq!(names, ["c.Main.main", "a.Middle.run", "b.Leaf.run"], "callers first: {text}");
}

/// Two methods are called as often as each other, but by different stacks.
#[test]
fn callers_that_add_nothing_are_folded() {
    let mut stream = support::Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let one = stream.java_stack(&["c/Main.main", "a/One.run", "a/One.step", "a/One.leaf"]);
    let two = stream.java_stack(&["c/Main.main", "b/Two.run", "b/Two.leaf"]);
    for _ in 0..100 {
        stream.sample(1, one, support::INTERVAL_NS);
        stream.sample(1, two, support::INTERVAL_NS);
    }
    stream.goodbye();
    let shown = Report { orders: &[Order::TotalTime], ..Report::of_methods(10) };
    let all = Selection::default();
    let text = profile::export::table::report(&stream.recording(), &all, shown, 0).expect("a report");
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(".00 s  ").nth(1)).collect();
    assert_eq!(names, ["c.Main.main", "b.Two.leaf", "a.One.leaf"], "{text}");
    assert!(text.ends_with("(3 more with the same samples as one of these)\n"), "{text}");
}

/// Methods whose stacks are different are all shown, also if their numbers of stacks, their times and the sums of their
/// nodes' numbers are equal.
#[test]
fn callers_of_different_stacks_are_not_folded() {
    let mut stream = support::Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let callers = 0..50;
    for n in callers.clone() {
        let (one, two) = (format!("a/One.run{n}"), format!("b/Two.run{n}"));
        for path in [
            [&*one, &format!("a/One.first{n}")],
            [&*two, &format!("b/Two.first{n}")],
            [&*two, &format!("b/Two.last{n}")],
            [&format!("c/Between.run{n}"), ""],
            [&*one, &format!("a/One.last{n}")],
        ] {
            let path: Vec<&str> =
                ["c/Main.main"].into_iter().chain(path).filter(|name| !name.is_empty()).collect();
            let stack = stream.java_stack(&path);
            stream.sample(1, stack, support::INTERVAL_NS);
        }
    }
    stream.goodbye();
    let shown = Report { orders: &[Order::TotalTime], ..Report::of_methods(1000) };
    let text = profile::export::table::report(&stream.recording(), &Selection::default(), shown, 0)
        .expect("a report");
    let missing: Vec<String> = callers
        .flat_map(|n| [format!("a.One.run{n}"), format!("b.Two.run{n}")])
        .filter(|name| !text.lines().any(|line| line.ends_with(&format!(" {name}"))))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A generator hashes its class differently in each run.
#[test]
fn methods_of_generated_classes_are_one_row_of_a_difference() {
    let mut stream = Stream::new();
    let mut run = |tid, thread, class: &str| {
        stream.thread(tid, thread, ThreadKind::Java);
        let outer = stream.frame(FrameKind::C2, &format!("shop/Cart$$EnhancerBySpringCGLIB$${class}.sum"));
        let inner = stream.frame(FrameKind::C2, "shop/Cart.sum");
        let stack = stream.stack(&[inner, outer, outer], "end_of_stack");
        stream.sample(tid, stack, support::INTERVAL_NS);
    };
    run(1, "first", "1b2c3d4e");
    run(2, "second", "9f8e7d6c");
    stream.goodbye();
    let both = Both::of(stream);
    let sides = [("before.thread", "first"), ("after.thread", "second")];
    let rows = both.ask("diff/methods", &sides)["methods"].clone();
    let names: Vec<&Value> = rows.as_array().expect("rows").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["shop.Cart$$EnhancerBySpringCGLIB$$*.sum", "shop.Cart.sum"]);
    assert!(rows.as_array().expect("rows").iter().all(|row| row["change"] == 0.0), "{rows}");
    let folded = both.ask("methods", &[("rows", "folded"), ("order", "total")]);
    let totals: Vec<&Value> =
        folded["methods"].as_array().expect("rows").iter().map(|row| &row["total_ns"]).collect();
    assert_eq!(totals, [2 * support::INTERVAL_NS; 2], "recursion counts once: {folded}");
}

/// The view of that name in `jfr` counts samples by their newest frame.
#[test]
fn hot_methods_are_in_the_order_of_their_samples() {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let [outer, often, long] =
        ["a/Main.main", "a/Work.often", "a/Work.long"].map(|name| stream.frame(FrameKind::C2, name));
    for (frame, samples, weight) in [(often, 3, 1), (long, 2, 4)] {
        let stack = stream.stack(&[frame, outer], "end_of_stack");
        (0..samples).for_each(|_| stream.sample(1, stack, weight * support::INTERVAL_NS));
    }
    stream.goodbye();
    let recording = stream.recording();
    let all = Selection::default();
    for (view, expected) in [
        ("hot-methods", ["a.Work.often", "a.Work.long", "a.Main.main"]),
        ("cpu-time-hot-methods", ["a.Work.long", "a.Work.often", "a.Main.main"]),
    ] {
        let text = profile::query::view::view(view, &recording, &all, 10, 0).expect("a view");
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.rsplit(' ').next())
            .filter(|name| name.starts_with("a."))
            .collect();
        assert_eq!(names, expected, "{view}: {text}");
    }
}

/// Rows of two classes and a library; one method has two lines.
#[test]
fn rows_are_methods_lines_classes_or_packages() {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let mut leaf = |name, bci, line| {
        let frame = stream.frame_at(FrameKind::C2, name, bci);
        stream.line(line);
        frame
    };
    let java = [leaf("a/b/C.d", 1, 10), leaf("a/b/C.d", 9, 12), leaf("a/b/E.f", 1, 20)];
    let native = stream.native_frame("deflate", "/usr/lib/libz.so.1 c0ffee");
    for (frame, times) in java.into_iter().chain([native]).zip([4, 2, 1, 1]) {
        let stack = stream.stack(&[frame], "end_of_stack");
        stream.sample(1, stack, times * support::INTERVAL_NS);
    }
    stream.goodbye();
    let recording = stream.recording();
    let all = Selection::default();
    for (naming, expected) in [
        (Naming::Method, &["a.b.C.d", "a.b.E.f", "deflate"][..]),
        (Naming::Line, &["a.b.C.d:10", "a.b.C.d:12", "a.b.E.f:20", "deflate"]),
        (Naming::Class, &["a.b.C", "a.b.E", "libz.so.1"]),
        (Naming::Package, &["a.b", "libz.so.1"]),
    ] {
        let shown = Report { orders: &[Order::SelfTime], naming, ..Report::of_methods(10) };
        let text = profile::export::table::report(&recording, &all, shown, 0).expect("a report");
        let rows = text.lines().skip_while(|line| !line.contains("self time")).skip(1);
        let names: Vec<&str> = rows.filter_map(|row| row.split("ms  ").nth(1)).collect();
        assert_eq!(names, expected, "{text}");
    }
}

#[test]
fn unknown_questions_and_parameters_are_errors() {
    let both = Both::of(shop(false));
    let check = |question: &str, pairs: &[(&str, &str)], text: &str| {
        let error = ask(&both.stored, question, pairs).expect_err("an error").to_string();
        assert!(error.contains(text) && !error.contains('\n'), "{question} {pairs:?}: {error}");
    };
    check("methods", &[("colour", "red")], "unknown parameter \"colour\"");
    check("methods", &[("limit", "0")], "limit: write a number from 1 to 10000");
    check("methods", &[("from", "yesterday")], "from: write seconds since the epoch");
    check("methods", &[("from", "-1s"), ("to", "-1s")], "the selected time is empty");
    check("methods", &[("from", "20"), ("to", "10.5")], "the selected time is empty");
    check("diff", &[("after.from", "now"), ("to", "-1s")], "the selected time is empty");
    check("callers", &[], "the parameter method is missing");
    check("view/nonsense", &[], "unknown view");
    check("timeline", &[("bucket", "1")], "bucket: write");
    check("nonsense", &[], "no such question");
}

/// Status line, headers and body.
fn get(server: &HttpServer, path: &str, headers: &str) -> (String, String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address()).expect("server listens");
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answer");
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("end of headers");
    let head = String::from_utf8(answer[..end].to_vec()).expect("text");
    let (status, headers) = head.split_once("\r\n").expect("status line");
    (status.to_owned(), headers.to_ascii_lowercase(), answer[end + 4..].to_vec())
}

#[test]
fn http_answers_and_refuses() {
    let both = Both::of(shop(false));
    let store = Arc::new(both.stored);
    let probe = Probe {
        store: Some(store.clone()),
        agents: Arc::new(|| Health { connections: 3, ..Health::default() }),
        ..Probe::default()
    };
    let address = "127.0.0.1:0".parse().expect("address");
    let server = HttpServer::start(address, store.clone(), probe).expect("server starts");
    let host = "Host: localhost\r\n";
    let check = |path: &str, headers: &str, status: &str, text: &str| {
        let (line, _, body) = get(&server, path, headers);
        assert!(line.contains(status), "{path}: {line}");
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains(text), "{path}: {}", body.chars().take(300).collect::<String>());
        if status != "200" {
            let error: Value = serde_json::from_str(&body).expect("errors are JSON");
            assert!(error["error"].as_str().is_some_and(|text| !text.contains('\n')));
        }
    };
    check("/healthz", host, "200", "ok");
    check("/readyz", host, "200", "ready");
    check("/", host, "200", "<title>Tickwalk</title>");
    check("/ui/app.js", host, "200", "class Graph");
    check("/metrics", host, "200", "tickwalk_agents_connected 3");
    check(
        "/metrics",
        host,
        "200",
        "tickwalk_samples_total{mode=\"cputime\",service=\"com.example.shop.Application\"} ",
    );
    check("/metrics", host, "200", "process_cpu_seconds_total");
    check("/api/v1/processes", host, "200", "\"state\":\"ended\"");
    check("/api/v1/view/threads?limit=2", host, "200", "http-nio-8080-exec-1");
    check("/api/v1/methods?limit=x", host, "400", "limit");
    check("/api/v1/methods?%FF%", host, "400", "parameter");
    check("/api/v1/nonsense", host, "404", "no such question");
    check("/nonsense", host, "404", "no such endpoint");
    check("/api/v1/processes", "Host: evil.example\r\n", "403", "Host");
    check(&format!("/api/v1/methods?x={}", "y".repeat(20_000)), host, "414", "16 KiB");
    let (_, headers, body) =
        get(&server, "/api/v1/flamegraph", "Host: localhost\r\nAccept-Encoding: gzip\r\n");
    assert!(headers.contains("content-encoding: gzip"), "{headers}");
    let mut text = String::new();
    let start = body.windows(2).position(|window| window == [0x1f, 0x8b]).expect("gzip magic");
    flate2::read::GzDecoder::new(&body[start..]).read_to_string(&mut text).expect("gzip");
    assert!(text.contains("com.example.shop"));
    server.stop();
}

#[test]
fn a_clock_that_is_ahead_by_years_does_not_stretch_the_last_minutes() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = Store::open(directory.path(), Retention::default()).expect("new store");
    for (session, ahead_s) in [(1, 0), (2, 14 * 365 * 86_400)] {
        let mut stream = Stream::of_session(session);
        let stack = stream.java_stack(&["shop/Main.main"]);
        stream.sample(1, stack, 10_000_000);
        let mut messages = stream.messages().to_vec();
        let Some(Body::Hello(hello)) = &mut messages[0].body else { panic!("hello comes first") };
        hello.monotonic_ns = 0;
        hello.wall_clock_ns += ahead_s * 1_000_000_000;
        let writer = store.session(hello).expect("open store");
        for message in &messages {
            let message = FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message");
            writer.append(vec![message]).expect("stored");
        }
    }
    let recent = ask(&store, "methods", &[("from", "-300s")]).expect("answer");
    assert_eq!(recent["span"]["to_ns"], NOW_NS);
    assert_eq!(recent["samples"], 1);
    let whole = ask(&store, "methods", &[]).expect("answer");
    assert_eq!(whole["samples"], 2);
    assert!(whole["span"]["to_ns"].as_u64() > Some(NOW_NS));
}

#[test]
fn figures_that_an_early_agent_did_not_send_are_absent() {
    for (resolved, expected) in [(0, "requests                 11\n"), (10, "11, 10 resolved\n")] {
        let mut stream = Stream::new();
        stream.send(Body::Statistics(Statistics { requests: 11, resolved, ..Statistics::default() }));
        let both = Both::of(stream);
        let answer = answer(&both.stored, "view/cpu-time-statistics", &[], NOW_NS).expect("answer");
        let text = String::from_utf8(answer.bytes).expect("text");
        assert!(text.contains(expected), "{text}");
    }
}
