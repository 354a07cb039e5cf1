//! The flame graph page: self-contained, complete, and safe against what it shows.
//!
//! The pages are left in Cargo's directory for test output, to be looked at in a browser.

mod support;

use std::path::{Path, PathBuf};

use collector::export::flamegraph_html;
use collector::profile::Profile;
use collector::query::flamegraph::CallTree;
use proto::v1::{FrameKind, ThreadKind};
use support::Stream;

fn page(profile: &Profile, title: &str) -> String {
    let mut bytes = Vec::new();
    flamegraph_html::write(profile, title, &mut bytes).expect("writing to memory");
    String::from_utf8(bytes).expect("a page is text")
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
fn page_needs_nothing_else() {
    let page = page(&support::realistic::shop(false).profile(), "shop");
    keep("shop.html", &page);
    for loading in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "http://", "https://"] {
        assert!(!page.contains(loading), "the page contains {loading}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("{{"), "a placeholder is left");
}

#[test]
fn page_carries_every_nanosecond() {
    let profile = support::realistic::shop(true).profile();
    let page = page(&profile, "shop in trouble");
    keep("shop-trouble.html", &page);
    let data = data(&page);
    let sum: u64 = data["sample_ns"].as_array().expect("array").iter().filter_map(|ns| ns.as_u64()).sum();
    assert_eq!(sum, profile.total().cpu_ns);
    let nodes = data["parents"].as_array().expect("array").len() + 1;
    let tree = CallTree::new(&profile);
    assert_eq!(nodes, tree.len());
    assert_eq!(tree.totals_ns()[0], profile.total().cpu_ns);
    assert!(data["warnings"].as_array().is_some_and(|warnings| warnings.len() >= 2), "{}", data["warnings"]);
}

#[test]
fn names_cannot_become_markup() {
    let mut stream = Stream::new();
    stream.thread(1, "</script><img onerror=alert(1)>", ThreadKind::Java);
    let frame = stream.frame(FrameKind::Native, "std::vector<int>::push & <!-- </script><b>");
    let stack = stream.stack(&[frame], "<stop>");
    stream.sample(1, stack, 1);
    let page = page(&stream.profile(), "<title>&\"{{data}}");
    keep("hostile.html", &page);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(page.contains("<title>&lt;title&gt;&amp;&quot;{{data}}</title>"));
    assert!(!page.contains("<img") && !page.contains("<!--"));
    let data = data(&page);
    assert_eq!(data["names"][1], "std::vector<int>::push & <!-- </script><b>");
}

#[test]
fn large_profiles_stay_small() {
    let profile = support::realistic::large(100_000).profile();
    let page = page(&profile, "large");
    keep("large.html", &page);
    let nodes = CallTree::new(&profile).len();
    assert!(nodes >= 100_000, "{nodes} nodes");
    assert!(page.len() < 20 * nodes, "{} bytes for {nodes} nodes", page.len());
}
