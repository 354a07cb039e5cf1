//! A session of an AI assistant with `tickwalk mcp`, over pipes.

#[path = "../../collector/tests/support/mod.rs"]
#[allow(dead_code, reason = "the recording only")]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A running server, and a recording for it.
struct Session {
    server: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    folder: TempDir,
    recording: PathBuf,
}

impl Session {
    fn begin() -> Self {
        let folder = tempfile::tempdir().expect("temporary directory");
        let recording = folder.path().join("small.tickwalk");
        fs::write(&recording, support::small().bytes()).expect("write");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwalk"));
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("the binary runs");
        let requests = server.stdin.take();
        let answers = BufReader::new(server.stdout.take().expect("a pipe"));
        Session { server, requests, answers, folder, recording }
    }

    fn send(&mut self, line: &[u8]) {
        let requests = self.requests.as_mut().expect("open");
        requests.write_all(line).and_then(|()| requests.write_all(b"\n")).expect("sent");
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON in a line")
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.send(request.to_string().as_bytes());
        let answer = self.receive();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        answer
    }

    /// Calls a tool with the recording as its source, and returns its text and whether that is an error.
    fn call(&mut self, tool: &str, mut arguments: Value) -> (String, bool) {
        if arguments.get("before").is_none() && arguments.get("source").is_none() {
            arguments["source"] = self.recording.to_str().into();
        }
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (text.to_owned(), result["isError"].as_bool().expect("a flag"))
    }

    #[track_caller]
    fn check(&mut self, tool: &str, arguments: Value, parts: &[&str]) {
        let (text, is_error) = self.call(tool, arguments);
        assert!(!is_error && parts.iter().all(|part| text.contains(part)), "{tool}: {text}");
    }

    #[track_caller]
    fn check_error(&mut self, tool: &str, arguments: Value, message: &str) {
        let (text, is_error) = self.call(tool, arguments);
        assert!(is_error && text.contains(message), "{tool}: {text}");
    }

    /// Ends the input, after which the server ends.
    fn end(mut self) {
        drop(self.requests.take());
        assert!(self.server.wait().expect("it ends").success());
    }
}

#[test]
fn an_assistant_reads_a_profile() {
    let mut session = Session::begin();
    let introduction = session.ask("initialize", json!({ "protocolVersion": "2025-03-26" }));
    assert_eq!(introduction["result"]["protocolVersion"], "2025-03-26");
    assert_eq!(introduction["result"]["serverInfo"]["name"], "tickwalk");
    session.send(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let tools = session.ask("tools/list", json!({}));
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["summary", "top", "callers", "tree", "annotate", "diff", "export"]);

    session.check(
        "summary",
        json!({}),
        &["10 samples, 160 ms CPU time", "Java 68.8 %", "Threads", "Processes"],
    );
    session.check("top", json!({ "order": "self", "limit": 1 }), &["java.util.HashMap.get"]);
    session.check("top", json!({ "by": "thread" }), &["worker;1"]);
    session.check("callers", json!({ "method": "HashMap.get" }), &["50.0 ms", "com.example.Work.run"]);
    session.check("tree", json!({ "depth": 1 }), &["com.example.Main.main", "left out: "]);
    session.check("annotate", json!({ "method": "HashMap.get" }), &["java.util.HashMap.get"]);
    session.check(
        "export",
        json!({ "format": "collapsed" }),
        &["com.example.Work.run;java.util.HashMap.get 5"],
    );
    session.check("export", json!({ "limit": 1 }), &["[ 0] java.util.HashMap.get", "further stacks"]);
    session.check("top", json!({ "thread": "worker" }), &[" selected of 10 samples"]);
    let source = session.recording.to_str().expect("text").to_owned();
    session.check(
        "diff",
        json!({ "before": source, "after": source }),
        &["shares of self time are the same"],
    );
    session.end();
}

#[test]
fn answers_begin_with_what_is_missing() {
    let mut session = Session::begin();
    let mut bytes = fs::read(&session.recording).expect("a recording");
    bytes.pop();
    fs::write(&session.recording, bytes).expect("write");
    let source = session.recording.to_str().expect("text").to_owned();
    let cut = "the recording is cut off";
    for (tool, arguments, begin) in [
        ("export", json!({}), format!("warning: {cut}")),
        ("diff", json!({ "before": source, "after": source }), format!("warning: {source}: {cut}")),
    ] {
        let (text, is_error) = session.call(tool, arguments);
        assert!(!is_error && text.starts_with(&begin), "{tool}: {text}");
    }
    session.end();
}

#[test]
fn mistakes_are_answered_and_end_nothing() {
    let mut session = Session::begin();
    let empty = session.folder.path().to_str().expect("text").to_owned();
    session.check_error("top", json!({ "source": "/nonexistent" }), "/nonexistent: there is no such file");
    session.check_error("summary", json!({ "source": empty }), "store");
    session.check_error("top", json!({ "order": "upwards" }), "order: write self");
    session.check_error(
        "top",
        json!({ "wrong": 1 }),
        "top has no parameter \"wrong\"; its parameters are source",
    );
    session.check_error("top", json!({ "limit": [1] }), "limit: write a text or a number");
    session.check_error("callers", json!({}), "method is missing");
    session.check_error("callers", json!({ "method": "No.such" }), "no sample is in a method \"No.such\"");

    let mut code = |line: &[u8]| {
        session.send(line);
        session.receive()["error"]["code"].as_i64().expect("an error")
    };
    assert_eq!(code(b"{no json"), -32700);
    assert_eq!(code(b"\xff\xfe"), -32700);
    assert_eq!(code(b"[]"), -32600);
    assert_eq!(code(&vec![b' '; (1 << 20) + 10]), -32600);
    assert_eq!(code(br#"{"jsonrpc":"2.0","id":1,"method":"tools/fetch"}"#), -32601);
    assert_eq!(code(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#), -32602);
    assert_eq!(code(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#), -32602);
    session.check("top", json!({}), &["10 samples"]);
    session.end();
}
