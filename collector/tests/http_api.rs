//! The HTTP API as described in `docs/formats.md`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::realistic::shop;
use crate::support::{Stream, small};
use collector::http::{HttpServer, Probe};
use collector::store::{Retention, Store};
use proto::framing::{Checksums, FramedMessage};
use proto::v1::agent_message::Body;
use proto::v1::{Counter, Lost, SampleBatch, Statistics, ThreadAccount, ThreadKind};
use serde_json::Value;
use tempfile::TempDir;

const DOCUMENT: &str = include_str!("../../docs/formats.md");
const METHOD: &str = "com.example.shop.search.Scorer.score";

struct Served {
    server: HttpServer,
    _directory: TempDir,
}

impl Served {
    fn new() -> Served {
        Served::of([shop(true)])
    }

    fn of(streams: impl IntoIterator<Item = Stream>) -> Served {
        let directory = tempfile::tempdir().expect("temporary directory");
        let store = Store::open(directory.path(), Retention::default()).expect("new store");
        for mut stream in streams {
            let Some(Body::Hello(hello)) = &stream.messages()[0].body else { panic!("hello comes first") };
            let writer = store.session(&hello.clone()).expect("open store");
            for message in stream.messages() {
                let message =
                    FramedMessage::encode(message.clone(), Checksums::Optional).expect("short message");
                writer.append(vec![message]).expect("stored");
            }
        }
        let address = "127.0.0.1:0".parse().expect("address");
        let store = Arc::new(store);
        let probe = Probe { store: Some(Arc::clone(&store)), ..Probe::default() };
        let server = HttpServer::start(address, store, probe).expect("server starts");
        Served { server, _directory: directory }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.server.address()).expect("server listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("end of headers");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    fn ask(&self, question: &str) -> Value {
        let (status, body) = self.get(&format!("/api/v1/{question}"));
        assert_eq!(status, 200, "{question}: {body}");
        // Long answers come in chunks, whose lengths stand between the lines.
        let lines = body.lines().filter(|line| line.starts_with('{') || body.lines().count() == 1);
        serde_json::from_str(&lines.collect::<String>()).unwrap_or_else(|error| panic!("{question}: {error}"))
    }
}

/// The part of the document below a heading.
fn part(heading: &str) -> &'static str {
    let rest = DOCUMENT.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    rest.split("\n##").next().expect("a part")
}

