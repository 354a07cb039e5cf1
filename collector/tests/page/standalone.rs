//! The page as one file: every view, opened from the disk, without a server.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use profile::query::selection::Selection;
use profile::source::recording::{Recording, RecordingReader, Recordings};
use profile::ui::standalone;
use proto::framing::encode_frame;
use proto::v1::agent_message::Body;
use proto::v1::{AgentMessage, FrameKind, Lost, Mode, Statistics, ThreadAccount, ThreadKind};
use serde_json::Value;

use crate::page::browser::{Browser, Page};
use crate::recorded::recorded;
use crate::support::{INTERVAL_NS, Stream, small};

/// A recording as a file, and the page of it.
pub fn page_of(name: &str) -> (Recording, PathBuf) {
    page_of_messages(name, &recorded(name))
}

/// Messages as a recording in a file, and the page of it.
pub fn page_of_messages(name: &str, messages: &[AgentMessage]) -> (Recording, PathBuf) {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| encode_frame(message, &mut bytes).expect("short message"));
    // Tests run at the same time, so each has files of its own.
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{number}"));
    let (recording, page) = (file.with_extension("tickwalk"), file.with_extension("html"));
    std::fs::write(&recording, bytes).expect("written");
    let store = Recording::read(&recording).expect("a recording");
    let mut text = Vec::new();
    standalone::write(&store, &Selection::default(), 0, &mut text).expect("writing to memory");
    std::fs::write(&page, text).expect("written");
    (store, page)
}

pub fn open<'b>(browser: &'b Browser, path: &Path, theme: &str) -> Page<'b> {
    let page = browser.page(1400, 900);
    page.prefer(theme);
    page.open(&format!("file://{}", path.display()));
    settle(&page);
    page
}

fn settle(page: &Page) {
    page.until("document.getElementById('content').dataset.page && !document.querySelector('#content.busy')");
}

fn go(page: &Page, hash: &str) {
    page.value(&format!("location.hash = {hash:?}; undefined"));
    page.until(&format!("stateHash === {hash:?}"));
    settle(page);
}

/// The answer of the API over the same recording.
fn answer(store: &Recording, question: &str, pairs: &[(&str, &str)]) -> Value {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let answer = profile::api::question::answer(store, question, &pairs, u64::MAX / 2).expect("an answer");
    serde_json::from_slice(&answer.bytes).expect("JSON")
}

/// Sums of CPU time and wall time have a warning until one of the modes is selected.
#[test]
fn sums_of_several_modes_have_a_warning() {
    let Some(browser) = crate::page::browser() else { return };
    let mut wall = small();
    wall.rename(0xbee);
    wall.set_mode(Mode::Wall);
    let bytes = [small().bytes(), wall.bytes()].concat();
    let both = Recordings::of(RecordingReader::new(&bytes[..]).expect("a recording"));
    let mut text = Vec::new();
    standalone::write(&both, &Selection::default(), 0, &mut text).expect("writing to memory");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("both-modes.html");
    std::fs::write(&path, text).expect("written");
    let page = open(&browser, &path, "light");
    let warnings = || page.text("document.getElementById('warnings').innerText");
    let warning = "The sums mix modes whose times differ in meaning (cputime, wall)";
    assert!(warnings().contains(warning), "{}", warnings());
    go(&page, "#label=mode=wall");
    assert!(!warnings().contains(warning), "{}", warnings());
    assert_eq!(page.number("selectedProcesses().length"), 1.0);
    assert!(page.holds("graph.view.root.total > 0"), "its samples are shown");
}

#[test]
fn every_view_works_without_a_server() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    for theme in ["light", "dark"] {
        let page = open(&browser, &path, theme);
        assert_eq!(page.text("document.documentElement.dataset.theme"), theme);
        assert!(page.holds("document.getElementById('warnings').hidden"));
        assert!(page.text("document.getElementById('facts').innerText").contains("explained"));
        for (view, hash, expected) in [
            ("flame", "#tab=flame", "Interpreted"),
            ("by-thread", "#tab=flame&split=1", "Interpreted"),
            ("by-thread-callers", "#tab=flame&split=1&callers=1&icicle=1", "Interpreted"),
            ("methods", "#tab=methods", "Value"),
            ("threads", "#tab=threads", "C2 CompilerThread"),
            ("callers", "#tab=method", "Callees"),
            ("compare", "#tab=compare&before.thread=main&thread_kind=gc", "more than before"),
            ("statistics", "#tab=statistics", "explained by samples"),
        ] {
            go(&page, hash);
            let text = page.text("document.getElementById('content').innerText");
            assert!(text.contains(expected), "{view} lacks {expected}:\n{text}");
            assert!(page.number("document.documentElement.scrollWidth") <= 1400.0, "{view} is too wide");
            page.picture(&format!("file-{view}-{theme}"));
        }
        assert_eq!(page.complaints("file:"), Vec::<String>::new());
    }
}

