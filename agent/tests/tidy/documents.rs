//! Documents are short: a README that is read in two minutes, and pages that are read in one go.
//!
//! Approach: words, lines and rows of tables are counted. What commands generate lies in `design/measured/`, where a
//! page may be as long as it has to be.

use std::fs;

use crate::settle;
use crate::source::{read, workspace};

/// Most words of the README, and rows of a table in it.
const README_WORDS: usize = 1000;
const README_ROWS: usize = 10;
/// Most lines of a page for developers.
const PAGE_LINES: usize = 250;
/// Most pages for developers.
const PAGES: usize = 15;
/// Marks of tables that a command has written.
const GENERATED: &[&str] = &["<!-- matrix -->", "<!-- generated"];

#[test]
fn the_readme_is_short() {
    settle(readme_complaints(&read("README.md").unwrap_or_default()));
}

#[test]
fn pages_are_short_and_few() {
    let folder = fs::read_dir(workspace().join("design")).expect("the folder of pages");
    let names = folder.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
    let pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("design/{name}")).collect();
    let crowded = (pages.len() > PAGES).then(|| format!("design: {} pages, more than {PAGES}", pages.len()));
    let complaints = pages.iter().flat_map(|path| page_complaints(path, &read(path).unwrap_or_default()));
    settle(complaints.chain(crowded).collect());
}

fn readme_complaints(text: &str) -> Vec<String> {
    let words = text.split_whitespace().count();
    let rows = longest_table(text);
    let wordy = (!(1..=README_WORDS).contains(&words))
        .then(|| format!("README.md: {words} words, more than {README_WORDS}"));
    let long =
        (rows > README_ROWS).then(|| format!("README.md: a table of {rows} rows, more than {README_ROWS}"));
    wordy.into_iter().chain(long).collect()
}

/// Rows of the longest table, its head not counted.
fn longest_table(text: &str) -> usize {
    let is_row = |line: &&str| line.trim_start().starts_with('|');
    let lines: Vec<&str> = text.lines().collect();
    let tables =
        lines.chunk_by(|first, second| is_row(first) == is_row(second)).filter(|lines| is_row(&lines[0]));
    tables.map(|lines| lines.len().saturating_sub(2)).max().unwrap_or(0)
}

fn page_complaints(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let long = (lines > PAGE_LINES).then(|| format!("{path}: {lines} lines, more than {PAGE_LINES}"));
    let generated = GENERATED.iter().filter(|mark| text.contains(**mark));
    let generated = generated
        .map(|mark| format!("{path}: `{mark}` marks a generated table; move it to design/measured/"));
    long.into_iter().chain(generated).collect()
}

#[test]
fn a_long_document_is_noticed() {
    let table = |rows: usize| format!("text\n\n| a |\n|---|\n{}\nend\n", "| b |\n".repeat(rows));
    assert!(readme_complaints(&table(README_ROWS)).is_empty());
    assert_eq!(readme_complaints(&table(README_ROWS + 1)).len(), 1);
    assert_eq!(readme_complaints(&"word ".repeat(README_WORDS + 1)).len(), 1);
    assert_eq!(readme_complaints("").len(), 1, "a README that is missing");
    assert!(page_complaints("a.md", &"line\n".repeat(PAGE_LINES)).is_empty());
    assert_eq!(page_complaints("a.md", &"line\n".repeat(PAGE_LINES + 1)).len(), 1);
    assert_eq!(page_complaints("a.md", "<!-- matrix -->").len(), 1);
}
