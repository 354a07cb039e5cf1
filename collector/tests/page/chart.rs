//! The flame chart: one thread in the order of time, and columns of the timeline below a second.

use crate::page::browser::Page;
use crate::page::pages::{assert_quiet, clean, process, settle};
use crate::page::standalone::{open, page_of};

/// Opens the flame chart by its tab.
fn chart_tab(page: &Page) {
    page.click_on(
        "[...document.querySelectorAll('#tabs button')].find((b) => b.textContent === 'Flame chart')",
    );
    page.until("state.tab === 'chart'");
    settle(page);
}

/// JavaScript: true if the boxes of each row are sorted by time and do not overlap.
const IN_ORDER: &str = "graph.rows.every((row) => row.every(({ node, x, width }, index) => \
                        index === 0 || row[index - 1].x + row[index - 1].width <= x + 1e-6 && row[index - 1].node.to <= node.from + 1))";

/// JavaScript: the box that the chart is zoomed into.
const ZOOM: &str = "JSON.stringify([graph.zoom.label, graph.zoom.depth, graph.zoom.from, graph.zoom.to])";

#[test]
fn a_thread_is_shown_in_the_order_of_time() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("planted-25");
    let page = open(&browser, &path, "light");
    chart_tab(&page);
    assert!(page.holds("source.data.bucket_ns < 1e9"), "{}", page.number("source.data.bucket_ns"));
    assert!(page.holds(IN_ORDER));
    // All samples of the busiest thread are there.
    let sampled = page.number("graph.view.sampledNs(graph.view.root)");
    let thread = page.value("ask('threads', [['limit', '1']]).then((answer) => answer.threads[0])");
    assert!((sampled - thread["cpu_ns"].as_f64().expect("time")).abs() < 1.0, "{sampled}: {thread}");
    page.picture("chart");
    // A box says when it was; a click zooms into its time.
    let place = page.value(
        "(() => { const r = graph.canvas.getBoundingClientRect(); const at = graph.rows[2].reduce((a, b) => (b.width > a.width ? b : a)); \
         return [r.left + at.x + at.width / 2, r.top + graph.top(2) + 9, at.node.label]; })()",
    );
    let (x, y) = (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    page.hover(x, y);
    page.until("!$('tip').hidden && / to .* of samples/s.test($('tip').innerText)");
    page.click(x, y);
    page.until(&format!("graph.zoom.label === {}", place[2]));
    assert_eq!(page.number("document.querySelectorAll('.chart-axis span').length"), 6.0);
    // The link shows the same box again, and Back leaves it.
    let (zoomed, address) = (page.text(ZOOM), page.text("location.href"));
    let other = browser.page(1400, 900);
    other.open(&address);
    settle(&other);
    assert_eq!(other.text(ZOOM), zoomed, "{address}");
    page.to_front();
    page.value("history.back(); undefined");
    page.until("graph?.view && graph.zoom === graph.view.root && !document.querySelector('#content.busy')");
    page.click(x, y);
    page.until(&format!("graph.zoom.label === {}", place[2]));
    page.key("Escape");
    page.until("graph.zoom === graph.view.root");
    // A search goes from match to match.
    page.key("/");
    page.write("stageC");
    page.key("Enter");
    page.until("document.querySelector('#content .count').textContent.startsWith('1 of ')");
    assert!(page.holds("graph.cursor.label.includes('stageC')"));
    page.key("Escape");
    // Another thread.
    let other = page.text("document.querySelectorAll('#chart-thread option')[1].textContent");
    page.value("$('chart-thread').focus(); undefined");
    page.key("ArrowDown");
    page.until("state.thread");
    settle(&page);
    assert!(other.starts_with(&page.text("graph.view.root.label")), "{other}");
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

#[test]
fn a_collector_shows_a_thread_in_the_order_of_time() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = browser.page(1400, 900);
    page.open(&format!("{}/", served.origin));
    settle(&page);
    let id = process(&page, "h2", 25);
    page.click_on(&format!("[...document.querySelectorAll('#processes li')][1 + processes.findIndex((p) => p.process === {id:?})]"));
    page.until(&format!("state.process === {id:?}"));
    settle(&page);
    chart_tab(&page);
    assert!(page.holds(IN_ORDER));
    assert!(page.holds("graph.view.spans.length > 100 && graph.view.gapNs < 1e9"));
    page.picture("chart-served");
    // New samples leave the zoom as it is.
    page.value("graph.zoomTo(graph.rows[2].reduce((a, b) => (b.width > a.width ? b : a)).node); undefined");
    let zoomed = page.text(ZOOM);
    page.value("load(true).then(() => undefined)");
    assert_eq!(page.text(ZOOM), zoomed);
    assert_quiet(&page, &served);
}

#[test]
fn columns_are_shorter_than_a_second_where_a_short_time_is_shown() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = browser.page(1400, 900);
    page.open(&format!("{}/", served.origin));
    settle(&page);
    let id = process(&page, "h2", 25);
    page.click_on(&format!("[...document.querySelectorAll('#processes li')][1 + processes.findIndex((p) => p.process === {id:?})]"));
    page.until(&format!("state.process === {id:?}"));
    settle(&page);
    let place = page.value(
        "(() => { const r = $('timeline').getBoundingClientRect(); return [r.left + timeline.names, r.top + 25, r.width - timeline.names - 16]; })()",
    );
    let at = |index: usize| place[index].as_f64().expect("a number");
    page.drag((at(0) + at(2) * 0.4, at(1)), (at(0) + at(2) * 0.5, at(1)));
    page.until("state.from && state.to");
    settle(&page);
    let (width, column) =
        (page.number("timeline.data.to_ns - timeline.data.from_ns"), page.number("timeline.data.bucket_ns"));
    assert!(column < 1e9 && width / column <= 200.0, "{width} in columns of {column}");
    assert!(page.text("$('range').innerText").contains("ms per column"));
    assert_quiet(&page, &served);
}