/// Returns the texts between backticks, of lines that begin with `start`.
fn quoted(text: &'static str, start: &str) -> Vec<&'static str> {
    let lines = text.lines().filter(|line| line.starts_with(start));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_endpoint_answers() {
    let served = Served::new();
    let mut asked = 0;
    for line in part("## HTTP API").lines().filter(|line| line.starts_with("| `/")) {
        let (addresses, about) = line[2..].split_once(" | ").expect("two columns");
        for address in addresses.split('`').skip(1).step_by(2) {
            let views: Vec<&str> = about.split('`').skip(1).step_by(2).collect();
            let paths: Vec<String> = match address {
                "/ui/NAME" => vec!["/ui/app.js".into(), "/ui/app.css".into()],
                "/api/v1/callers" | "/api/v1/callers/text" | "/api/v1/callees" => {
                    vec![format!("{address}?method={METHOD}")]
                }
                "/api/v1/export" => ["collapsed", "speedscope", "flamegraph"]
                    .map(|format| format!("{address}?format={format}"))
                    .to_vec(),
                _ if address.ends_with("NAME") => {
                    assert!(views.len() >= 5, "{line}");
                    views.iter().map(|view| address.replace("NAME", view)).collect()
                }
                _ => vec![address.to_owned()],
            };
            for path in paths {
                let (status, body) = served.get(&path);
                assert!(status == 200 && !body.is_empty(), "{path}: {status} {body}");
                asked += 1;
            }
        }
    }
    assert!(asked >= 20, "{asked} addresses");
    assert_eq!(served.get("/api/v1/nonsense").0, 404);
    served.server.stop();
}

/// A session that claims all the CPU time there is, several times over.
fn boundless(session: u64) -> Stream {
    let mut stream = Stream::of_session(session);
    stream.thread(1, "one", ThreadKind::Java);
    stream.thread(2, "two", ThreadKind::Java);
    stream.carried(3, 1, 77, "three");
    stream.carried(4, 2, 77, "");
    let stacks = [stream.java_stack(&["a/Main.main", "a/B.b"]), stream.java_stack(&["a/Main.main", "a/C.c"])];
    for thread in 1..=4 {
        for stack in stacks {
            let batch = SampleBatch {
                first_time_ns: 55_000_000_000 + u64::from(thread) * 1_500_000_000,
                thread: vec![thread; 2],
                node: vec![stack; 2],
                cpu_unit_ns: u64::MAX,
                count: vec![u64::MAX; 2],
                ..SampleBatch::default()
            };
            stream.send(Body::Samples(batch));
        }
    }
    let most = |cause: &str| Lost { cause: cause.into(), count: u64::MAX, ns: u64::MAX };
    let failed = |name: &str| Counter { name: name.into(), count: u64::MAX };
    let account = |thread| ThreadAccount {
        thread,
        kernel_ns: u64::MAX,
        sampled_ns: u64::MAX,
        carried_ns: u64::from(thread),
        lost: vec![most("queue_full"), most("stopping")],
        ..ThreadAccount::default()
    };
    stream.send(Body::Statistics(Statistics {
        time_ns: 60_000_000_000,
        requests: u64::MAX,
        resolved: u64::MAX,
        process_cpu_ns: u64::MAX,
        before_timer_ns: u64::MAX,
        failed: vec![failed("copy_end"), failed("unreadable")],
        lost: vec![most("queue_full"), most("stopping")],
        threads: vec![account(1), account(2)],
        ..Statistics::default()
    }));
    stream
}

#[test]
fn times_beyond_the_largest_number_are_clamped() {
    let served = Served::of([boundless(1), boundless(2)]);
    let selections = ["", "thread=three", "kind=interpreted", "frame=a.B.b", "process=0000000000000001"];
    let questions = [
        "processes?",
        "statistics?",
        "methods?",
        "flamegraph?",
        "callers?method=a.B.b&",
        "callees?method=a.Main.main&",
        "threads?",
        "timeline?",
        "timeline?by=process&",
        "timeline?by=thread&",
        "timeline?by=thread&bucket=1000&",
        "diff?before.thread=one&",
        "diff/methods?before.thread=one&",
        "view/hot-methods?",
        "view/cpu-time-hot-methods?",
        "view/cpu-time-statistics?",
        "view/threads?",
        "view/processes?",
    ];
    for question in questions {
        for selection in selections {
            let selection = if question.starts_with("diff") { "" } else { selection };
            let (status, body) = served.get(&format!("/api/v1/{question}{selection}"));
            assert_eq!(status, 200, "{question}{selection}: {body}");
        }
    }
    for question in ["methods", "threads"] {
        assert_eq!(served.ask(question)["total_ns"], u64::MAX, "{question}");
    }
    // Rows of the store have 32 bits for samples that were merged.
    assert_eq!(served.ask("methods")["samples"], 32 * u64::from(u32::MAX));
    let timeline = served.ask("timeline?by=thread");
    let cells = timeline["rows"][0]["cpu_ns"].as_array().expect("cells");
    assert!(cells.contains(&u64::MAX.into()), "{timeline}");
    let (status, metrics) = served.get("/metrics");
    assert!(status == 200 && metrics.contains("queue_full"), "{status} {metrics}");
    let line = metrics.lines().find(|line| line.starts_with("tickwalk_samples_total{")).expect("samples");
    assert!(line.ends_with(&u64::MAX.to_string()) || line.ends_with("18446744073709552000"), "{line}");
    served.server.stop();
}

#[test]
fn every_parameter_is_understood() {
    let served = Served::new();
    let mut names = BTreeSet::new();
    for line in part("### Selection").lines().filter(|line| line.starts_with("| `")) {
        let (left, about) = line[2..].split_once(" | ").expect("two columns");
        for name in left.split('`').skip(1).step_by(2) {
            // Where the description lists values, each of them is one.
            let values: Vec<&str> = match name {
                "kind" | "thread_kind" | "state" => about.split('`').skip(1).step_by(2).collect(),
                "label" => vec!["host=build-1", "service=x", "jvm=25", "pid=1", "command=x"],
                "from" | "to" => {
                    vec!["now", "-90s", "-15m", "-2h", "-7d", "1790000000.5", "3s", "14:03", "14:03:05"]
                }
                _ => vec!["x"],
            };
            for value in values {
                for question in ["methods", "threads", "timeline"] {
                    let (status, body) = served.get(&format!("/api/v1/{question}?{name}={value}"));
                    assert_eq!(status, 200, "{question} {name}={value}: {body}");
                }
                let (status, body) = served.get(&format!("/api/v1/diff/methods?before.{name}={value}"));
                assert_eq!(status, 200, "before.{name}={value}: {body}");
            }
            names.insert(name);
        }
    }
    assert_eq!(names.len(), 11, "{names:?}");
    served.server.stop();
}

#[test]
fn answers_have_the_fields_described() {
    let served = Served::new();
    let answers = part("### Answers");
    let statistics = &served.ask("statistics")["processes"][0];
    let mut fields = 0;
    for name in quoted(answers, "`statistics` adds").into_iter().skip(1) {
        let is_there = ["handler_cycles", "timers"].iter().any(|group| !statistics[group][name].is_null());
        // The agent of this session does not count it.
        let is_null = name == "biased" && statistics.get(name).is_some_and(|value| value.is_null());
        assert!(is_there || is_null || !statistics[name].is_null(), "statistics: no {name} in {statistics}");
        fields += 1;
    }
    assert!(fields >= 25, "{fields} fields");
    for (question, address) in [
        ("processes", "processes".to_owned()),
        ("methods", "methods?order=total&limit=5".to_owned()),
        ("lines", format!("lines?method={METHOD}")),
        ("threads", "threads?limit=5".to_owned()),
        ("timeline", "timeline?by=thread&bucket=2000&limit=5".to_owned()),
        ("diff`", "diff?before.thread=exec-1".to_owned()),
        ("diff/methods", "diff/methods?before.thread=exec-1".to_owned()),
    ] {
        let line = answers.lines().find(|line| line.starts_with(&format!("`{question}"))).expect("described");
        let answer = served.ask(&address).to_string();
        let json = line.split('`').find(|code| code.starts_with('{')).expect("an example");
        let names: Vec<&str> = json
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|name| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'))
            // Values of the example, not names.
            .filter(|name| *name != "live")
            // A server without sources has none.
            .filter(|name| *name != "text")
            .collect();
        assert!(names.len() >= 5, "{question}: {names:?}");
        for name in names {
            assert!(answer.contains(&format!("\"{name}\":")), "{question}: no {name} in {answer}");
        }
    }
    for question in ["flamegraph?max_nodes=100".to_owned(), format!("callers?method={METHOD}")] {
        let answer = served.ask(&question);
        let column = |name: &str| answer["tree"][name].as_array().map_or(0, Vec::len);
        assert!(column("parents") > 1, "{answer}");
        for name in ["frame_names", "kinds", "self_ns", "total_ns"] {
            assert_eq!(column(name), column("parents"), "{question}: {name}");
        }
    }
    served.server.stop();
}

/// The tables of a session that has sent something lately have no warning that its end is missing.
#[test]
fn a_session_that_goes_on_is_not_incomplete() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set");
    for (age, goes_on) in [(Duration::from_secs(10), true), (Duration::from_secs(3_600), false)] {
        let mut stream = Stream::new();
        stream.thread(1, "main", ThreadKind::Java);
        let stack = stream.java_stack(&["com/example/Main.main"]);
        stream.sample(1, stack, 1_000_000);
        stream.set_wall_clock((now - age).as_nanos() as u64);
        let served = Served::of([stream]);
        let (status, text) = served.get("/api/v1/top?limit=1");
        assert_eq!(status, 200, "{text}");
        assert_eq!(text.contains(", so far"), goes_on, "{text}");
        assert_eq!(text.contains("recording incomplete"), !goes_on, "{text}");
        let is_unended = |text: &str| text.contains("did not end properly");
        assert_eq!(is_unended(&text), !goes_on, "{text}");
        let answer = served.ask("top?limit=1&json=true");
        assert_eq!(is_unended(&answer["warnings"].to_string()), !goes_on, "{answer}");
        served.server.stop();
    }
}

/// A method by line, beside the text of its file where the server has it; a request never names a path.
#[test]
fn lines_of_a_method_come_with_their_text() {
    let served = Served::new();
    let answer = served.ask(&format!("lines?method={METHOD}"));
    let method = &answer["method"];
    assert_eq!(
        (method["method"].as_str(), method["class"].as_str()),
        (Some(METHOD), METHOD.rsplit_once('.').map(|name| name.0))
    );
    let lines = method["lines"].as_array().expect("lines");
    let own: u64 = lines.iter().filter_map(|line| line["self_ns"].as_u64()).sum();
    let rows = served.ask("methods?limit=1000");
    let known = rows["methods"].as_array().expect("rows").iter().find(|row| row["name"] == METHOD);
    assert_eq!(Some(own), known.and_then(|row| row["self_ns"].as_u64()), "{answer}");
    assert_eq!((&method["text"], &answer["total_ns"]), (&Value::Null, &rows["total_ns"]));
    // The end of a name is enough; without a name it is the hottest method.
    let (_, end) = METHOD.rsplit_once("search.").expect("a package");
    assert_eq!(served.ask(&format!("lines?method={end}"))["method"], *method);
    assert_eq!(served.ask("lines")["method"]["method"], rows["methods"][0]["name"]);
    let (status, body) = served.get("/api/v1/lines/text?method=no.Such");
    assert!(status == 400 && body.contains("no.Such"), "{status} {body}");
    served.server.stop();
}

/// The rows of a timeline stand for values of a label, and have the CPU time of all processes with it.
#[test]
fn timelines_group_by_label() {
    let mut other = small();
    other.rename(77);
    other.set_pid(77);
    let served = Served::of([shop(true), other]);
    let sum =
        |row: &Value| row["cpu_ns"].as_array().expect("cells").iter().filter_map(Value::as_u64).sum::<u64>();
    let by_pid = served.ask("timeline?by=label:pid");
    for row in by_pid["rows"].as_array().expect("rows") {
        let pid = row["group"].as_str().expect("a process id");
        let alone = served.ask(&format!("timeline?label=pid={pid}"));
        assert_eq!(sum(row), sum(&alone["rows"][0]), "{pid}");
    }
    assert_eq!(by_pid["rows"].as_array().map(Vec::len), Some(2));
    let unlabelled = served.ask("timeline?by=label:team");
    assert_eq!(
        (unlabelled["rows"].as_array().map(Vec::len), unlabelled["rows"][0]["group"].as_str()),
        (Some(1), Some(""))
    );
    assert_eq!(served.get("/api/v1/timeline?by=label:").0, 400);
    served.server.stop();
}

/// Go's address of a profile: wrong parameters are refused at once, and samples that arrive during the wait are in the
/// answer.
#[test]
fn a_profile_of_the_next_seconds_has_what_arrives() {
    let served = Served::new();
    for (query, reason) in [
        ("seconds=0", "seconds"),
        ("seconds=301", "seconds"),
        ("colour=red", "colour"),
        ("from=-1h", "seconds"),
    ] {
        let (status, body) = served.get(&format!("/debug/pprof/profile?{query}"));
        assert!(status == 400 && body.contains(reason), "{query}: {status} {body}");
    }
    let (status, body) = served.get("/debug/pprof/profile?seconds=1");
    assert!(
        status == 400 && body.contains("no process"),
        "old samples are not the next ones: {status} {body}"
    );
    // A recording has no future: its last seconds are the answer.
    let recording = Arc::new(shop(true).recording());
    let address = "127.0.0.1:0".parse().expect("address");
    let server = HttpServer::start(address, recording, Probe::default()).expect("server starts");
    let mut stream = TcpStream::connect(server.address()).expect("server listens");
    stream
        .write_all(b"GET /debug/pprof/profile?seconds=300 HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .expect("server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("bytes");
    let head = String::from_utf8_lossy(&answer[..answer.len().min(600)]).into_owned();
    assert!(head.starts_with("HTTP/1.0 200") && head.contains("profile.pb.gz"), "{head}");
    let body = answer.windows(4).position(|window| window == b"\r\n\r\n").map(|end| &answer[end + 4..]);
    assert_eq!(body.map(|body| &body[..2]), Some(&[0x1f, 0x8b][..]), "gzip");
    server.stop();
    served.server.stop();
}

#[test]
fn metrics_of_the_process_are_plausible() {
    let served = Served::new();
    let (_, metrics) = served.get("/metrics");
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse().expect("a number")
    };
    let mebibyte = 1024.0 * 1024.0;
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(
        (mebibyte..value("process_virtual_memory_bytes")).contains(&value("process_resident_memory_bytes"))
    );
    assert!(value("process_threads") >= 1.0);
    assert!((3.0..value("process_max_fds")).contains(&value("process_open_fds")));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs_f64();
    assert!((now - 3600.0..=now).contains(&value("process_start_time_seconds")));
    served.server.stop();
}

/// Each metric and each label of the dashboard in `cli/packaging`, after queries and samples that make all of them.
#[test]
fn the_dashboard_queries_metrics_that_exist() {
    let dashboard = include_str!("../../cli/packaging/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let mut expressions = Vec::new();
    find_expressions(&dashboard, &mut expressions);
    assert!(expressions.len() >= 8, "{expressions:?}");
    let served = Served::of([boundless(1)]);
    served.ask("methods");
    let (_, metrics) = served.get("/metrics");
    let samples: Vec<&str> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    for expression in expressions {
        let words = || expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let name = words().find(|word| word.starts_with("tickwalk_")).expect("a metric of ours");
        let found = samples.iter().find(|line| line.split(['{', ' ']).next() == Some(name));
        let line = found.unwrap_or_else(|| panic!("{name} of {expression:?} is not in /metrics:\n{metrics}"));
        let labels = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        for label in labels.flat_map(|labels| labels.split(", ")) {
            assert!(line.contains(&format!("{label}=\"")), "{label} of {expression:?} is not in {line}");
        }
    }
    served.server.stop();
}

/// Collects the queries of a dashboard's panels.
fn find_expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| find_expressions(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| find_expressions(value, found)),
        _ => {}
    }
}
