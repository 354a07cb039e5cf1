//! The search, groups, lines with their source text, links, and the brushes of a comparison.

use serde_json::Value;

use crate::page::browser::Page;
use crate::page::pages::{assert_quiet, clean, content, go, open, process, settle};

/// Places on the timeline, from the first column (0) to the end of the last one (1).
fn on_timeline(page: &Page, share: f64) -> (f64, f64) {
    let place = page.value(
        "(() => { const r = $('timeline').getBoundingClientRect(); return [r.left + timeline.names, r.top + 25, r.width - timeline.names - 16]; })()",
    );
    let at = |index: usize| place[index].as_f64().expect("a number");
    (at(0) + at(2) * share, at(1))
}

#[test]
fn one_search_narrows_and_marks() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    let h2 = process(&page, "h2", 25);
    go(&page, &format!("#process={h2}"));
    let total = page.number("graph.view.root.total");
    // A word in front narrows the selection; the chip shows by what, and takes it back.
    page.key("/");
    page.write("thread:main");
    page.key("Enter");
    page.until("state.thread === 'main' && $('chip-thread')");
    settle(&page);
    assert!(page.number("graph.view.root.total") < total);
    assert!(page.holds("$('search').value === '' && !state.search"));
    page.click_on("$('chip-thread')");
    page.until("!state.thread");
    settle(&page);
    assert_eq!(page.number("graph.view.root.total"), total);
    // A kind that does not exist is answered with those that do.
    page.value("document.activeElement.blur(); undefined");
    page.key("/");
    page.write("threads:nonsense");
    page.key("Enter");
    page.until("!$('toast').hidden && $('toast').textContent.includes('compiler')");
    page.key("Escape");
    page.until("$('search').value === ''");
    // The frames that a plain text matches can be shown alone; the tables narrow by the same text.
    page.key("/");
    page.write("org.h2.value.Value");
    page.until("state.search === 'org.h2.value.Value' && graph.matches");
    let matched = page.number("graph.view.model.matched(graph.view.model.weights, graph.matches)");
    page.click_on("document.querySelector('#content .matched button')");
    page.until("state.frame === 'org.h2.value.Value' && !state.search");
    settle(&page);
    assert_eq!(page.number("graph.view.root.total"), matched);
    go(&page, &format!("#process={h2}&tab=methods&search=/Value.compare/"));
    let rows = page.number("document.querySelectorAll('#content tbody tr').length");
    assert!((1.0..50.0).contains(&rows), "{rows} rows");
    // Boxes stand by name, so that they stay where they are.
    go(&page, &format!("#process={h2}"));
    let labels = page.value("graph.rows[2].filter(({ width }) => width > 2).map(({ node }) => node).filter((n) => n.parent === graph.rows[2][0].node.parent).map(({ label }) => label)");
    let labels: Vec<&str> = labels.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(labels.len() > 1 && labels.is_sorted(), "{labels:?}");
    assert_quiet(&page, &served);
}

#[test]
fn processes_group_and_links_keep_their_time() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "#rows=label:service");
    let groups = "[...document.querySelectorAll('#processes .group b')].map((name) => name.textContent)";
    let names = page.value(groups);
    let names: Vec<&str> = names.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(names.len() >= 2 && names.is_sorted(), "{names:?}");
    assert_eq!(page.number("timeline.data.rows.length"), names.len() as f64);
    page.picture("groups");
    let all = page.number("graph.view.root.total");
    page.click_on("document.querySelectorAll('#processes .group')[0]");
    page.until("state.label");
    settle(&page);
    assert!(page.text("state.label").starts_with("service="));
    assert!(page.number("graph.view.root.total") < all);
    // A process id or a label that only one process has shows that process, with its account.
    let (id, pid) = (page.text("processes[0].process"), page.number("processes[0].pid"));
    for hash in [format!("#process={pid}"), format!("#label=pid={pid}")] {
        go(&page, &hash);
        assert_eq!(page.text("shownProcess().process"), id, "{hash}");
        assert!(page.holds("document.querySelector('#account').textContent.includes('explained')"), "{hash}");
    }
    // A copied link has fixed times, whether the address has relative ones, or no end.
    for hash in ["#from=-20m", "#tab=flame", "#tab=compare&before.from=-20m&before.to=-10m&from=-10m"] {
        go(&page, hash);
        let link = page.text("lastingLink()");
        let times = page.value(&format!(
            "[...new URLSearchParams(new URL({link:?}).hash.slice(1))].filter(([name]) => /from$|to$/.test(name)).map(([, value]) => value)"
        ));
        let times: Vec<&str> = times.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        let expected = if hash.contains("before") { 4 } else { 2 };
        assert_eq!(times.len(), expected, "{link}");
        assert!(times.iter().all(|time| time.parse::<f64>().is_ok()), "{link}");
        go(&page, &link[link.find('#').expect("a hash")..]);
        assert!(page.holds("graph.view.root.total > 0"), "{link}");
    }
    assert_quiet(&page, &served);
}

