//! The page on a phone: the root of the graph in view, and every process within reach.

use crate::page::browser::Page;
use crate::page::pages::{assert_quiet, clean, settle};
use crate::page::standalone;

/// Returns whether the box of the root can be seen without scrolling.
fn root_is_in_view(page: &Page) -> bool {
    page.holds(
        "(() => { const y = graph.canvas.getBoundingClientRect().top + graph.top(0); return y >= 0 && y + ROW <= innerHeight; })()",
    )
}

#[test]
fn the_root_is_in_view_on_a_narrow_screen() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = standalone::page_of("h2-25");
    let page = browser.page(420, 800);
    page.open(&format!("file://{}", path.display()));
    settle(&page);
    assert!(page.holds("document.documentElement.scrollWidth <= 420"));
    assert!(
        root_is_in_view(&page),
        "{}",
        page.text("JSON.stringify([graph.icicle, graph.canvas.getBoundingClientRect()])")
    );
    page.picture("narrow-flame");
    // A person may still turn it around, and a link keeps that.
    page.click_on("document.querySelector('#content .segments button')");
    page.until("state.icicle === '0' && !graph.icicle");
    // The times above the chart are those of its begin, middle and end.
    page.click_on(
        "[...document.querySelectorAll('#tabs button')].find((b) => b.textContent === 'Flame chart')",
    );
    page.until("state.tab === 'chart'");
    settle(&page);
    let times = page.text("[...document.querySelectorAll('.chart-axis span')].filter((time) => time.offsetWidth > 0).map((time) => time.textContent).join(' ')");
    let expected = page.text("[0, 0.5, 1].map((part) => clock(graph.view.fromNs + graph.view.root.from + part * (graph.view.root.to - graph.view.root.from)).slice(11)).join(' ')");
    assert_eq!(times, expected);
    page.picture("narrow-chart");
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

#[test]
fn processes_are_reached_on_a_narrow_screen() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = browser.page(420, 800);
    page.open(&format!("{}/", served.origin));
    settle(&page);
    assert!(page.holds("getComputedStyle($('rail')).display === 'none'"));
    page.click_on("$('menu')");
    page.until("$('rail').getBoundingClientRect().height > 100");
    page.picture("narrow-processes");
    let name = page.text("document.querySelectorAll('#processes li')[1].innerText.split('\\n')[0]");
    page.click_on("document.querySelectorAll('#processes li')[1]");
    page.until("state.process");
    settle(&page);
    assert!(page.holds("getComputedStyle($('rail')).display === 'none'"));
    assert_eq!(page.text("nameOf(shownProcess())"), name);
    assert!(page.holds("document.documentElement.scrollWidth <= 420"));
    assert_quiet(&page, &served);
}
