//! Every page over recordings of real JVMs: what it shows, its links, its keys, light and dark.

use serde_json::Value;

use crate::page::browser::Page;
use crate::page::served::Served;
use crate::recorded::{keep, recorded};

/// A process of the store that [`Served`] makes here, by its JDK.
const H2: u32 = 25;
const BEFORE: u32 = 17;
const LOSSY: u32 = 21;

const SECOND: u64 = 1_000_000_000;

/// H2, and the planted regression before and after it: accounts that close.
pub fn clean() -> Served {
    Served::new(|store, now_ns| {
        keep(store, recorded("planted-17"), now_ns - 900 * SECOND).expect("kept");
        keep(store, recorded("steady-25"), now_ns - 800 * SECOND).expect("kept");
        keep(store, recorded("planted-25"), now_ns - 600 * SECOND).expect("kept");
        keep(store, recorded("h2-25"), now_ns - 300 * SECOND).expect("kept");
    })
}

/// The same and a session with losses.
fn doubtful() -> Served {
    Served::new(|store, now_ns| {
        keep(store, recorded("planted-17"), now_ns - 900 * SECOND).expect("kept");
        keep(store, recorded("lossy-21"), now_ns - 300 * SECOND).expect("kept");
    })
}

pub fn open<'b>(browser: &'b crate::page::browser::Browser, served: &Served, hash: &str) -> Page<'b> {
    let page = browser.page(1400, 900);
    page.prefer("light");
    page.open(&format!("{}/{hash}", served.origin));
    settle(&page);
    page
}

/// Waits until the page shows the answer to its last request.
pub fn settle(page: &Page) {
    page.until("document.getElementById('content').dataset.page && !document.querySelector('#content.busy')");
}

pub fn go(page: &Page, hash: &str) {
    page.value(&format!("location.hash = {hash:?}; undefined"));
    page.until(&format!("stateHash === {hash:?}"));
    settle(page);
}

/// The id of the latest process whose service contains `service` and that ran on a JDK.
pub fn process(page: &Page, service: &str, jdk: u32) -> String {
    page.text(&format!(
        "processes.filter((p) => p.service.includes({service:?}) && p.jdk_major === {jdk}).sort((a, b) => b.last_ns - a.last_ns)[0].process"
    ))
}

pub fn content(page: &Page) -> String {
    page.text("document.getElementById('content').innerText")
}

pub fn assert_quiet(page: &Page, served: &Served) {
    assert_eq!(page.complaints(&served.origin), Vec::<String>::new());
}

#[test]
fn every_page_shows_the_recording_in_light_and_dark() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    let h2 = process(&page, "h2", H2);
    let before = process(&page, "Planted", BEFORE);
    let regression = format!("process={}&before.process={before}", process(&page, "Planted", H2));
    let pages = [
        ("flame", format!("#process={h2}&tab=flame"), "Interpreted"),
        ("icicle", format!("#process={h2}&tab=flame&icicle=1&callers=1&search=Thread"), "matched"),
        ("methods", format!("#process={h2}&tab=methods"), "Value"),
        ("threads", format!("#process={h2}&tab=threads&rows=thread"), "C2 CompilerThread"),
        ("callers", format!("#process={h2}&tab=method"), "Callees"),
        ("compare", format!("#{regression}&tab=compare"), "stageC"),
        ("statistics", format!("#process={h2}&tab=statistics"), "explained by samples"),
    ];
    for theme in ["light", "dark"] {
        page.prefer(theme);
        page.until(&format!("document.documentElement.dataset.theme === {theme:?}"));
        for (name, hash, expected) in &pages {
            go(&page, hash);
            let text = content(&page);
            assert!(text.contains(expected), "{name} lacks {expected}:\n{text}");
            assert!(page.holds("document.getElementById('warnings').hidden"), "{name} warns without reason");
            let background = page.text("getComputedStyle(document.body).backgroundColor");
            assert_eq!(background == "rgb(255, 255, 255)", theme == "light", "{name}: {background}");
            // Nothing hangs over the window's edge.
            assert!(page.number("document.documentElement.scrollWidth") <= 1400.0, "{name} is too wide");
            page.picture(&format!("{name}-{theme}"));
        }
    }
    assert_quiet(&page, &served);
}

