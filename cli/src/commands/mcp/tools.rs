//! The tools of `tickwalk mcp`: each is a question of the HTTP API, with its answer as text.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use collector::source_path::SourcePath;
use profile::export::Options;
use profile::query::difference::method_differences;
use profile::query::modes::Modes;
use profile::query::selection::{FRAME_KIND_FORMS, STATE_FORMS, THREAD_KIND_FORMS, TIME_FORMS};
use profile::query::view::differences;
use profile::text::format::Format;
use serde_json::{Map, Value, json};

use crate::commands::verdict;
use crate::source::{Pairs, SelectionArguments, Source};

/// Most bytes of an answer: assistants read no more than that at once.
const LONGEST: usize = 100_000;

/// Rows and stacks of an answer, unless `limit` is another number.
const ROWS: &str = "20";

pub struct Tool {
    name: &'static str,
    description: &'static str,
    /// Parameters beside those of the selection.
    parameters: &'static [Parameter],
    answer: fn(&Call) -> anyhow::Result<Vec<u8>>,
}

struct Parameter {
    name: &'static str,
    is_required: bool,
    meaning: &'static str,
}

const fn required(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, is_required: true, meaning }
}

const fn optional(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, is_required: false, meaning }
}

const SOURCE: Parameter =
    required("source", "recording, directory of a store, http://HOST:PORT of a collector, or URL of a lake");
const LIMIT: Parameter = optional("limit", "most rows, 20 by default");
const MIN_SHARE: Parameter = optional("min_share", "least share of a row, such as 0.5%; 1% by default");
const DEPTH: Parameter = optional("depth", "most frames of a path, 64 by default");
const METHOD: &str = "name of a method, or its end, such as HashMap.get";

/// Parameters that select samples; they are those of the command line.
const SELECTION: [Parameter; 10] = [
    optional("process", "id, pid or service of a process"),
    optional("thread", "part of a thread's name, or its kernel id"),
    optional("thread_kind", THREAD_KIND_FORMS),
    optional("kind", FRAME_KIND_FORMS),
    optional("state", STATE_FORMS),
    optional("frame", "only stacks with a frame that contains this text"),
    optional("include", "only stacks with a frame that matches this pattern, such as shop.*"),
    optional("exclude", "no stacks with a frame that matches this pattern"),
    optional("from", TIME_FORMS),
    optional("to", "end, written like from; a time of day is the first one after from"),
];

static TOOLS: [Tool; 7] = [
    Tool {
        name: "summary",
        description: "What a profile shows: its account of CPU time, shares by kind of code, hot methods, threads, \
            processes. Begin here.",
        parameters: &[SOURCE],
        answer: |call| call.ask("summary/text", call.pairs(&[])),
    },
    Tool {
        name: "top",
        description: "The methods, lines, classes, packages or threads with most CPU time, by their own code (self) \
            and with callees (total).",
        parameters: &[
            SOURCE,
            optional("by", "method (default), line, class, package or thread"),
            optional("order", "self or total; both by default"),
            LIMIT,
        ],
        answer: top,
    },
    Tool {
        name: "callers",
        description: "Who calls a method, as a tree with shares of the method's time.",
        parameters: &[SOURCE, required("method", METHOD), MIN_SHARE, DEPTH],
        answer: |call| call.ask("callers/text", call.pairs(&["method", "min_share", "depth"])),
    },
    Tool {
        name: "tree",
        description: "The call tree from the first method of each thread on, bounded by share and depth.",
        parameters: &[SOURCE, MIN_SHARE, DEPTH],
        answer: |call| call.ask("tree", call.pairs(&["min_share", "depth"])),
    },
    Tool {
        name: "annotate",
        description: "CPU time of the lines of a method, beside its source text if source_path has it.",
        parameters: &[
            SOURCE,
            optional("method", METHOD),
            optional(
                "source_path",
                "folder, .jar or .zip with source files; several are separated by colons",
            ),
        ],
        answer: annotate,
    },
    Tool {
        name: "diff",
        description: "The methods whose share of the CPU time differs most between two profiles.",
        parameters: &[
            required("before", "source of the first side, as source of other tools"),
            required("after", "source of the second side"),
            LIMIT,
        ],
        answer: diff,
    },
    Tool {
        name: "export",
        description: "The stacks as text: the heaviest ones as blocks (traces), or all as lines (collapsed).",
        parameters: &[SOURCE, optional("format", "traces (default) or collapsed"), LIMIT],
        answer: export,
    },
];

/// Returns the descriptions of all tools.
pub fn list() -> Vec<Value> {
    TOOLS.iter().map(Tool::description).collect()
}

pub fn names() -> String {
    TOOLS.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ")
}

pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl Tool {
    fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().chain(&SELECTION)
    }

    fn description(&self) -> Value {
        let property = |parameter: &Parameter| {
            let schema = json!({ "type": ["string", "number"], "description": parameter.meaning });
            (parameter.name.to_owned(), schema)
        };
        let properties: Map<String, Value> = self.parameters().map(property).collect();
        let required = self.parameters().filter(|parameter| parameter.is_required);
        let required: Vec<&str> = required.map(|parameter| parameter.name).collect();
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": { "type": "object", "properties": properties, "required": required },
        })
    }

    /// Returns the answer to `arguments`, cut if it is long.
    pub fn call(&self, arguments: &Value, selection: &SelectionArguments) -> anyhow::Result<String> {
        let call = Call { values: self.values(arguments)?, selection };
        let text = String::from_utf8((self.answer)(&call)?).context("the answer is no text")?;
        if text.len() <= LONGEST {
            return Ok(text);
        }
        let shown = &text[..text.floor_char_boundary(LONGEST)];
        Ok(format!(
            "{shown}\n[{LONGEST} of {} bytes; lower limit, raise min_share or select less]\n",
            text.len()
        ))
    }

    fn values(&self, arguments: &Value) -> anyhow::Result<Pairs> {
        let none = Map::new();
        let arguments = match arguments {
            Value::Null => &none,
            Value::Object(arguments) => arguments,
            _ => bail!("arguments: write an object"),
        };
        let mut values = Pairs::new();
        for (name, value) in arguments {
            if !self.parameters().any(|parameter| parameter.name == name) {
                let known: Vec<&str> = self.parameters().map(|parameter| parameter.name).collect();
                bail!("{} has no parameter {name:?}; its parameters are {}", self.name, known.join(", "));
            }
            match value {
                Value::String(text) => values.push((name.clone(), text.clone())),
                Value::Number(number) => values.push((name.clone(), number.to_string())),
                Value::Null => {}
                _ => bail!("{name}: write a text or a number"),
            }
        }
        let is_given = |parameter: &&Parameter| values.iter().any(|(name, _)| name == parameter.name);
        match self.parameters().find(|parameter| parameter.is_required && !is_given(parameter)) {
            Some(missing) => bail!("{} is missing: {}", missing.name, missing.meaning),
            None => Ok(values),
        }
    }
}

struct Call<'s> {
    values: Pairs,
    selection: &'s SelectionArguments,
}

impl Call<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn source(&self, name: &str) -> anyhow::Result<Source> {
        let source = Source::from_str(self.value(name).unwrap_or_default())?;
        Ok(self.selection.configured(source))
    }

    /// Returns the selection and the parameters of these names.
    fn pairs(&self, names: &[&str]) -> Pairs {
        let is_selection = |name: &str| SELECTION.iter().any(|parameter| parameter.name == name);
        let own = self.values.iter().filter(|(name, _)| names.contains(&name.as_str()) || is_selection(name));
        self.selection.pairs().into_iter().chain(own.cloned()).collect()
    }

    fn ask(&self, question: &str, pairs: Pairs) -> anyhow::Result<Vec<u8>> {
        self.source("source")?.ask(question, &pairs)
    }

    fn limit(&self) -> &str {
        self.value("limit").unwrap_or(ROWS)
    }
}

fn top(call: &Call) -> anyhow::Result<Vec<u8>> {
    let mut pairs = call.pairs(&[]);
    pairs.push(("limit".to_owned(), call.limit().to_owned()));
    if call.value("by") == Some("thread") {
        return call.ask("top/threads", pairs);
    }
    let others = [("rows", call.value("by")), ("order", call.value("order"))];
    pairs.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))));
    call.ask("top", pairs)
}

fn annotate(call: &Call) -> anyhow::Result<Vec<u8>> {
    let paths = call.value("source_path").into_iter().flat_map(|paths| paths.split(':'));
    let paths: Vec<PathBuf> = paths.map(PathBuf::from).collect();
    let texts = SourcePath::open(&paths)?;
    call.source("source")?.ask_with(texts, "lines/text", &call.pairs(&["method"]))
}

fn diff(call: &Call) -> anyhow::Result<Vec<u8>> {
    let limit = call.limit().parse().context("limit: write a number")?;
    let before = verdict::methods_with_warnings(&call.source("before")?, call.pairs(&[]))?;
    let after = verdict::methods_with_warnings(&call.source("after")?, call.pairs(&[]))?;
    Modes::check(&before.modes, &after.modes)?;
    let warnings = lines(&before.warnings) + &lines(&after.warnings);
    Ok((warnings + &differences(&method_differences(&before, &after), limit)).into_bytes())
}

fn export(call: &Call) -> anyhow::Result<Vec<u8>> {
    let format = match call.value("format") {
        None | Some("traces") => Format::Traces,
        Some("collapsed") => Format::Collapsed,
        Some(_) => {
            bail!("format: write traces or collapsed; 'tickwalk export' writes files of other formats")
        }
    };
    let stacks = call.limit().parse().context("limit: write a number")?;
    let options = Options { stacks: Some(stacks), ..Options::default() };
    let mut text = Vec::new();
    let warnings = call.source("source")?.export(format, options, &call.pairs(&[]), &mut text)?;
    Ok([lines(&warnings).into_bytes(), text].concat())
}

/// Returns warnings as lines in front of a text.
fn lines(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("warning: {warning}\n")).collect()
}