#[test]
fn brushes_choose_both_sides_of_a_comparison() {
    let Some(browser) = crate::page::browser() else { return };
    let served = clean();
    let page = open(&browser, &served, "");
    go(&page, &format!("#tab=compare&process={}", process(&page, "h2", 25)));
    for (button, first, last, parameter) in [(0, 0.05, 0.4, "before.from"), (1, 0.5, 0.95, "from")] {
        page.click_on(&format!("document.querySelectorAll('#side button')[{button}]"));
        page.drag(on_timeline(&page, first), on_timeline(&page, last));
        page.until(&format!("state['{parameter}']"));
        settle(&page);
        // The timeline still shows the whole session.
        let whole = page.number("(timeline.data.to_ns - timeline.data.from_ns) / 1e9");
        assert!(
            whole
                > page.number(
                    "Number(state.to || state['before.to']) - Number(state.from || state['before.from'])"
                )
        );
    }
    assert!(page.number("Number(state.from) - Number(state['before.to'])") > 0.0);
    page.picture("brushes");
    // Both times are of one day, which appears once at most.
    let said = page.text("document.querySelector('#content .side').innerText");
    assert!(said.matches(&page.text("clock(timeline.data.to_ns).slice(0, 10)")).count() <= 1, "{said}");
    page.resize(420, 900);
    page.until("document.documentElement.scrollWidth <= 420");
    // The lines of both sides are as wide as the screen.
    assert!(page.number("document.querySelector('#content .sides').clientWidth") > 300.0);
    page.picture("brushes-narrow");
    assert_quiet(&page, &served);
}

#[test]
fn a_method_has_its_lines_and_their_text() {
    let Some(browser) = crate::page::browser() else { return };
    let folder = tempfile::tempdir().expect("temporary folder");
    let served = clean().with_sources(folder.path());
    let page = open(&browser, &served, "");
    let h2 = process(&page, "h2", 25);
    go(&page, &format!("#process={h2}&thread_kind=java"));
    // A tooltip has class, signature and line.
    let place = page.value(
        "(() => { const r = graph.canvas.getBoundingClientRect(); for (let depth = 6; ; depth++) { \
         const row = graph.rows[depth].find(({ node, width }) => node.label.startsWith('org.h2') && width > 40); \
         if (row) return [r.left + row.x + row.width / 2, r.top + graph.top(depth) + 9, row.node.label]; } })()",
    );
    let label = place[2].as_str().expect("a name").to_owned();
    page.hover(place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    page.until("document.querySelector('#tip .details b')");
    let tip = page.text("document.querySelector('#tip .details').innerText");
    let class = label.rsplit_once('.').expect("a class").0;
    assert!(tip.contains(&format!("class {class}")) && tip.contains(".java:") && tip.contains('('), "{tip}");
    page.picture("tip-lines");
    // The sandwich has the lines, and their text if the collector has the file.
    go(&page, &format!("#process={h2}&tab=method&method={label}"));
    assert!(content(&page).contains("--source-path"), "{}", content(&page));
    let file = page.text(&format!("linesOf({label:?}).then((answer) => answer.method.file)"));
    let path = folder.path().join(&file);
    std::fs::create_dir_all(path.parent().expect("a package")).expect("folders");
    let text: String = (1..=5_000).map(|line| format!("line {line} of <b>the file</b>\n")).collect();
    std::fs::write(path, text).expect("a file");
    page.value("knownLines.of = ''; load().then(() => undefined)");
    settle(&page);
    let row = page.text("document.querySelector('.lines tr.hot').innerText");
    let line: u32 = page.number("Number(document.querySelector('.lines tr.hot .line').textContent)") as u32;
    assert!(row.contains(&format!("line {line} of <b>the file</b>")) && row.contains('%'), "{row}");
    page.picture("source");
    // Functions below the first method of a thread are folded among the callers, too.
    let callers = "(() => { const found = []; const see = (box) => graphs[0].view.children(box).forEach((child) => { found.push(child.label); see(child); }); see(graphs[0].view.root); return found.join(); })()";
    let folded = page.text(callers);
    assert!(!folded.contains("__clone3") && !folded.contains("JavaMain"), "{folded}");
    page.key("o");
    page.until("state.roots === '1'");
    settle(&page);
    assert!(page.text(callers).contains("JavaMain"));
    assert_quiet(&page, &served);
}
