//! The folders of the walker's seam to the CPU offer the same names.

use std::collections::BTreeSet;

use crate::source::{code_of, read, sources, without_tests};
use crate::{CPU_SEAM, settle};

const FOLDERS: [&str; 2] = ["x86_64", "aarch64"];

#[test]
fn twins_offer_the_same_names() {
    let [first, second] = FOLDERS.map(names);
    assert!(first.len() > 60, "found {} names", first.len());
    let lacks = |has: &BTreeSet<String>, other: &BTreeSet<String>, folder: &str| {
        has.difference(other).map(|name| format!("{CPU_SEAM}{folder} lacks `{name}`")).collect::<Vec<_>>()
    };
    settle([lacks(&first, &second, FOLDERS[1]), lacks(&second, &first, FOLDERS[0])].concat());
}

/// A rule about machine code is worth what its source is.
#[test]
fn rules_of_a_cpu_name_their_sources() {
    let is_rule = |path: &str| path.starts_with(CPU_SEAM) && path[CPU_SEAM.len()..].contains('/');
    let files = sources().into_iter().filter(|(path, _)| is_rule(path) && !path.ends_with("/mod.rs"));
    let files: Vec<_> = files.collect();
    assert!(files.len() > 30, "found {} files", files.len());
    let silent = files.into_iter().filter(|(_, text)| !names_source(text));
    settle(silent.map(|(path, _)| format!("{path}: its opening comment names no source")).collect());
}

fn names_source(text: &str) -> bool {
    let mut opening = text.lines().take_while(|line| line.starts_with("//!"));
    opening.any(|line| line.contains("Source: ") || line.contains("Sources: "))
}

#[test]
fn a_rule_without_source_is_noticed() {
    assert!(names_source("//! A frame.\n//! Source: `frame_x86.cpp`, JDK 11."));
    assert!(!names_source("//! A frame.\n\n// Source: `frame_x86.cpp`, JDK 11."));
}

/// The signal handler's files of the CPUs.
const HANDLER_SEAM: &str = "agent/src/handler/cpu/";

#[test]
fn the_handlers_twins_offer_the_same_names() {
    let [first, second] = FOLDERS.map(|cpu| {
        let path = format!("{HANDLER_SEAM}{cpu}.rs");
        let text = read(&path).unwrap_or_else(|| panic!("{path}: does not exist"));
        declared(&without_tests(&code_of(&text))).into_iter().collect::<BTreeSet<String>>()
    });
    assert!(first.len() >= 7, "{first:?}");
    assert_eq!(first, second, "{HANDLER_SEAM}");
}

/// The names that a folder's `mod.rs` exports.
fn names(folder: &str) -> BTreeSet<String> {
    let file = |name: &str| {
        let path = format!("{CPU_SEAM}{folder}/{name}.rs");
        without_tests(&code_of(&read(&path).unwrap_or_else(|| panic!("{path}: does not exist"))))
    };
    let text = file("mod");
    let exports = text.split(';').filter_map(|item| item.split_once("use ").map(|(_, path)| path.trim()));
    exports
        .flat_map(|path| {
            let (module, items) = path.rsplit_once("::").unwrap_or((path, ""));
            if items == "*" { declared(&file(module)) } else { listed(items) }
        })
        .collect()
}

/// The names in `{a, b as c}` or `a`.
fn listed(items: &str) -> Vec<String> {
    let items = items.trim_matches(['{', '}', ' ', '\n']);
    let name = |item: &str| item.split_whitespace().last().map(str::to_owned);
    items.split(',').filter_map(name).collect()
}

/// The names that a file declares for others.
fn declared(code: &str) -> Vec<String> {
    let lines = code.lines().map(|line| line.replace("pub(crate) ", "pub "));
    lines
        .filter_map(|line| {
            let rest = line.strip_prefix("pub ")?;
            let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
            let rest =
                rest.strip_prefix("const fn ").or(rest.strip_prefix("const ")).or(rest.strip_prefix("fn "))?;
            Some(rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?.to_owned())
        })
        .collect()
}

#[test]
fn names_are_found() {
    assert_eq!(listed("{a, B,\n c as d}"), ["a", "B", "d"]);
    assert_eq!(listed("a as b"), ["b"]);
    assert_eq!(
        declared(
            "pub const A: u8 = 1;\npub(crate) fn b(c: u8) {}\nfn d() {}\npub const fn e() {}\npub unsafe fn f() {}"
        ),
        ["A", "b", "e", "f"]
    );
}
