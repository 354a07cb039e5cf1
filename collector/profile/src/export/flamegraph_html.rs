//! The flame graph as one HTML file that needs nothing else.
//!
//! The page draws on a canvas from a call tree in columns, embedded as JSON; its sources are in `src/ui/`.
//! Nothing in the data can become markup: in the JSON, the characters that could end its element are escaped,
//! and the page puts texts on the canvas or into text nodes only.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::table::warnings;
use crate::Profile;
use crate::query::flamegraph::CallTree;
use crate::summary::Summary;

const PAGE: &str = include_str!("../../../src/ui/flamegraph.html");
const STYLE: &str = include_str!("../../../src/ui/flamegraph.css");
const MODEL: &str =
    concat!(include_str!("../../../src/ui/model.js"), include_str!("../../../src/ui/graph.js"));
const SCRIPT: &str = include_str!("../../../src/ui/flamegraph.js");

/// Data of the page, in columns where there are many rows.
#[derive(Serialize)]
struct Data<'p> {
    title: &'p str,
    host: &'p str,
    command: &'p str,
    /// Start of the session, ns since the epoch.
    started_ns: u64,
    summary: &'p Summary,
    /// Whether there were statistics to hold the samples against.
    accounted: bool,
    warnings: Vec<String>,
    names: &'p [String],
    /// Name of each frame.
    frame_names: Vec<u32>,
    /// Kind of each frame, as in the protocol.
    frame_kinds: Vec<i32>,
    /// For each node but the root, how far back its parent is.
    parents: Vec<u32>,
    /// Frame of each node but the root.
    node_frames: &'p [u32],
    /// Samples: for each, how many nodes after the one before.
    sample_nodes: Vec<u32>,
    /// Position in `summary.threads`, or behind them in `summary.virtual_threads`.
    sample_threads: Vec<usize>,
    sample_ns: Vec<u64>,
    sample_counts: Vec<u64>,
}

/// Writes the flame graph of `profile`, named `title`, to `out`.
///
/// # Errors
/// If writing fails.
pub fn write(profile: &Profile, title: &str, mut out: impl Write) -> io::Result<()> {
    let summary = Summary::new(profile);
    let tree = CallTree::new(profile);
    let json = serde_json::to_string(&data(profile, title, &summary, &tree)).map_err(io::Error::other)?;
    let parts = [
        ("{{title}}", escape_html(title)),
        ("{{style}}", STYLE.to_owned()),
        ("{{data}}", escape_json(&json)),
        ("{{model}}", MODEL.to_owned()),
        ("{{script}}", SCRIPT.to_owned()),
    ];
    // The parts are filled in from front to back, so that a placeholder inside a part is left alone.
    let mut rest = PAGE;
    for (placeholder, text) in parts {
        let (before, after) = rest.split_once(placeholder).ok_or(io::ErrorKind::InvalidData)?;
        out.write_all(before.as_bytes())?;
        out.write_all(text.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

fn data<'p>(profile: &'p Profile, title: &'p str, summary: &'p Summary, tree: &'p CallTree) -> Data<'p> {
    let threads = summary.threads.iter().map(|thread| std::slice::from_ref(&thread.id));
    let virtual_threads = summary.virtual_threads.iter().map(|thread| thread.ids.as_slice());
    let rows: FxHashMap<u32, usize> = threads
        .chain(virtual_threads)
        .enumerate()
        .flat_map(|(row, ids)| ids.iter().map(move |&id| (id, row)))
        .collect();
    let mut warnings = warnings(profile, summary);
    if tree.unknown_ids > 0 {
        warnings.push(format!("{} names or stacks were referred to but never received", tree.unknown_ids));
    }
    let mut last_node = 0;
    let hello = profile.hello();
    Data {
        title,
        host: &hello.host,
        command: &hello.command,
        started_ns: hello.wall_clock_ns,
        summary,
        accounted: summary.accounted,
        warnings,
        names: &tree.names,
        frame_names: tree.frames.iter().map(|frame| frame.name.0).collect(),
        frame_kinds: tree.frames.iter().map(|frame| frame.kind.into()).collect(),
        parents: (1u32..).zip(&tree.parents[1..]).map(|(node, parent)| node - parent).collect(),
        node_frames: &tree.frame_of[1..],
        sample_nodes: tree
            .samples
            .iter()
            .map(|samples| samples.node - std::mem::replace(&mut last_node, samples.node))
            .collect(),
        sample_threads: tree
            .samples
            .iter()
            .map(|samples| rows.get(&samples.thread).copied().unwrap_or_default())
            .collect(),
        sample_ns: tree.samples.iter().map(|samples| samples.cell.cpu_ns).collect(),
        sample_counts: tree.samples.iter().map(|samples| samples.cell.samples).collect(),
    }
}

/// JSON that can stand inside a script element: no `<` that could end it or open a comment.
fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