#[test]
fn views_with_losses_show_a_warning() {
    let Some(browser) = crate::page::browser() else { return };
    let served = doubtful();
    let page = open(&browser, &served, "");
    assert!(page.holds("!document.getElementById('warnings').hidden"));
    let banner = page.text("document.getElementById('warnings').innerText");
    assert!(banner.contains("PlantedRegression") && banner.contains('%'), "{banner}");
    page.picture("losses");
    page.click_on("document.querySelector('#warnings button')");
    page.until("state.tab === 'statistics'");
    settle(&page);
    let lossy = process(&page, "Planted", LOSSY);
    go(&page, &format!("#process={lossy}&tab=statistics"));
    let text = content(&page);
    for expected in [
        "LOST, BY CAUSE",
        "queue full",
        "threads without a timer",
        "signal handler",
        "drain of all queues",
        "queues",
        "snapshot pool",
    ] {
        assert!(text.to_lowercase().contains(&expected.to_lowercase()), "no {expected}:\n{text}");
    }
    page.picture("statistics-losses");
    // The numbers are those of the API, and they add up.
    let account = page.value("ask('statistics', [['process', state.process]]).then((a) => a.processes[0])");
    let number = |name: &str| account[name].as_u64().expect("a number");
    let lost: u64 = account["lost_ns"].as_object().expect("causes").values().filter_map(Value::as_u64).sum();
    assert!(lost > SECOND / 2, "{account}");
    assert_eq!(number("kernel_ns"), number("sampled_ns") + lost + number("unfinished_ns"));
    assert!(account["timers"]["threads"].as_u64().is_some_and(|threads| threads > 0), "{account}");
    // The process that lost nothing has no banner.
    go(&page, &format!("#process={}&tab=flame", process(&page, "Planted", BEFORE)));
    assert!(page.holds("document.getElementById('warnings').hidden"));
    assert_quiet(&page, &served);
}

#[test]
fn links_show_the_same_view_again() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    let h2 = process(&page, "h2", H2);
    go(&page, &format!("#process={h2}"));
    // A person zooms, searches, turns the graph around, and passes the address on.
    page.value("graph.zoomTo(graph.view.children(graph.view.children(graph.view.root)[0])[0]); undefined");
    page.key("/");
    page.write("Thread");
    page.until("state.search === 'Thread'");
    page.key("Escape");
    page.key("/");
    page.write("Value");
    page.until("state.search === 'Value'");
    page.value("document.activeElement.blur(); undefined");
    page.key("i");
    page.until("state.icicle === '1'");
    let state = "JSON.stringify([graph.zoom.label, graph.zoom.depth, graph.zoom.total, graph.icicle, \
                 document.querySelector('#content .matched').innerText, graph.matches.reduce((a, b) => a + b, 0)])";
    let (first, address) = (page.text(state), page.text("location.href"));
    assert!(address.contains("zoom=") && address.contains("search=Value"), "{address}");
    let other = browser.page(1400, 900);
    other.open(&address);
    settle(&other);
    assert_eq!(other.text(state), first);
    // Back undoes the zoom.
    let zooms = page.text("graph.zoom.label");
    page.value("graph.zoomTo(graph.view.children(graph.zoom)[0]); undefined");
    page.until(&format!("graph.zoom.label !== {zooms:?}"));
    page.value("history.back(); undefined");
    page.until(&format!(
        "graph && graph.zoom && graph.zoom.label === {zooms:?} && !document.querySelector('#content.busy')"
    ));
    // A range chosen in the timeline, and the order of a table.
    go(&page, &format!("#process={h2}&tab=methods"));
    let place = page.value(
        "(() => { const r = $('timeline').getBoundingClientRect(); return [r.left, r.top, r.width]; })()",
    );
    let at = |index: usize| place[index].as_f64().expect("a number");
    let x = |share: f64| at(0) + 230.0 + (at(2) - 250.0) * share;
    page.to_front();
    page.drag((x(0.1), at(1) + 25.0), (x(0.9), at(1) + 25.0));
    page.until("state.from && state.to");
    settle(&page);
    page.click_on("document.querySelectorAll('#content th')[2]");
    page.until("state.sort === '2'");
    settle(&page);
    let rows = "document.querySelector('#content tbody').innerText + $('range').innerText";
    let (first, address) = (page.text(rows), page.text("location.href"));
    other.open(&address);
    settle(&other);
    assert_eq!(other.text(rows), first);
    assert_quiet(&page, &served);
    assert_quiet(&other, &served);
}

