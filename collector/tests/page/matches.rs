//! The way from a hot method to its boxes, from one box to the next, and from a box to the sandwich.

use crate::page::browser::Page;
use crate::page::pages::{go, settle};
use crate::page::standalone::{open, page_of};

/// The number of boxes and the shown one, as `3 of 17`.
const COUNT: &str = "document.querySelector('#content .count').textContent";
/// JavaScript: true if the box at the cursor is visible and at least 40 pixels wide.
const IN_SIGHT: &str = "graph.top(graph.cursor.depth) >= 0 && graph.top(graph.cursor.depth) < graph.height \
                        && graph.entryOf(graph.cursor).width >= 40";

/// The position of a hot method that has several boxes.
fn hot_method(page: &Page) -> usize {
    page.number(
        "(() => { const rows = [...document.querySelectorAll('aside tbody tr')].map((row) => row.dataset.method); \
         return rows.findIndex((name) => { const matches = new Matches(graph, () => {}); const before = graph.matches; \
         graph.matches = graph.view.model.marks(exactly(name)); const found = matches.find().length; \
         graph.matches = before; return found >= 3 && found < 1000; }); })()",
    ) as usize
}

#[test]
fn a_hot_method_leads_to_its_boxes_one_after_the_other() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    page.until("document.querySelectorAll('aside tbody tr').length > 50");
    let row = format!("document.querySelectorAll('aside tbody tr')[{}]", hot_method(&page));
    let method = page.text(&format!("{row}.dataset.method"));
    page.click_on(&row);
    page.until(&format!("{COUNT}.startsWith('1 of ')"));
    let count: usize = page.text(COUNT)["1 of ".len()..].parse().expect("a number");
    assert!(count >= 3, "{count} boxes");
    assert_eq!(page.text("graph.cursor.label"), method);
    assert!(page.holds(IN_SIGHT));
    assert!(page.holds(&format!("{row}.classList.contains('chosen')")));
    // All boxes of this method are marked, and no others.
    assert!(page.holds(&format!(
        "graph.view.model.names.every((name, index) => Boolean(graph.matches[index]) === (name === {method:?}))"
    )));
    page.picture("hot-method");
    // The next ones are lighter, by button and by key; behind the last follows the first.
    let mut heaviest = page.number("graph.cursor.total");
    for number in 2..=count {
        if number % 2 == 0 {
            page.click_on("document.querySelectorAll('#content .step')[1]");
        } else {
            page.key("n");
        }
        page.until(&format!("{COUNT} === '{number} of {count}'"));
        let here = page.number("graph.cursor.total");
        assert!(here <= heaviest && page.holds(IN_SIGHT), "{number}: {here} after {heaviest}");
        assert_eq!(page.text("graph.cursor.label"), method);
        heaviest = here;
    }
    page.key("n");
    page.until(&format!("{COUNT} === '1 of {count}'"));
    page.click_on("document.querySelectorAll('#content .step')[0]");
    page.until(&format!("{COUNT} === '{count} of {count}'"));
    page.key("N");
    page.until(&format!("{COUNT} === '{} of {count}'", count - 1));
    // A link shows the same box.
    let at = "JSON.stringify([graph.cursor.label, graph.cursor.total, graph.cursor.depth])";
    let (first, address) = (page.text(at), page.text("location.href"));
    let other = browser.page(1400, 900);
    other.open(&address);
    settle(&other);
    assert_eq!(other.text(at), first);
    page.to_front();
    // A second click on the method clears the search.
    page.click_on(&row);
    page.until("!state.search && !state.match && graph.matches === null");
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

#[test]
fn a_box_leads_to_the_sandwich_and_back() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    let row = format!("document.querySelectorAll('aside tbody tr')[{}]", hot_method(&page));
    page.click_on(&row);
    page.until(&format!("{COUNT}.startsWith('1 of ')"));
    let method = page.text("graph.cursor.label");
    page.click_on(
        "[...document.querySelectorAll('.where button')].find((b) => b.textContent === 'Sandwich')",
    );
    page.until("state.tab === 'method'");
    settle(&page);
    assert_eq!(page.text("document.querySelector('#content .bar input').value"), method);
    assert!(page.holds("graphs.every((part) => part.view.root.total > 0)"));
    // Both halves fill the height below their bar, and the higher half belongs to the higher stacks.
    page.until("Math.abs($('content').getBoundingClientRect().bottom - document.querySelectorAll('.halves section.graph')[1].getBoundingClientRect().bottom) <= 2");
    page.until("graphs.every((part) => part.height >= 5 * ROW)");
    let heights = page.value("graphs.map((part) => [part.rows.length, part.height])");
    let half = |index: usize| (heights[index][0].as_f64(), heights[index][1].as_f64());
    assert_eq!(half(0).0 > half(1).0, half(0).1 > half(1).1, "{heights}");
    page.picture("sandwich");
    // A caller leads on to its own sandwich.
    let place = page.value(
        "(() => { const [part] = graphs; const r = part.canvas.getBoundingClientRect(); const entry = part.rows[1][0]; \
         return [r.left + entry.x + entry.width / 2, r.top + part.top(1) + 9, entry.node.label]; })()",
    );
    page.click(place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    page.until("!document.querySelector('.halves .where button').hidden");
    page.click_on("document.querySelector('.halves .where button')");
    page.until(&format!("state.method === {}", place[2]));
    settle(&page);
    page.click_on(
        "[...document.querySelectorAll('.bar button')].find((b) => b.textContent === 'In the flame graph')",
    );
    page.until("state.tab === 'flame'");
    settle(&page);
    page.until(&format!("{COUNT}.startsWith('1 of ')"));
    assert_eq!(page.text("graph.cursor.label"), place[2]);
    // By key as well.
    page.key("m");
    page.until(&format!("state.tab === 'method' && state.method === {}", place[2]));
    settle(&page);
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

#[test]
fn enter_in_the_search_goes_from_match_to_match() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    page.key("/");
    page.write("value.Value");
    page.until(&format!("{COUNT}.endsWith('boxes')"));
    page.key("Enter");
    page.until(&format!("{COUNT}.startsWith('1 of ')"));
    page.key("Enter");
    page.until(&format!("{COUNT}.startsWith('2 of ')"));
    assert!(page.holds("graph.cursor.label.includes('value.Value')"));
    // Turned around, the matches are those of the callers.
    page.click_on("$('reverse')");
    page.until("graph.view instanceof CallerView");
    page.click_on("document.querySelectorAll('#content .step')[1]");
    page.until(&format!("{COUNT}.startsWith('1 of ')"));
    assert!(page.holds("graph.cursor.label.includes('value.Value')"));
    // A text without matches has no way to go.
    go(&page, "#tab=flame&search=nosuchname");
    assert_eq!(page.text(COUNT), "0 boxes");
    assert!(page.holds("[...document.querySelectorAll('#content .step')].every((step) => step.disabled)"));
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}
