//! A profile of 100,000 nodes: drawn within a second, and smooth under the hands. A file of 40,000 different stacks of
//! 115 frames: no view of it takes long without a sign of progress.
//!
//! What is drawn is counted in every run. Times depend on what else the machine does: they are printed, and held
//! against their limits with `TICKWALK_TIMED=1` (`design/profile.md`).

use profile::api::question::answer;
use proto::v1::{FrameKind, ThreadKind};
use serde_json::Value;

use crate::page::browser::Page;
use crate::page::served::Served;
use crate::page::standalone::page_of_messages;
use crate::recorded::{grown, keep, recorded};
use crate::support::{INTERVAL_NS, Stream};

const NODES: usize = 100_000;

/// Frames of a deep stack, those that all have in common, and those after them that make each different.
const DEPTH: usize = 115;
const COMMON: usize = 80;
const DISTINCT: usize = 16;
/// Different methods of deep stacks.
const METHODS: usize = 3_000;

fn ask(served: &Served, question: &str) -> Value {
    let pairs = [("max_nodes".to_owned(), "200000".to_owned())];
    let answer = answer(&*served.store, question, &pairs, u64::MAX / 2).expect("an answer");
    serde_json::from_slice(&answer.bytes).expect("JSON")
}

fn large() -> Served {
    let original =
        Served::new(|store, now_ns| keep(store, recorded("h2-25"), now_ns - 200_000_000_000).expect("kept"));
    let mut stream = grown(&ask(&original, "flamegraph"), NODES);
    Served::new(|store, now_ns| {
        keep(store, stream.messages().to_vec(), now_ns - 600_000_000_000).expect("kept");
    })
}

/// Median and largest time of 31 times an action in the page, in milliseconds, with what it drew read back, so that
/// nothing of it is put off. The best of the rounds, for what else the machine does only adds.
fn time(page: &Page, action: &str, rounds: usize) -> (f64, f64) {
    let round = format!(
        "(() => {{ const once = (turn) => {{ const begin = performance.now(); {action}; \
         graph.paper.getImageData(0, 0, 1, 1); return performance.now() - begin; }}; \
         const times = Array.from({{ length: 31 }}, (_, turn) => once(turn)).sort((a, b) => a - b); \
         return [times[15], times[30]]; }})()"
    );
    let rounds = (0..rounds).map(|_| {
        let times = page.value(&round);
        (times[0].as_f64().expect("median"), times[1].as_f64().expect("largest"))
    });
    rounds.min_by(|a, b| a.0.total_cmp(&b.0)).expect("a round")
}

#[test]
fn a_hundred_thousand_nodes_are_smooth() {
    let Some(browser) = crate::page::browser() else { return };
    let served = large();
    let answer = ask(&served, "flamegraph");
    let nodes = answer["tree"]["parents"].as_array().expect("column").len();
    assert!(nodes >= NODES, "{nodes}");
    let page = browser.page(1600, 1000);
    page.prefer("light");
    page.open(&format!("{}/", served.origin));
    page.until("performance.getEntriesByName('shown').length > 0");
    let sent = page.number("graph.view.model.count");
    assert!(sent >= NODES as f64, "{sent} nodes in the page");
    let painted = page.number("performance.getEntriesByName('first-contentful-paint')[0].startTime");
    let shown = page.number("performance.getEntriesByName('shown')[0].startTime");
    let bytes = page.number(
        "performance.getEntriesByType('resource').find((entry) => entry.name.includes('/flamegraph'))?.transferSize",
    );
    page.picture("large");
    println!("{sent} nodes: first paint {painted:.0} ms, graph drawn {shown:.0} ms, {bytes} bytes sent");
    let is_timed = std::env::var_os("TICKWALK_TIMED").is_some_and(|value| value == "1");
    assert!(!is_timed || painted < 1000.0 && shown < 1000.0, "first paint {painted} ms, graph {shown} ms");
    // However many nodes there are, no more boxes than pixels are laid out.
    let most = page.number("graph.width * graph.ratio");
    let widest = "Math.max(...graph.rows.map((row) => row.length))";
    assert!(page.number(widest) <= most);
    page.value("const middle = boxAlong(graph.view, pathTo(graph.rows[20].at(0).node)); undefined");
    for (what, action, limit) in [
        ("follow the mouse", "graph.hover = graph.rows[turn].at(0).node; graph.draw()", 16.0),
        ("scroll", "graph.scroll.scrollTop = turn * 7; graph.draw()", 16.0),
        ("zoom in and out", "graph.zoomTo(turn % 2 ? graph.view.root : middle)", 32.0),
        (
            "search",
            "field.value = ['get', 'next', 'Value'][turn % 3]; field.dispatchEvent(new Event('input'))",
            48.0,
        ),
        ("turn around", "document.getElementById('reverse').click()", 160.0),
    ] {
        page.value("globalThis.field = $('search'); undefined");
        let (median, largest) = time(&page, action, if is_timed { 3 } else { 1 });
        println!("{what}: median {median:.1} ms, largest {largest:.1} ms");
        assert!(!is_timed || median < limit, "{what}: median {median} ms, at most {limit}");
        assert!(page.number(widest) <= most, "{what}");
    }
    let complaints = page.complaints(&served.origin);
    // Reading back, and hundreds of changes of the address in a second, are what the measurement does.
    let is_expected =
        |complaint: &String| ["willReadFrequently", "Throttling"].iter().any(|word| complaint.contains(word));
    assert!(complaints.iter().all(is_expected), "{complaints:?}");
}

