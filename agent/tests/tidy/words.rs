//! Comments, names of tests and pages are plain English, and comments fit on a screen.
//!
//! Problem: turns that sound clever to their author have to be read twice by everybody else.
//! Approach: three lists of turns are searched in the comments of all languages of the tree, in the names of Rust tests
//! and in the pages. Text in back-ticks is not searched.
//! Invariant: there is no list of exceptions.

use crate::history::documents;
use crate::settle;
use crate::source::{files, read};

/// Code that is spoken of as a person, archaic turns, and riddles: whole words anywhere in a comment.
const BANNED: &[&str] = &[
    "knows",
    "wants",
    "wishes",
    "awaits",
    "awaited",
    "asks",
    "is asked",
    "are asked",
    "was asked",
    "is told",
    "are told",
    "was told",
    "tells",
    "hears",
    "believes",
    "thinks",
    "forgets",
    "remembers",
    "learns",
    "finds out",
    "speaks",
    "owes",
    "nobody",
    "somebody",
    "anew",
    "for ever",
    "at the least",
    "by now",
    "since then",
    "in wait",
    "be had",
    "gives way",
    "giving way",
    "whose turn",
    "makes of",
    "burnt",
];
/// A comment on an item begins with what the item is or does, not with a clause that has no head.
const HEADLESS: &[&str] = &["what", "whose", "who", "where", "of", "that", "which", "as", "so"];
/// The name of a test says what is given and what is expected.
const RIDDLES: &[&str] = &["what", "whose", "who", "where", "that", "of", "nothing is said", "is whose"];

/// Most characters of a line that is a comment.
const WIDTH: usize = 120;

/// A line of prose in a file.
#[derive(Debug, PartialEq)]
struct Prose {
    line: usize,
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The first line of the description of an item.
    Opening,
    Text,
    TestName,
}

#[test]
fn comments_and_pages_are_plain() {
    settle(complaints(turns));
}

#[test]
fn comments_are_not_too_wide() {
    settle(complaints(wide_lines));
}

/// Returns the complaints of a rule about all files with prose.
fn complaints(rule: fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let pages = documents().into_iter().map(|path| (read(&path).unwrap_or_default(), path));
    let code = files(&["rs", "java", "py", "js"]).into_iter().map(|(path, text)| (text, path));
    let searched: Vec<_> = pages.chain(code).filter(|(_, path)| !path.ends_with("generated.rs")).collect();
    assert!(searched.len() > 500, "only {} files: the search is broken", searched.len());
    searched.iter().flat_map(|(text, path)| rule(path, text)).collect()
}

fn turns(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for prose in prose_of(path, text) {
        let opening = match prose.kind {
            Kind::Opening => HEADLESS,
            Kind::TestName => RIDDLES,
            Kind::Text => &[],
        };
        let plain = plain(&prose.text);
        let begins = |turn: &&&str| plain.starts_with(&format!(" {turn} "));
        let contains = |turn: &&&str| plain.contains(&format!(" {turn} "));
        let found = opening.iter().find(begins).or(BANNED.iter().find(contains));
        complaints.extend(found.map(|turn| format!("{path}:{}: \"{turn}\": {}", prose.line, prose.text)));
    }
    complaints
}

/// The words of a line in lower case, each between single spaces, without what is in back-ticks.
fn plain(text: &str) -> String {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
    let words = prose.split(|c: char| !c.is_alphanumeric() && c != '`' && c != '\'');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    // "To tell things apart" is plain.
    let words = words.join(" ").replace("told apart", "apart").replace("tells you", "you");
    if words.contains(" apart") { format!(" {words} ").replace(" tells ", " ") } else { format!(" {words} ") }
}

fn wide_lines(path: &str, text: &str) -> Vec<String> {
    if path.ends_with(".md") {
        return Vec::new();
    }
    let marks: &[&str] = if path.ends_with(".py") { &["#"] } else { &["//", "*", "/*"] };
    let is_comment = |line: &str| marks.iter().any(|mark| line.trim_start().starts_with(mark));
    let is_wide = |line: &str| is_comment(line) && line.chars().count() > WIDTH;
    let wide = text.lines().zip(1..).filter(|(line, _)| is_wide(line));
    wide.map(|(_, number)| format!("{path}:{number}")).collect()
}

fn prose_of(path: &str, text: &str) -> Vec<Prose> {
    match path.rsplit('.').next() {
        Some("md") => pages_prose(text),
        Some("py") => python_prose(text),
        _ => c_prose(text),
    }
}

