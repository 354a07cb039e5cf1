//! A comparison as the page explains it: two times by dragging, two threads by their names.

use crate::page::browser::Page;
use crate::page::pages::settle;
use crate::page::standalone::{open, page_of};

/// A place on the timeline, from the first column (0) to the end of the last one (1).
fn on_timeline(page: &Page, share: f64) -> (f64, f64) {
    let place = page.value(
        "(() => { const r = $('timeline').getBoundingClientRect(); return [r.left + timeline.names, r.top + 25, r.width - timeline.names - 16]; })()",
    );
    let at = |index: usize| place[index].as_f64().expect("a number");
    (at(0) + at(2) * share, at(1))
}

/// Clicks the name of a thread beside the timeline.
fn click_thread(page: &Page, name: &str) {
    let place = page.value(&format!(
        "(() => {{ const r = $('timeline').getBoundingClientRect(); const row = timeline.data.rows.findIndex((row) => row.thread === {name:?}); \
         $('timeline-scroll').scrollTop = row * TIMELINE_ROW - 40; const to = $('timeline').getBoundingClientRect(); \
         return [to.left + 30, to.top + TIMELINE_AXIS + (row + 0.5) * TIMELINE_ROW, row]; }})()"
    ));
    assert!(place[2].as_f64().is_some_and(|row| row >= 0.0), "{name} is not in the timeline");
    page.click(place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
}

fn compare_tab(page: &Page) {
    page.click_on("[...document.querySelectorAll('#tabs button')].find((b) => b.textContent === 'Compare')");
    page.until("state.tab === 'compare'");
    settle(page);
}

fn press(page: &Page, title: &str) {
    page.click_on(&format!(
        "[...document.querySelectorAll('#content button')].find((b) => b.textContent === {title:?})"
    ));
}

#[test]
fn two_times_are_compared_by_dragging_over_one_after_the_other() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    compare_tab(&page);
    page.picture("compare-empty");
    page.drag(on_timeline(&page, 0.05), on_timeline(&page, 0.4));
    page.until("state['before.from'] && !state.from");
    settle(&page);
    page.drag(on_timeline(&page, 0.5), on_timeline(&page, 0.9));
    page.until("state.from");
    settle(&page);
    assert!(page.number("Number(state.from) - Number(state['before.to'])") >= 0.0);
    assert!(page.holds("document.querySelectorAll('#content tbody tr').length > 10"));
    // Swapped, the later time is the one before; cleared, the page explains itself again.
    let before = page.text("state['before.from']");
    press(&page, "Swap");
    page.until(&format!("state.from === {before:?}"));
    settle(&page);
    press(&page, "Clear");
    page.until("!hasBaseline()");
    settle(&page);
    assert!(page.text("document.getElementById('content').innerText").contains("drag over the timeline"));
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

#[test]
fn two_threads_are_compared_by_their_names() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    compare_tab(&page);
    click_thread(&page, "main");
    page.until("state.thread === 'main'");
    settle(&page);
    // The other threads are still there to be chosen.
    assert!(page.number("timeline.data.rows.length") > 2.0);
    press(&page, "Make the selection the baseline");
    page.until("state['before.thread'] === 'main'");
    settle(&page);
    let other = page.text("timeline.data.rows.find((row) => row.thread.startsWith('C2')).thread");
    click_thread(&page, &other);
    page.until(&format!("state.thread === {other:?}"));
    settle(&page);
    let sides = page.text("document.querySelector('#content .sides').innerText");
    assert!(sides.contains("thread main") && sides.contains(&other), "{sides}");
    let change = page.text("document.querySelector('#content tbody tr').innerText");
    assert!(change.contains("points"), "{change}");
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}