#[test]
fn a_standalone_page_reacts_to_mouse_and_keys() {
    let Some(browser) = crate::page::browser() else { return };
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    page.until("document.querySelectorAll('aside tbody tr').length > 50");
    // A click on the hottest method finds it.
    let share = page.text("document.querySelector('aside td.lead').innerText");
    assert!(share.ends_with('%'), "{share}");
    let matched = "document.querySelector('#content .matched').innerText";
    page.click_on("document.querySelector('aside tbody tr')");
    page.until(&format!("{matched}.includes('%')"));
    page.key("Escape");
    page.until(&format!("{matched} === ''"));
    page.key("r");
    page.until("document.getElementById('reverse').getAttribute('aria-pressed') === 'true'");
    page.key("i");
    page.until("document.getElementById('icicle').getAttribute('aria-pressed') === 'true'");
    // Something is drawn: the first row below the root has colours.
    let colours = page.number(
        "(() => { const canvas = document.querySelector('#content canvas'); \
         const data = canvas.getContext('2d').getImageData(0, 28, canvas.width, 1).data; const seen = new Set(); \
         for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`); \
         return seen.size; })()",
    );
    assert!(colours > 5.0, "{colours} colours");
    // Threads are boxes of their own, and all of their time is there.
    let total = page.number("graph.view.root.total");
    page.key("s");
    page.until("state.split === '1'");
    settle(&page);
    assert_eq!(page.number("graph.view.root.total"), total);
    let threads = "graph.view.children(graph.view.root).map((box) => box.label).join()";
    assert!(page.text(threads).contains("C2 CompilerThread"), "{}", page.text(threads));
    page.key("r");
    page.until("graph.view instanceof CalleeView");
    assert_eq!(page.number("graph.view.root.total"), total);
    assert!(page.text(threads).contains("C2 CompilerThread"), "{}", page.text(threads));
    // A kind of threads, a kind of code, and a range of the timeline.
    page.key("s");
    page.until("!state.split");
    settle(&page);
    page.key("/");
    page.write("threads:gc");
    page.key("Enter");
    page.until("state.thread_kind === 'gc'");
    settle(&page);
    assert!(page.number("graph.view.root.total") < total);
    go(&page, "#tab=flame");
    page.click_on("[...document.querySelectorAll('.legend [data-press]')].find((entry) => entry.innerText.includes('Inlined'))");
    page.until("state.kind === 'inlined'");
    settle(&page);
    assert!(page.number("graph.view.root.total") < total);
    page.click_on("$('chip-kind')");
    page.until("!state.kind");
    settle(&page);
    let column = page.number("timeline.data.bucket_ns");
    page.key("h");
    page.key("ArrowRight");
    page.shift_key("ArrowRight");
    page.key("Enter");
    page.until("state.from && state.to");
    settle(&page);
    let shown = page.number("timeline.data.to_ns - timeline.data.from_ns");
    assert_eq!((shown / column).round(), 2.0, "{shown} ns, two columns of {column} ns were chosen");
    assert!(page.number("graph.view.root.total") < total);
    // A link shows the same again.
    let state = "JSON.stringify([graph.view.root.total, $('range').innerText])";
    let (first, address) = (page.text(state), page.text("location.href"));
    let other = browser.page(1400, 900);
    other.open(&address);
    settle(&other);
    assert_eq!(other.text(state), first);
    // The range as the baseline of a comparison.
    page.key("b");
    page.until("state.tab === 'compare' && state['before.from']");
    settle(&page);
    go(&page, &page.text("addressOf({ ...state, from: null, to: null })"));
    assert!(page.holds("document.querySelectorAll('#content tbody tr').length > 50"));
    assert_eq!(page.complaints("file:"), Vec::<String>::new());
}

