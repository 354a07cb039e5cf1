//! `tickwalk mcp`: tools for AI assistants, over the Model Context Protocol.
//!
//! Messages are JSON-RPC 2.0 in lines, requests on standard input, answers on standard output. The server needs three
//! methods, so no library: `rmcp` would bring 23 further crates (`design/profile.md`).
//! Invariant: every request gets an answer, and only the end of the input ends the server.

mod tools;

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::source::SelectionArguments;

/// Versions of the protocol whose messages used here are the same, the newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// Most bytes of a request.
const LONGEST: u64 = 1 << 20;

// Codes of JSON-RPC 2.0.
const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const INVALID_PARAMETERS: i64 = -32602;

#[derive(Debug, Args)]
#[command(after_help = "\
The tools are summary, top, callers, tree, annotate, diff and export; each reads a recording, the directory of a store, or a
running collector. A selection on the command line applies to every answer.

Example, in the configuration of an assistant:
  {\"mcpServers\": {\"tickwalk\": {\"command\": \"tickwalk\", \"args\": [\"mcp\"]}}}")]
pub struct Arguments {
    #[command(flatten)]
    selection: SelectionArguments,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match serve(io::stdin().lock(), io::stdout().lock(), &arguments.selection) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Answers requests until the input ends.
fn serve(mut input: impl BufRead, mut output: impl Write, selection: &SelectionArguments) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_cut = !line.ends_with(b"\n") && line.len() as u64 == LONGEST;
        let answer = match is_cut {
            true => {
                input.skip_until(b'\n')?;
                Some(failure(&Value::Null, INVALID_REQUEST, "a request has at most 1 MiB"))
            }
            false => answer(&line, selection),
        };
        if let Some(answer) = answer {
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
}

/// Returns the answer to a message; notifications and blank lines have none.
fn answer(line: &[u8], selection: &SelectionArguments) -> Option<Value> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let request: Value = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return Some(failure(&Value::Null, PARSE_ERROR, &format!("no JSON: {error}"))),
    };
    let Some(method) = request["method"].as_str() else {
        let text = "a request is an object with a method; send one in each line";
        return Some(failure(&request["id"], INVALID_REQUEST, text));
    };
    let id = request.get("id")?;
    let parameters = &request["params"];
    Some(match method {
        "initialize" => success(id, &introduction(parameters)),
        "ping" => success(id, &json!({})),
        "tools/list" => success(id, &json!({ "tools": tools::list() })),
        "tools/call" => match parameters["name"].as_str().map(tools::find) {
            Some(Some(tool)) => success(id, &result(tool.call(&parameters["arguments"], selection))),
            Some(None) => {
                let text = format!("there is no such tool; the tools are {}", tools::names());
                failure(id, INVALID_PARAMETERS, &text)
            }
            None => failure(id, INVALID_PARAMETERS, "the name of the tool is missing"),
        },
        _ => failure(id, UNKNOWN_METHOD, &format!("there is no method {method}")),
    })
}

fn introduction(parameters: &Value) -> Value {
    let asked = parameters["protocolVersion"].as_str();
    let version = VERSIONS.into_iter().find(|version| Some(*version) == asked).unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "tickwalk", "version": env!("CARGO_PKG_VERSION") },
        "instructions": "Profiles of Java programs. Begin with the tool summary; then top, tree or callers \
            for the hot methods, and annotate for their lines.",
    })
}

/// Returns the result of a tool; its errors are for the assistant, which can correct its arguments.
fn result(answer: anyhow::Result<String>) -> Value {
    let is_error = answer.is_err();
    let text = answer.unwrap_or_else(|error| format!("{error:#}"));
    json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}

fn success(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn failure(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}