#[test]
fn flame_graphs_react_to_mouse_and_keys() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    go(&page, &format!("#process={}", process(&page, "h2", H2)));
    // A click zooms into the box under the mouse, hovering describes it.
    let place = "(() => { const r = graph.canvas.getBoundingClientRect(); const row = graph.rows[4][0]; \
                 return [r.left + row.x + row.width / 2, r.top + graph.top(4) + 9, row.node.label]; })()";
    let place = page.value(place);
    let (x, y) = (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    page.hover(x, y);
    page.until("!$('tip').hidden");
    let tip = page.text("$('tip').innerText");
    assert!(tip.contains(place[2].as_str().expect("label")) && tip.contains("Total"), "{tip}");
    page.picture("tip");
    page.click(x, y);
    page.until("graph.zoom.depth === 4");
    assert_eq!(page.text("graph.zoom.label"), place[2]);
    // The zoomed box is as wide as the graph, and the boxes below it are kept.
    assert!(
        page.holds("graph.rows[4][0].width === graph.width && graph.rows[0][0].node === graph.view.root")
    );
    page.key("Escape");
    page.until("graph.zoom === graph.view.root");
    // Arrows move, Enter zooms.
    for key in ["ArrowUp", "ArrowUp", "ArrowUp"] {
        page.key(key);
    }
    page.until("graph.cursor && graph.cursor.depth === 3");
    page.key("Enter");
    page.until("graph.zoom.depth === 3");
    page.key("Escape");
    // A search marks boxes and shows their CPU time.
    page.key("/");
    page.write("/^__clone/");
    page.until("graph.matches");
    let matched = page.text("document.querySelector('#content .matched').innerText");
    assert!(matched.contains('%'), "{matched}");
    let own = page.number("graph.view.model.names.filter((n, i) => graph.matches[i]).length");
    assert!(own >= 1.0);
    page.picture("search");
    page.key("Escape");
    page.until("graph.matches === null");
    page.key("/");
    page.write("/(/");
    page.until("document.querySelector('#content .matched').innerText.includes('not a valid')");
    page.key("Escape");
    // Turned around, every sample is still there, and its root row is methods by self time.
    let total = page.number("graph.view.root.total");
    page.key("r");
    page.until("graph.view instanceof CallerView");
    assert_eq!(page.number("graph.view.root.total"), total);
    let hottest = page.text("graph.view.children(graph.view.root)[0].label");
    let known = page.text("ask('methods', [...selection(), ['limit', '1']]).then((a) => a.methods[0].name)");
    assert_eq!(hottest, known);
    page.key("r");
    page.until("graph.view instanceof CalleeView");
    // Only one thread.
    go(&page, &format!("#process={}&thread=main", process(&page, "h2", H2)));
    assert!(page.number("graph.view.root.total") < total);
    assert_quiet(&page, &served);
}

#[test]
fn a_planted_regression_is_the_first_thing_compared() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    let (before, after) = (process(&page, "Planted", BEFORE), process(&page, "Planted", H2));
    // As a person does it: look at one, take it as the baseline, look at the other.
    go(&page, &format!("#process={before}"));
    page.key("b");
    page.until("state.tab === 'compare' && state['before.process']");
    settle(&page);
    page.click_on(&format!("[...document.querySelectorAll('#processes li')][1 + processes.findIndex((p) => p.process === {after:?})]"));
    page.until(&format!("state.process === {after:?}"));
    settle(&page);
    let first = page.text("document.querySelector('#content tbody tr').innerText");
    assert!(first.contains("PlantedRegression.stageC") && first.contains('+'), "{first}");
    page.picture("regression");
    // Although they ran on two JDKs, whose launchers differ: it takes more and is red, what takes less is blue.
    go(&page, &format!("#tab=compare&before.process={before}&process={after}"));
    let colours = page.value(
        "(() => { const found = {}; const see = (box) => { for (const child of graph.view.children(box)) { \
         const stage = /stage([AC])$/.exec(child.label)?.[1]; \
         if (stage && child.total > (found[stage]?.total || 0)) found[stage] = { total: child.total, colour: graph.colour(child) }; \
         see(child); } }; see(graph.view.root); return found; })()",
    );
    let colour = |stage: &str| colours[stage]["colour"].as_str().unwrap_or_default().to_owned();
    assert!(colour("C").starts_with("hsl(4 "), "{colours}");
    assert!(colour("A").starts_with("hsl(214 "), "{colours}");
    // Turned around, the methods themselves are compared, wherever they were called from.
    go(&page, &format!("#tab=compare&before.process={before}&process={after}&callers=1"));
    let first = page.value("(() => { const box = graph.view.children(graph.view.root)[0]; return [box.label, graph.colour(box), box.depth]; })()");
    assert_eq!(first[0], "PlantedRegression.stageC", "{first}");
    assert!(first[1].as_str().is_some_and(|colour| colour.starts_with("hsl(4 ")), "{first}");
    page.picture("compare-callers");
    page.key("/");
    page.write("stageC");
    page.until("graph.matches && graph.matches.some((hit) => hit)");
    page.picture("compare-search");
    assert_quiet(&page, &served);
}