/// Both sources of data answer the same.
#[test]
fn a_file_answers_as_the_collector_does() {
    let Some(browser) = crate::page::browser() else { return };
    for name in ["h2-25", "lossy-21", "planted-25"] {
        let (store, path) = page_of(name);
        let page = open(&browser, &path, "light");
        let selections: [&[(&str, &str)]; 9] = [
            &[],
            &[("thread", "main")],
            &[("thread_kind", "compiler")],
            &[("frame", "java")],
            &[("kind", "inlined"), ("kind", "vm")],
            &[("frame", "a"), ("thread_kind", "java"), ("kind", "c2")],
            &[("include", "java.*"), ("include", "*.main"), ("exclude", "*(*)*"), ("exclude", "*.get")],
            &[("exclude", "java.*")],
            &[("process", "nobody")],
        ];
        for selection in selections {
            for (question, more, columns) in [
                ("flamegraph", &[("max_nodes", "200000")][..], &["total_ns", "samples"][..]),
                (
                    "methods",
                    &[("limit", "20"), ("order", "total")],
                    &["total_ns", "samples", "methods", "rows_left_out"],
                ),
                ("methods", &[("limit", "20")], &["methods"]),
                ("threads", &[], &["total_ns", "threads", "rows_left_out"]),
                ("statistics", &[], &[]),
            ] {
                let pairs = [selection, more].concat();
                let expected = answer(&store, question, &pairs);
                let pairs = serde_json::to_string(&pairs).expect("JSON");
                let found = page.value(&format!("source.ask({question:?}, {pairs})"));
                for column in columns {
                    assert_eq!(found[column], expected[column], "{name} {question} {pairs} {column}");
                }
            }
            let method = answer(&store, "methods", selection)["methods"][0]["name"].clone();
            let Some(method) = method.as_str() else { continue };
            for question in ["callers", "callees"] {
                let pairs = [selection, &[("method", method)]].concat();
                let expected = answer(&store, question, &pairs);
                let pairs = serde_json::to_string(&pairs).expect("JSON");
                let found = page.value(&format!("source.ask({question:?}, {pairs})"));
                assert_eq!(found["total_ns"], expected["total_ns"], "{question} {pairs}");
                let nodes = |tree: &Value| tree["tree"]["parents"].as_array().map(Vec::len);
                assert_eq!(nodes(&found), nodes(&expected), "{name} {question} {pairs}");
            }
        }
        // Lines of the hottest methods are those of all samples.
        let lined = page.text(
            "(() => { const hot = source.data.methods.map(({ name, lines }) => [source.model.names[name], Math.max(...lines.map(([, own]) => own))]); \
             return hot.sort((a, b) => b[1] - a[1])[0][0]; })()",
        );
        let expected = &answer(&store, "lines", &[("method", &lined)])["method"];
        let found = &page.value(&format!("source.ask('lines', [['method', {lined:?}]])"))["method"];
        for column in ["method", "class", "signatures", "file"] {
            assert_eq!(found[column], expected[column], "{name} {column}");
        }
        let hottest = |method: &Value| {
            let lines = method["lines"].as_array().expect("lines").iter();
            lines
                .map(|line| (line["self_ns"].as_u64(), line["line"].as_u64(), line["total_ns"].as_u64()))
                .max()
        };
        assert_eq!(hottest(found), hottest(expected), "{name}");
        let sides = [("before.thread", "main"), ("after.thread_kind", "compiler"), ("limit", "10")];
        let expected = answer(&store, "diff/methods", &sides);
        let pairs = serde_json::to_string(&sides).expect("JSON");
        let found = page.value(&format!("source.ask('diff/methods', {pairs})"));
        let changes = |answer: &Value| -> Vec<String> {
            let rows = answer["methods"].as_array().expect("rows").iter();
            rows.map(|row| format!("{} {} {}", row["name"], row["before_ns"], row["after_ns"])).collect()
        };
        assert_eq!(changes(&found), changes(&expected), "{name}");
        let left_out = "source.ask('timeline', [['by', 'thread'], ['limit', '1']])";
        let expected = answer(&store, "timeline", &[("by", "thread"), ("limit", "1")]);
        assert_eq!(page.value(left_out)["left_out_ns"], expected["left_out_ns"], "{name}");
        let timeline = page.value("source.ask('timeline', [['by', 'thread'], ['limit', '100']])");
        let expected = answer(&store, "timeline", &[("by", "thread")]);
        let sums = |timeline: &Value| -> Vec<(String, f64)> {
            let rows = timeline["rows"].as_array().expect("rows").iter();
            let sum = |row: &Value| {
                row["cpu_ns"].as_array().expect("cells").iter().filter_map(Value::as_f64).sum::<f64>()
            };
            let mut rows: Vec<_> = rows.map(|row| (row["thread"].to_string(), sum(row))).collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            rows
        };
        assert_eq!(sums(&timeline), sums(&expected), "{name}");
    }
}

