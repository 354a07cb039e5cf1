//! The page as a file: self-contained, complete, and safe against its data.
//!
//! The pages are left in Cargo's directory for test output, to be opened in a browser.

use crate::support;
use std::path::{Path, PathBuf};

use crate::support::Stream;
use profile::api::question::answer;
use profile::query::selection::Selection;
use profile::source::recording::Recording;
use profile::ui::standalone;
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, FrameKind, ThreadKind};
use serde_json::Value;

fn recording(stream: &mut Stream) -> Recording {
    stream.recording()
}

fn recording_of(messages: &[AgentMessage]) -> Recording {
    let Some(Body::Hello(hello)) = &messages[0].body else { panic!("hello comes first") };
    let mut recording = Recording::new(hello.clone());
    messages.iter().cloned().for_each(|message| recording.add(message));
    recording
}

fn page(store: &Recording, selection: &[(&str, &str)]) -> String {
    let mut chosen = Selection::default();
    for (name, value) in selection {
        assert_eq!(chosen.set(name, value), Ok(true), "{name}");
    }
    let mut bytes = Vec::new();
    standalone::write(store, &chosen, u64::MAX / 2, &mut bytes).expect("writing to memory");
    String::from_utf8(bytes).expect("a page is text")
}

/// The answer of the API to the question of a call tree.
fn flamegraph(store: &Recording, selection: &[(&str, &str)]) -> Value {
    let pairs: Vec<(String, String)> =
        selection.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let answer = answer(store, "flamegraph", &pairs, u64::MAX / 2).expect("an answer");
    serde_json::from_slice(&answer.bytes).expect("JSON")
}

/// Sum of a column, or of the products of two.
fn sum(data: &Value, column: &str) -> u64 {
    data["samples"][column].as_array().expect("array").iter().filter_map(Value::as_u64).sum()
}

fn keep(name: &str, page: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, page).expect("write page");
    path
}

/// The JSON between the tags of the data element.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"<script id="data" type="application/json">"#).expect("data element");
    let (json, _) = rest.split_once("</script>").expect("end of data");
    serde_json::from_str(json).expect("valid JSON")
}

#[test]
fn a_page_loads_no_other_file() {
    let page = page(&support::realistic::shop(false).recording(), &[]);
    keep("shop.html", &page);
    for loading in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "http://", "https://"] {
        assert!(!page.contains(loading), "the page contains {loading}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("{{"), "a placeholder is left");
}

#[test]
fn a_page_has_all_cpu_time() {
    let mut stream = support::realistic::shop(true);
    let (profile, store) = (stream.profile(), recording(&mut stream));
    let page = page(&store, &[]);
    keep("shop-trouble.html", &page);
    let data = data(&page);
    let unit_ns = data["unit_ns"].as_u64().expect("a unit");
    assert_eq!(sum(&data, "units") * unit_ns, profile.total().cpu_ns);
    assert_eq!(sum(&data, "counts"), profile.total().samples);
    let nodes = |tree: &Value| tree["parents"].as_array().expect("array").len();
    let tree = flamegraph(&store, &[]);
    assert_eq!(nodes(&data), nodes(&tree["tree"]));
    assert_eq!(tree["total_ns"], profile.total().cpu_ns);
    let warnings = &data["statistics"][0]["warnings"];
    assert!(warnings.as_array().is_some_and(|warnings| warnings.len() >= 2), "{warnings}");
}

#[test]
fn page_of_a_selection_has_its_samples_only() {
    let store = support::realistic::shop(false).recording();
    for selection in
        [[("thread", "http-nio")], [("thread_kind", "compiler")], [("frame", "java.util")], [("kind", "c2")]]
    {
        let data = data(&page(&store, &selection));
        let unit_ns = data["unit_ns"].as_u64().expect("a unit");
        let expected = flamegraph(&store, &selection)["total_ns"].as_u64().expect("a total");
        assert_eq!(sum(&data, "units") * unit_ns, expected, "{selection:?}");
        assert!(expected > 0 && expected < flamegraph(&store, &[])["total_ns"].as_u64().expect("a total"));
        assert!(data["statistics"][0]["warnings"].to_string().contains("a part of the session"));
    }
}

#[test]
fn names_cannot_become_markup() {
    let mut stream = Stream::new();
    stream.thread(1, "</script><img onerror=alert(1)>", ThreadKind::Java);
    let frame = stream.frame(FrameKind::Native, "std::vector<int>::push & <!-- </script><b>");
    let stack = stream.stack(&[frame], "<stop>");
    stream.sample(1, stack, 1);
    let mut messages = stream.messages().to_vec();
    let Some(Body::Hello(hello)) = &mut messages[0].body else { panic!("hello comes first") };
    hello.command = "<title>&\"{{data}}".into();
    let page = page(&recording_of(&messages), &[]);
    keep("hostile.html", &page);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(page.contains("<title>&lt;title&gt;&amp;&quot;{{data}}</title>"));
    assert!(!page.contains("<img") && !page.contains("<!--"));
    let data = data(&page);
    let names = data["names"].as_array().expect("names");
    assert!(names.contains(&"std::vector<int>::push & <!-- </script><b>".into()));
}

#[test]
fn large_profiles_stay_small() {
    let store = recording(&mut support::realistic::large(100_000));
    let page = page(&store, &[]);
    keep("large.html", &page);
    let nodes = data(&page)["parents"].as_array().expect("array").len();
    assert!(nodes >= 100_000, "{nodes} nodes");
    assert!(page.len() < 20 * nodes, "{} bytes for {nodes} nodes", page.len());
}