#[test]
fn every_control_is_reachable_by_keyboard() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    for (key, tab) in [
        ("2", "methods"),
        ("3", "threads"),
        ("4", "method"),
        ("5", "compare"),
        ("6", "statistics"),
        ("1", "flame"),
    ] {
        page.key(key);
        page.until(&format!("state.tab === {tab:?}"));
        settle(&page);
    }
    page.key("t");
    page.until("document.documentElement.dataset.theme === 'dark'");
    page.key("?");
    page.until("document.getElementById('keys').open");
    page.picture("keys");
    page.key("Escape");
    page.until("!document.getElementById('keys').open");
    // Rows of a table are reached and followed.
    page.key("2");
    page.until("state.tab === 'methods'");
    settle(&page);
    page.key("ArrowDown");
    page.key("ArrowDown");
    page.until("document.activeElement.matches('#content tbody tr:nth-child(2)')");
    let name = page.text("document.activeElement.querySelector('.method').innerText.split('\\n')[0]");
    page.key("Enter");
    page.until("state.tab === 'method'");
    settle(&page);
    assert!(page.text("state.method").ends_with(&name), "{name}");
    page.key("1");
    page.until("state.tab === 'flame'");
    settle(&page);
    // A stretch of the timeline, and out of it again.
    page.key("h");
    page.until("document.activeElement.id === 'timeline'");
    page.key("ArrowRight");
    page.key("ArrowRight");
    page.shift_key("ArrowRight");
    page.shift_key("ArrowRight");
    let columns = "JSON.stringify(timeline.chosenColumns)";
    assert_eq!(page.text(columns), "[1,3]");
    let (from_s, width_s) =
        (page.number("timeline.data.from_ns / 1e9"), page.number("timeline.data.bucket_ns / 1e9"));
    page.key("Enter");
    page.until("state.from && state.to");
    settle(&page);
    let (from, to) = (page.number("Number(state.from)"), page.number("Number(state.to)"));
    let expected = (from_s + width_s, from_s + 4.0 * width_s);
    assert!(
        (from - expected.0).abs() < 0.01 && (to - expected.1).abs() < 0.01,
        "{from} to {to}, {expected:?}"
    );
    assert_eq!(page.text(columns), "null");
    page.key("Escape");
    page.until("!state.from && !state.to");
    settle(&page);
    // The search box keeps its focus while a person types and the page shows new samples.
    page.key("/");
    page.write("Val");
    page.value("load(true).then(() => undefined)");
    page.write("ue");
    page.until("state.search === 'Value'");
    assert_quiet(&page, &served);
}

#[test]
fn empty_and_failing_collectors_are_explained() {
    let Some(browser) = crate::page::browser() else { return };
    let served = Served::new(|_, _| {});
    let page = open(&browser, &served, "");
    assert!(content(&page).contains("-agentpath:"), "{}", content(&page));
    page.picture("empty");
    assert_quiet(&page, &served);
    let served = clean();
    let page = open(&browser, &served, "#frame=no.such.Method");
    for tab in ["flame", "methods", "threads", "method", "compare"] {
        go(&page, &format!("#frame=no.such.Method&tab={tab}&before.frame=no.such.Method"));
        let text = content(&page).to_lowercase();
        assert!(text.contains("no sample") || text.contains("nothing to compare"), "{tab}: {text}");
    }
    page.picture("nothing");
    assert_quiet(&page, &served);
    // An error of the API is shown as it is, one of the connection as such.
    go(&page, "#from=yesterday");
    assert!(content(&page).contains("from"), "{}", content(&page));
    go(&page, "#tab=methods");
    drop(served);
    page.value("load().then(() => undefined)");
    assert!(content(&page).contains("does not answer"), "{}", content(&page));
    page.picture("error");
}

/// A view that is left before its answers arrive does not keep the collector busy.
#[test]
fn a_load_cancels_the_requests_of_the_one_before() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    let asked = "const { signal } = source.requests; const answers = [ask(\"processes\", [])]; load();";
    let outcome = format!(
        "(async () => {{ {asked} await Promise.allSettled(answers); return `${{signal.aborted}}`; }})()"
    );
    page.value(&format!(
        "globalThis.cancelled = ''; {outcome}.then((text) => {{ cancelled = text; }}); undefined"
    ));
    page.until("cancelled === 'true'");
    settle(&page);
    assert_quiet(&page, &served);
}
