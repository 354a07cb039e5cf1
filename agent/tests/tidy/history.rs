//! Pages state what is, in the present tense.
//!
//! Problem: a page that is amended step by step becomes a diary in which superseded facts stand beside valid ones.
//! Approach: each sentence of the documents is searched for words that compare with an earlier state.
//! Invariant: text in back-ticks and fenced blocks is not searched.

use std::fs;

use crate::settle;
use crate::source::{read, workspace};

/// Documents beside the pages in the folders.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "cli/packaging/README.md",
    "stackwalk/NEW_JDK.md",
    "stackwalk/aarch64/README.md",
];
/// Folders of pages.
const FOLDERS: &[&str] = &["design", "design/measured", "docs"];
/// Words that a sentence must not begin with.
const OPENINGS: &[&str] = &[
    "since then",
    "before that",
    "until now",
    "by now",
    "so far",
    "formerly",
    "previously",
    "no longer",
    "used to",
];
/// Words that a sentence must not contain.
const ANYWHERE: &[&str] = &["anew", "no longer", "as before", "until now"];

#[test]
fn pages_contain_no_history() {
    let complaints = documents().into_iter().flat_map(|path| match read(&path) {
        Some(text) => history_complaints(&path, &text),
        None => vec![format!("{path}: does not exist")],
    });
    settle(complaints.collect());
}

/// All pages: those of the folders, and the documents beside them.
pub fn documents() -> Vec<String> {
    let mut pages: Vec<String> = DOCUMENTS.iter().map(|path| path.to_string()).collect();
    for folder in FOLDERS {
        let entries = fs::read_dir(workspace().join(folder)).expect("a folder of pages");
        let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
        let before = pages.len();
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
        assert!(pages.len() > before, "no page in {folder}: the search is broken");
    }
    pages
}

fn history_complaints(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_fenced = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
        for sentence in sentences(&prose) {
            let opening = OPENINGS.iter().find(|words| begins_with(sentence, words));
            let inside = ANYWHERE.iter().find(|words| contains(sentence, words));
            if let Some(words) = opening.or(inside) {
                complaints.push(format!(
                    "{path}:{number}: \"{words}\" compares with an earlier state; state what is"
                ));
            }
        }
    }
    complaints
}

/// The sentences of a line of Markdown, cells of tables and items of lists included, without leading marks.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split('|').flat_map(|cell| cell.split(". ")).flat_map(|part| part.split(": "));
    parts.map(|sentence| sentence.trim_start_matches(|c: char| !c.is_alphanumeric()))
}

fn begins_with(sentence: &str, words: &str) -> bool {
    sentence.strip_prefix(words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

fn contains(sentence: &str, words: &str) -> bool {
    sentence.match_indices(words).any(|(at, _)| {
        !sentence[..at].ends_with(char::is_alphanumeric) && begins_with(&sentence[at..], words)
    })
}

#[test]
fn history_is_noticed() {
    let check = |text: &str, complaints: usize| {
        let found = history_complaints("design/a.md", text);
        assert_eq!(found.len(), complaints, "{text}: {found:?}");
    };
    check("Since then stacks are copied too.", 1);
    check("Stacks are walked. Before that, they are copied.", 1);
    check("| a | no longer a row |\n- Until now nothing.", 2);
    check("The figures were counted anew.", 1);
    check("By now slots are found. Used to find names, this list is long.", 2);
    check("The walk is used to find names, which stand before that line; the renewal stays.", 0);
    check("`no longer`\n```\nSince then\n```\nText.", 0);
}
