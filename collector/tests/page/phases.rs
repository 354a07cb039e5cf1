//! The JIT compiler by phase, and its functions on request.

use crate::page::browser::Page;
use crate::page::standalone::{open, page_of};

/// The boxes of a kind of compiler threads, as [label, CPU time].
fn below_c2(page: &Page) -> Vec<(String, f64)> {
    let boxes = page.value(
        "(() => { const [jit] = graph.view.children(graph.view.root).filter((box) => box.label === COMPILERS); \
         const [c2] = graph.view.children(jit).filter((box) => box.label.startsWith('C2')); \
         return [[c2.label, c2.total], ...graph.view.children(c2).map((box) => [box.label, box.total])]; })()",
    );
    let boxes = boxes.as_array().expect("boxes").iter();
    boxes.map(|one| (one[0].as_str().expect("a label").to_owned(), one[1].as_f64().expect("time"))).collect()
}

/// The place of the widest box of a phase on the screen.
fn place_of(page: &Page, label: &str) -> (f64, f64) {
    let place = page.value(&format!(
        "(() => {{ const r = graph.canvas.getBoundingClientRect(); \
         const entry = graph.rows.flat().filter((one) => one.node.label === {label:?}).sort((a, b) => b.width - a.width)[0]; \
         return [r.left + entry.x + entry.width / 2, r.top + graph.top(entry.node.depth) + 9]; }})()"
    ));
    (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"))
}

#[test]
fn compilers_are_shown_by_phase_until_a_phase_is_opened() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    let boxes = below_c2(&page);
    let (whole, phases) = (boxes[0].1, &boxes[1..]);
    let sum: f64 = phases.iter().map(|(_, ns)| ns).sum();
    // Nearly all of the compiler's time belongs to a phase, and none of it to two.
    assert!(sum > whole * 0.9 && sum <= whole * 1.000_001, "{sum} of {whole}: {phases:?}");
    assert!(phases.iter().any(|(label, _)| label == "Allocating registers"), "{phases:?}");
    assert!(phases.iter().all(|(label, _)| !label.contains("::") && !label.starts_with('[')), "{phases:?}");
    page.picture("phases");
    // A click opens a phase: its functions, of all compiled methods together.
    let (x, y) = place_of(&page, "Allocating registers");
    page.click(x, y);
    page.until("graph.zoom.label === 'Allocating registers' && graph.view.children(graph.zoom).length > 0");
    assert!(
        page.holds("graph.view.children(graph.zoom).some((box) => box.label.startsWith('PhaseChaitin::'))")
    );
    assert!(page.number("graph.rows.length") > page.number("graph.zoom.depth + 1"));
    page.picture("phase-open");
    // A link shows the same.
    let (state, address) =
        ("JSON.stringify([graph.zoom.label, graph.rows.length])", page.text("location.href"));
    let first = page.text(state);
    let other = open(&browser, &path, "light");
    other.open(&address);
    other.until(&format!("graph && {state} === {first:?}"));
    page.to_front();
    // Unfolded, there is a tower for each compiled method.
    page.click_on("$('roots')");
    page.until("state.roots === '1'");
    assert!(below_c2(&page)[1..].iter().any(|(label, _)| label.starts_with("[compiling")));
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

#[test]
fn a_search_opens_the_phases_that_have_matches() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    page.key("/");
    page.write("PhaseChaitin::");
    page.until("document.querySelector('#content .count')?.textContent.includes('box')");
    page.key("Enter");
    page.until("graph.cursor && graph.cursor.name >= 0 && graph.view.model.names[graph.cursor.name].startsWith('PhaseChaitin::')");
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}
