//! Names of methods, classes and threads that are hard to show: each is one row of its own, and no text acts on a
//! terminal.

use java_tests::{Run, Workload, on_every_jdk, on_jdks};

/// Milliseconds of CPU time of each method and thread of `OddNames`.
const EACH_MS: u64 = 60;

/// The names in `OddNames`, as they are shown.
fn shown_names() -> Vec<String> {
    let long = format!("m{}", "x".repeat(2100));
    let short = [
        "plain",
        "rocket\u{1f680}",
        "train\u{1f681}",
        "nl\\nx",
        "nul\\u0000x",
        "lone\\ud800",
        "lone\\ud801",
        "esc\\u001bx",
        "cr\\rx",
        "tab\\tx",
        "c1\\u009bx",
        "bidi\\u202ex",
    ];
    short.map(str::to_owned).into_iter().chain([format!("{long}A"), format!("{long}B")]).collect()
}

fn record(jdk: &java_tests::Jdk) -> Run {
    let run = Workload::new("OddNames").argument(EACH_MS).record_option("--interval=1ms").record(jdk);
    run.assert_exit_code(0);
    run
}

/// Asserts that each row has the CPU time of one name: two names in one row would have twice as much as the others.
#[track_caller]
fn assert_apart(rows: impl IntoIterator<Item = (String, u64)>) {
    let rows: Vec<(String, u64)> = rows.into_iter().collect();
    let mut sorted: Vec<u64> = rows.iter().map(|(_, ns)| *ns).collect();
    sorted.sort_unstable();
    let usual_ns = sorted[sorted.len() / 2];
    for (name, ns) in &rows {
        assert!((usual_ns / 2..usual_ns * 8 / 5).contains(ns), "{ns} ns of {name}, usually {usual_ns}");
    }
}

on_every_jdk! { concurrent;
    fn each_name_is_a_row_of_its_own(jdk) {
        let run = record(jdk);
        let stacks = run.stacks();
        let long = format!("m{}", "x".repeat(2100));
        let classes = ["e.\u{1f680}".to_owned(), "e.\u{1f681}".to_owned(), format!("{long}A"), format!("{long}B")];
        let methods = shown_names().into_iter().map(|name| format!("Odd.{name}"));
        let methods = methods.chain(classes.map(|class| format!("{class}.of")));
        // Two methods that differ behind byte 2,048 of the descriptor have one row, like all overloaded ones.
        let overloaded = ("Odd.over".to_owned(), stacks.ns_below("Odd.over") / 2);
        assert_apart(methods.map(|method| (method.clone(), stacks.ns_below(&method))).chain([overloaded]));
        let by_thread = run.stacks_by_thread();
        let of_thread = |name: &String| by_thread.ns_where(|stack| stack.frames.first() == Some(name));
        assert_apart(shown_names().into_iter().map(|name| (name.clone(), of_thread(&name))));
    }
}

on_every_jdk! { concurrent;
    /// The descriptors are told apart where a format has them.
    fn long_descriptors_are_whole(jdk) {
        let run = record(jdk);
        let file = run.recording.with_extension("jfr");
        run.tickwalk(&["export", "-o", file.to_str().expect("text")]);
        let bytes = std::fs::read(file).expect("the export");
        for end in ["xA;)V", "xB;)V"] {
            assert!(bytes.windows(end.len()).any(|window| window == end.as_bytes()), "{end}");
        }
    }
}

on_jdks! { concurrent 21, 25;
    fn names_of_virtual_threads(jdk) {
        let run = record(jdk);
        let threads = &run.summary().virtual_threads;
        // The handler copies 256 bytes of a name.
        for name in shown_names().into_iter().filter(|name| name.len() < 256) {
            let name = format!("v{name}");
            assert!(threads.iter().any(|thread| thread.name == name), "{name}: {threads:?}");
        }
    }
}

on_jdks! { concurrent 25;
    /// No output for readers contains a character that acts on a terminal.
    fn outputs_are_plain_text(jdk) {
        let run = record(jdk);
        for arguments in [
            &["export", "--format", "collapsed", "--threads"][..],
            &["top", "--limit", "10000"],
            &["query", "--with", "limit=10000", "methods"],
            &["view", "--limit", "10000", "threads"],
        ] {
            let text = run.tickwalk(arguments);
            let acts = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
            let line = text.lines().find(|line| line.contains(acts));
            assert_eq!(line, None, "{arguments:?}");
            assert!(text.contains("esc\\u001bx") || text.contains("esc\\\\u001bx"), "{arguments:?}: {text}");
        }
    }
}