/// Comments with slashes, as Rust, Java and JavaScript have them, and the names of Rust tests.
fn c_prose(text: &str) -> Vec<Prose> {
    let mut prose = Vec::new();
    let (mut described, mut is_test) = (false, false);
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        let mut push =
            |kind, text: &str| prose.push(Prose { line: number, kind, text: text.trim().to_owned() });
        let mark = ["///", "//!", "/**", "//", "/*", "* "].into_iter().find(|mark| line.starts_with(mark));
        let name = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
        match (mark, name) {
            (Some(mark), _) => {
                let opens = matches!(mark, "///" | "/**") && !described;
                push(if opens { Kind::Opening } else { Kind::Text }, &line[mark.len()..]);
            }
            (None, Some(name)) if is_test || line.contains("(jdk) {") => {
                push(Kind::TestName, &name.replace('_', " "))
            }
            _ => {
                if let Some((_, comment)) = line.split_once(" // ") {
                    push(Kind::Text, comment);
                }
            }
        }
        described = matches!(mark, Some("///" | "/**"));
        is_test = line == "#[test]" || is_test && line.starts_with("#[");
    }
    prose
}

/// Comments with `#`, and text between three quotation marks.
fn python_prose(text: &str) -> Vec<Prose> {
    let mut prose = Vec::new();
    let mut is_quoted = false;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        let mut push =
            |kind, text: &str| prose.push(Prose { line: number, kind, text: text.trim().to_owned() });
        if let Some(rest) = line.strip_prefix("\"\"\"").filter(|_| !is_quoted) {
            push(Kind::Opening, rest.trim_end_matches("\"\"\""));
            is_quoted = !rest.contains("\"\"\"");
        } else if is_quoted {
            push(Kind::Text, line.trim_end_matches("\"\"\""));
            is_quoted = !line.contains("\"\"\"");
        } else if let Some((_, comment)) = line.split_once("# ") {
            push(Kind::Text, comment);
        }
    }
    prose
}

/// Lines of Markdown outside of fenced blocks.
fn pages_prose(text: &str) -> Vec<Prose> {
    let mut prose = Vec::new();
    let mut is_fenced = false;
    for (line, number) in text.lines().zip(1..) {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if !is_fence && !is_fenced {
            prose.push(Prose { line: number, kind: Kind::Text, text: line.to_owned() });
        }
    }
    prose
}

/// Each turn of each list is noticed where it must not be, and nowhere else.
#[test]
fn every_banned_turn_is_noticed() {
    let check = |path: &str, text: &str, expect: usize| {
        let found = turns(path, text);
        assert_eq!(found.len(), expect, "{path}: {text}: {found:?}");
    };
    for turn in BANNED {
        check("a.rs", &format!("// The store {turn} it."), 1);
        check("a.rs", &format!("let a = 1; // The store {turn} it."), 1);
        check("a.java", &format!("/**\n * The store {turn} it.\n */"), 1);
        check("a.js", &format!("// The store\n// {turn} it."), 1);
        check("a.py", &format!("def a():\n    \"\"\"Runs.\n\n    The store {turn} it.\"\"\"\n"), 1);
        check("a.py", &format!("a = 1  # The store {turn} it."), 1);
        check("a.md", &format!("The store {turn} it."), 1);
        check("a.rs", &format!("#[test]\nfn the_store_{}_it() {{}}", turn.replace(' ', "_")), 1);
        check("a.md", &format!("The store `{turn}` it.\n```\n{turn}\n```\nun{turn} it."), 0);
        check("a.rs", &format!("let a = \"{turn}\"; fn a_{turn}_b() {{}}"), 0);
    }
    for turn in HEADLESS {
        check("a.rs", &format!("/// {turn} is next.\nfn a() {{}}"), 1);
        check("a.java", &format!("/** {turn} is next. */"), 1);
        check("a.py", &format!("def a():\n    \"\"\"{turn} is next.\"\"\"\n"), 1);
        check("a.rs", &format!("/// Returns\n/// {turn} is next.\nfn a() {{}}\n// {turn} is next."), 0);
    }
    for turn in RIDDLES {
        check("a.rs", &format!("#[test]\n#[cfg(a)]\nfn {}_ends() {{}}", turn.replace(' ', "_")), 1);
        check("a.rs", &format!("fn {}_ends(jdk) {{}}", turn.replace(' ', "_")), 1);
        check("a.rs", &format!("#[test]\nfn a() {{}}\nfn {}_ends() {{}}", turn.replace(' ', "_")), 0);
    }
    check("a.md", "Two stores are told apart. It tells stores apart.", 0);
    assert_eq!(
        wide_lines("a.rs", &format!("// {}\n// {}", "a".repeat(WIDTH - 3), "a".repeat(WIDTH - 2))),
        ["a.rs:2"]
    );
}