/// Different stacks of 115 frames below one chain of callers.
fn deep(stacks: usize) -> Stream {
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let name = |n: usize| format!("org/example/part{}/Service{}.method{n}", n % 40, n % 300);
    let frames: Vec<u32> = (0..METHODS).map(|n| stream.frame(FrameKind::C2, &name(n))).collect();
    for stack in 0..stacks {
        let method = |depth: usize| match depth {
            0..COMMON => depth,
            _ if depth < COMMON + DISTINCT => depth * 31 + ((stack >> (depth - COMMON)) & 1) * 977,
            _ => depth * 31 + stack % depth * 7,
        };
        let path: Vec<u32> = (0..DEPTH).rev().map(|depth| frames[method(depth) % METHODS]).collect();
        let stack = stream.stack(&path, "end_of_stack");
        stream.sample(1, stack, INTERVAL_NS);
    }
    stream.goodbye();
    stream
}

/// How long an action takes from its click to the moment at which `done` holds, in milliseconds.
fn wait_for(page: &Page, button: &str, done: &str) -> f64 {
    page.value("globalThis.clicked = 0; addEventListener('click', () => { clicked = performance.now(); }, { capture: true, once: true }); undefined");
    page.click_on(button);
    page.until(&format!("clicked > 0 && ({done}) && !document.querySelector('#content.busy')"));
    page.number("performance.now() - clicked")
}

#[test]
fn forty_thousand_deep_stacks_are_shown_and_searched() {
    let Some(browser) = crate::page::browser() else { return };
    let is_timed = std::env::var_os("TICKWALK_TIMED").is_some_and(|value| value == "1");
    let stacks = if is_timed { 40_000 } else { 4_000 };
    let (_, path) = page_of_messages("deep", deep(stacks).messages());
    let page = browser.page(1400, 900);
    page.open(&format!("file://{}", path.display()));
    page.until("performance.getEntriesByName('shown').length > 0");
    let nodes = page.number("source.model.count");
    let shown = page.number("performance.getEntriesByName('shown')[0].startTime");
    println!("{stacks} stacks, {nodes} nodes: graph drawn {shown:.0} ms");
    let tab = |title: &str| {
        format!("[...document.querySelectorAll('#tabs button')].find((b) => b.textContent === {title:?})")
    };
    let sandwich = wait_for(&page, &tab("Sandwich"), "state.tab === 'method' && graphs.length === 2");
    // The heaviest nodes of each half are there, and none of the method's time is missing.
    assert!(page.holds("graphs.every((part) => part.view.model.count <= 20000 && part.view.root.total > 0)"));
    let method = page.text("document.querySelector('#content .bar input').value");
    let known = page.value(&format!("ask('methods', [['limit', '10000']]).then((answer) => answer.methods.find((row) => row.name === {method:?}).total_ns)"));
    assert_eq!(page.value("graphs[1].view.root.total"), known);
    let back = wait_for(&page, &tab("Flame graph"), "state.tab === 'flame' && graph?.view");
    let search = wait_for(
        &page,
        "document.querySelector('aside tbody tr')",
        "document.querySelector('#content .count')?.textContent.startsWith('1 of ')",
    );
    println!("sandwich {sandwich:.0} ms, flame graph {back:.0} ms, a hot method's boxes {search:.0} ms");
    // A page that may be slow draws its sign of progress before it works.
    assert_eq!(page.holds("source.isLarge"), nodes >= 300_000.0);
    assert!(
        !is_timed || shown < 1500.0 && sandwich < 1000.0 && search < 500.0,
        "{shown} {sandwich} {search}"
    );
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}