/// Threads that the user left out have a part of the account of their own, and are no loss.
#[test]
fn time_of_threads_that_were_not_chosen_is_no_loss() {
    let Some(browser) = crate::page::browser() else { return };
    let mut stream = Stream::new();
    stream.thread(1, "main", ThreadKind::Java);
    let frame = stream.frame(FrameKind::C2, "a/B.c");
    let stack = stream.stack(&[frame], "end_of_stack");
    stream.sample(1, stack, 4 * INTERVAL_NS);
    let left_out = Lost { cause: "not_chosen".into(), count: 0, ns: 40 * INTERVAL_NS };
    let account = ThreadAccount {
        thread: 1,
        kernel_ns: 44 * INTERVAL_NS,
        sampled_ns: 4 * INTERVAL_NS,
        samples: 1,
        lost: vec![left_out.clone()],
        ..Default::default()
    };
    let process_cpu_ns = 44 * INTERVAL_NS;
    let statistics =
        Statistics { threads: vec![account], lost: vec![left_out], process_cpu_ns, ..Default::default() };
    stream.send(Body::Statistics(statistics));
    stream.goodbye();
    let (store, path) = page_of_messages("chosen", stream.messages());
    let page = open(&browser, &path, "light");
    let facts = page.text("document.getElementById('facts').innerText");
    assert!(facts.contains("100.0 %") && facts.contains("\n0 ms lost"), "{facts}");
    go(&page, "#tab=statistics");
    let text = page.text("document.getElementById('content').innerText");
    assert!(text.contains("not chosen") && text.contains("nothing was lost"), "{text}");
    let view = profile::query::view::view("cpu-time-statistics", &store, &Selection::default(), 10, 0)
        .expect("a view");
    assert!(view.contains("  not chosen ") && !view.contains("lost:"), "{view}");
}

/// In a profile of wall time, threads that ran and threads that waited are told apart on the page, also where their
/// stacks are equal.
#[test]
fn states_of_wall_time_are_selected_by_a_click() {
    let Some(browser) = crate::page::browser() else { return };
    let mut stream = Stream::new();
    stream.set_mode(Mode::Wall);
    stream.thread(1, "main", ThreadKind::Java);
    let read = stream.frame(FrameKind::Native, "read");
    for (state, samples) in [("running", 3), ("waiting", 5)] {
        let stack = stream.stack(&[read], &format!("end_of_stack {state}"));
        (0..samples).for_each(|_| stream.sample(1, stack, INTERVAL_NS));
    }
    stream.goodbye();
    let (store, path) = page_of_messages("states", stream.messages());
    let page = open(&browser, &path, "light");
    for (title, state, samples) in
        [("Running", Some("running"), 3), ("Waiting", Some("waiting"), 5), ("All", None, 8)]
    {
        let button = format!(
            "[...document.querySelectorAll('.bar button')].find((one) => one.innerText === '{title}')"
        );
        page.click_on(&button);
        page.until(&format!("(state.state || null) === {}", serde_json::json!(state)));
        settle(&page);
        let total = samples * INTERVAL_NS;
        assert_eq!(page.number("graph.view.root.total"), total as f64, "{title}");
        let selection: Vec<_> = state.map(|state| ("state", state)).into_iter().collect();
        assert_eq!(answer(&store, "flamegraph", &selection)["total_ns"], total, "{title}");
    }
    // Profiles of CPU time have no such buttons.
    let (_, path) = page_of("h2-25");
    let page = open(&browser, &path, "light");
    assert!(
        !page.holds(
            "[...document.querySelectorAll('.bar button')].some((one) => one.innerText === 'Waiting')"
        )
    );
}
