//! The page loads new samples every ten seconds: what a person has in sight and at hand stays where it is.

use crate::page::browser::Page;
use crate::page::pages::{assert_quiet, clean, content, go, open, process, settle};

/// Loads new samples as the page does by itself.
fn reload(page: &Page) {
    page.value("load(true).then(() => undefined)");
    settle(page);
}

/// The middle of the element `element` of the page.
fn middle(page: &Page, element: &str) -> (f64, f64) {
    let place = page.value(&format!(
        "(() => {{ const r = {element}.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; }})()"
    ));
    (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"))
}

#[test]
fn a_graph_keeps_its_place_and_its_cursor() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    go(&page, &format!("#process={}", process(&page, "h2", 25)));
    for _ in 0..6 {
        page.key("ArrowUp");
    }
    page.until("graph.cursor?.depth === 6");
    let (x, y) = middle(&page, "graph.scroll");
    page.to_front();
    page.wheel(x, y, -200.0);
    page.until("graph.fromRoot > 100");
    let place =
        "JSON.stringify([graph.cursor?.label, graph.cursor?.depth, graph.fromRoot, graph.scroll.scrollTop])";
    let before = page.text(place);
    reload(&page);
    assert_eq!(page.text(place), before);
    assert_quiet(&page, &served);
}

#[test]
fn a_table_keeps_its_place_and_its_focus() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    go(&page, &format!("#process={}&tab=methods", process(&page, "h2", 25)));
    for _ in 0..40 {
        page.key("ArrowDown");
    }
    let place = "JSON.stringify([document.activeElement.closest('#content tr')?.innerText, document.querySelector('.pane').scrollTop])";
    page.until("document.querySelector('.pane').scrollTop > 100");
    let before = page.text(place);
    reload(&page);
    assert_eq!(page.text(place), before);
    // A row of the list of processes as well.
    page.value("document.querySelectorAll('#processes li')[2].focus(); undefined");
    let focused = "document.activeElement.closest('#processes li')?.innerText || ''";
    let before = page.text(focused);
    reload(&page);
    assert_eq!(page.text(focused), before);
    assert!(!before.is_empty() && !content(&page).is_empty());
    assert_quiet(&page, &served);
}
