//! Paths that the documents name exist, and functions that the architecture page names are where it states.
//!
//! Problem: a page that follows one sample through the code is wrong after the first renaming.
//! Approach: each code span that looks like a path of this repository is looked up. For each function that the
//! architecture page names in the form "`function` in `path`" or "`Type::function` in `path`", the file is searched for
//! its definition.
//! Invariant: a page that names few functions is a complaint, because then its form has changed unnoticed.
//!
//! Source: rbspy's `ARCHITECTURE.md`, which names folders that do not exist.

use std::path::Path;

use crate::history::documents;
use crate::source::{code_of, find_token, has_token, read, workspace};
use crate::{EDGES, settle};

const PAGE: &str = "design/architecture.md";
/// Functions that the page must name: one for each step of a sample.
const LEAST_FUNCTIONS: usize = 40;
/// Folder that git ignores: what the tests need from elsewhere is there after the first whole run.
const FETCHED: &str = "java-tests/.cache/";
/// Endings of files that the page may name without one of our folders in front.
const FILE_TYPES: &[&str] =
    &[".rs", ".md", ".toml", ".proto", ".java", ".sh", ".json", ".html", ".js", ".css"];

#[test]
fn documents_name_paths_that_exist() {
    let texts = documents().into_iter().filter_map(|path| Some((read(&path)?, path)));
    settle(texts.flat_map(|(text, path)| path_complaints(&path, &text, &workspace())).collect());
}

#[test]
fn the_architecture_page_names_functions_that_exist() {
    let text = read(PAGE).unwrap_or_default();
    let functions = functions_in(&text);
    assert!(functions.len() >= LEAST_FUNCTIONS, "{PAGE}: names {} functions", functions.len());
    settle(function_complaints(&functions, read));
}

fn path_complaints(document: &str, text: &str, root: &Path) -> Vec<String> {
    let ours = paths_in(text).into_iter().filter(|path| !path.starts_with(FETCHED));
    let missing = ours.filter(|path| !root.join(path).exists());
    missing.map(|path| format!("{document}: `{path}` does not exist")).collect()
}

/// The code spans that look like a path of this repository: relative, with a slash, and either inside one of our
/// folders or with the name of a file at the end.
fn paths_in(page: &str) -> Vec<&str> {
    let looks_like_path = |span: &&str| {
        let ours = span.split('/').next().is_some_and(|first| {
            first == "design" || first == ".ci" || EDGES.iter().any(|(name, _)| *name == first)
        });
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        let file = FILE_TYPES.iter().any(|file_type| span.ends_with(file_type));
        plain && span.contains('/') && !span.starts_with('/') && (ours || file)
    };
    page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(looks_like_path).collect()
}

/// Functions, with their types if given, and the files that the page names for them.
fn functions_in(page: &str) -> Vec<(&str, &str)> {
    let mut functions = Vec::new();
    for line in page.lines() {
        // Odd parts are code spans, even parts the text between them.
        let parts: Vec<&str> = line.split('`').collect();
        for part in parts.windows(3).skip(1).step_by(2) {
            if part[1] == " in " && [".rs", ".js"].iter().any(|file_type| part[2].ends_with(file_type)) {
                functions.push((part[0], part[2]));
            }
        }
    }
    functions
}

fn function_complaints(functions: &[(&str, &str)], read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_there = |function: &str, path: &str| {
        let code = read(path).map(|text| code_of(&text)).unwrap_or_default();
        let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
        let keyword = if path.ends_with(".rs") { "fn" } else { "function" };
        (defines(&code, keyword, name) || (path.ends_with(".js") && defines_method(&code, name)))
            && (owner.is_empty() || has_token(&code, owner))
    };
    let missing = functions.iter().filter(|(function, path)| !is_there(function, path));
    missing.map(|(function, path)| format!("{PAGE}: no function `{function}` in `{path}`")).collect()
}

fn defines(code: &str, keyword: &str, name: &str) -> bool {
    let definition = format!("{keyword} {name}");
    let rest = find_token(code, &definition).map(|at| &code[at + definition.len()..]);
    rest.is_some_and(|rest| rest.starts_with(['(', '<']))
}

/// Returns true if a line of JavaScript begins a method of this name.
fn defines_method(code: &str, name: &str) -> bool {
    let is_method = |line: &str| {
        let rest = line.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('(') && rest.ends_with('{'))
    };
    code.lines().any(is_method)
}

#[test]
fn a_path_that_does_not_exist_is_noticed() {
    let page = "`queue/src/lib.rs`, `queue/src/gone.rs`; `old/src/a.rs`\n`/proc/self/task`, `a/b`, `Arc<a/b>`, `design`";
    assert_eq!(paths_in(page), ["queue/src/lib.rs", "queue/src/gone.rs", "old/src/a.rs"]);
    let complaints = path_complaints("a.md", page, &workspace()).join("\n");
    assert!(
        complaints.contains("gone.rs") && complaints.contains("old/src") && !complaints.contains("lib.rs")
    );
    assert!(path_complaints("a.md", "`java-tests/.cache/gone`", &workspace()).is_empty(), "not in the tree");
}

#[test]
fn a_function_that_does_not_exist_is_noticed() {
    let page = "`take` in `a.rs`, `Queue::push` in `a.rs`; `b` in `c.md`, `gone` in `a.rs`\n`Ring::push` in `a.rs`, `x` in `b.rs`.\n\
                `sum` in `a.js`, `Graph::draw` in `a.js`, `fill` in `a.js`";
    let functions = functions_in(page);
    let names: Vec<&str> = functions.iter().map(|(function, _)| *function).collect();
    assert_eq!(names, ["take", "Queue::push", "gone", "Ring::push", "x", "sum", "Graph::draw", "fill"]);
    let rust = "impl Queue { pub fn push<T>() {} }\nfn take() { gone(); } // fn gone()";
    let script = "function sum() {}\nclass Graph {\n  draw(box) {\n    fill();\n  }\n}";
    let text = |path: &str| [("a.rs", rust), ("a.js", script)].into_iter().find(|(name, _)| *name == path);
    let complaints = function_complaints(&functions, |path| text(path).map(|(_, text)| text.to_owned()));
    let missing: Vec<_> = complaints.iter().filter_map(|complaint| complaint.split('`').nth(1)).collect();
    assert_eq!(missing, ["gone", "Ring::push", "x", "fill"]);
}
