//! No two production files of a crate import each other, directly or through others.
//!
//! Approach: the `use` items and the inline `crate::` and `super::` paths of each file are resolved to files of the
//! same crate; the graph of these edges must have no circle.
//! A parent module that re-exports a child with `pub use`, and a child that uses its parent's items, count as one node:
//! the parent is the child's public face. `mod` items alone are no import. Generated code and tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{code_of, is_test, source_folder, sources, use_trees, without_tests};
use crate::{EDGES, settle};

/// Folders of the crates.
pub const CRATES: &[&str] = &[
    "agent",
    "agent/options",
    "cli",
    "collector",
    "collector/lake",
    "profile",
    "java-tests",
    "java-tests/agct",
    "java-tests/hooks",
    "proto",
    "queue",
    "sampler-thread",
    "stackwalk",
];

#[test]
fn no_files_import_each_other_in_a_circle() {
    // The package stackwalk-aarch64 has the files of stackwalk.
    assert_eq!(CRATES.len() + 1, EDGES.len(), "every crate of the workspace is listed");
    let sources = sources();
    let mut complaints = Vec::new();
    for name in CRATES {
        complaints.extend(complaints_of(name, &production_files(name, &sources)));
    }
    settle(complaints);
}

/// Returns the production files of a crate: path inside its source folder, and text.
pub fn production_files(name: &str, sources: &[(String, String)]) -> BTreeMap<String, String> {
    let inside = |path: &str| Some(path.strip_prefix(&source_folder(name))?.strip_prefix('/')?.to_owned());
    let is_production = |path: &str| !is_test(path) && !path.ends_with("/generated.rs");
    let production = sources.iter().filter(|(path, _)| is_production(path));
    let files: BTreeMap<_, _> =
        production.filter_map(|(path, text)| Some((inside(path)?, text.clone()))).collect();
    assert!(!files.is_empty(), "{name} has no Rust file");
    files
}

fn complaints_of(name: &str, files: &BTreeMap<String, String>) -> Vec<String> {
    let graph = Graph::of(files);
    let describe = |circle: BTreeSet<&String>| {
        let mut text = format!("{name}: files that import each other in a circle:");
        for (from, to, paths) in graph
            .edges
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(move |(to, paths)| (from, to, paths)))
        {
            if circle.contains(from) && circle.contains(to) {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                text += &format!("\n    {from} -> {to}: {}", paths.join(", "));
            }
        }
        text
    };
    graph.circles().into_iter().map(describe).collect()
}

/// The imports of each file: the other file, and the paths by which it is imported.
#[derive(Default)]
pub struct Graph {
    pub edges: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Parents and the children they re-export.
    faces: BTreeSet<(String, String)>,
}

impl Graph {
    pub fn of(files: &BTreeMap<String, String>) -> Graph {
        let modules: BTreeMap<Vec<String>, &String> =
            files.keys().map(|file| (module_of(file), file)).collect();
        let mut graph = Graph::default();
        for (file, text) in files {
            let own = module_of(file);
            let code = without_tests(&code_of(text));
            for (path, is_public) in paths_in(&code) {
                let Some(target) = resolve(&own, &path, &modules) else { continue };
                if target == file {
                    continue;
                }
                let paths = graph.edges.entry(file.clone()).or_default().entry(target.clone()).or_default();
                paths.insert(path.join("::"));
                let target_module = module_of(target);
                if is_public && target_module.len() == own.len() + 1 && target_module.starts_with(&own) {
                    graph.faces.insert((file.clone(), target.clone()));
                }
            }
        }
        graph
    }

    /// Sets of files that reach each other, a parent and the children it is the face of taken as one.
    fn circles(&self) -> Vec<BTreeSet<&String>> {
        let imports =
            |from: &String, to: &String| self.edges.get(from).is_some_and(|targets| targets.contains_key(to));
        let mut node_of: BTreeMap<&String, &String> = BTreeMap::new();
        for (from, targets) in &self.edges {
            node_of.insert(from, from);
            targets.keys().for_each(|to| {
                node_of.insert(to, to);
            });
        }
        // Joined until nothing changes: a face may itself be a child of a face.
        for _ in 0..self.faces.len() {
            for (parent, child) in &self.faces {
                if imports(child, parent) {
                    let (to, from) = (node_of[parent], node_of[child]);
                    node_of.values_mut().filter(|node| **node == from).for_each(|node| *node = to);
                }
            }
        }
        let nodes: BTreeSet<&String> = node_of.values().copied().collect();
        let mut reach: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
        for &start in &nodes {
            let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(node) = open.pop() {
                for (from, targets) in self.edges.iter().filter(|(from, _)| node_of[*from] == node) {
                    let others = targets.keys().map(|to| node_of[to]).filter(|to| *to != node_of[from]);
                    open.extend(others.filter(|to| seen.insert(*to)).collect::<Vec<_>>());
                }
            }
            reach.insert(start, seen);
        }
        let mut circles = BTreeSet::new();
        for &node in nodes.iter().filter(|node| reach[*node].contains(*node)) {
            let members: BTreeSet<&String> = node_of
                .iter()
                .filter(|(_, other)| {
                    **other == node || reach[node].contains(**other) && reach[**other].contains(node)
                })
                .map(|(file, _)| *file)
                .collect();
            circles.insert(members);
        }
        circles.into_iter().collect()
    }
}

/// `walker/stub.rs` is the module `walker::stub`, `walker/mod.rs` is `walker`, `lib.rs` and `main.rs` are the root.
pub fn module_of(file: &str) -> Vec<String> {
    let mut parts: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = parts.len() == 1 && matches!(parts[0].as_str(), "lib" | "main");
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// The paths that `code` imports, and whether it re-exports them.
fn paths_in(code: &str) -> Vec<(Vec<String>, bool)> {
    let mut paths = Vec::new();
    let mut inline = code.to_owned();
    for item in use_trees(code) {
        paths.extend(item.paths.iter().map(|path| (segments(path), item.is_public)));
        inline = inline.replacen(&item.text, " ", 1);
    }
    let inline = without_visibilities(&inline);
    for start in ["crate::", "super::"] {
        for (at, _) in inline.match_indices(start) {
            let before = inline[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let path: String =
                inline[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
            paths.push((segments(path.trim_end_matches(':')), false));
        }
    }
    paths
}

/// `pub(in super::super)` names a module without importing anything.
fn without_visibilities(code: &str) -> String {
    let mut parts = code.split("pub(in ");
    let mut kept = parts.next().unwrap_or("").to_owned();
    for part in parts {
        kept += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    kept
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The file that `path`, written in module `own`, leads to; `None` if it leads out of the crate.
fn resolve<'f>(
    own: &[String],
    path: &[String],
    modules: &BTreeMap<Vec<String>, &'f String>,
) -> Option<&'f String> {
    let mut base: Vec<String> = own.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        first => {
            base.push(first.to_owned());
            if !modules.contains_key(&base) {
                return None;
            }
            rest = &path[1..];
        }
    }
    for part in rest {
        base.push(part.clone());
        if !modules.contains_key(&base) {
            base.pop();
            break;
        }
    }
    modules.get(&base).copied()
}

#[test]
fn a_circle_is_noticed() {
    let check = |files: &[(&str, &str)], expect: &[&str]| {
        let files = files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        let complaints = complaints_of("a", &files);
        assert_eq!(complaints.len(), usize::from(!expect.is_empty()), "{complaints:?}");
        for edge in expect {
            assert!(complaints[0].contains(edge), "{complaints:?}");
        }
    };
    let lib = ("lib.rs", "mod a; mod b;");
    check(&[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "fn f() {}")], &[]);
    check(&[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "use super::a;")], &["a.rs -> b.rs", "b.rs -> a.rs"]);
    check(
        &[lib, ("a.rs", "use crate::{b::{B, C}};"), ("b.rs", "fn f() { crate::a::g() }")],
        &["crate::a::g"],
    );
    check(&[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a; }")], &[]);
    check(
        &[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "// crate::a\nfn f() -> &str { \"crate::a\" }")],
        &[],
    );
    check(&[lib, ("a.rs", "use crate::b::B;"), ("b.rs", "pub(in crate::a) fn f() {}")], &[]);
    check(&[("lib.rs", "mod a; use a::A;"), ("a.rs", "use crate::Other;")], &["a.rs -> lib.rs"]);
    check(&[("lib.rs", "mod a; pub use a::A;"), ("a.rs", "use crate::Other;")], &[]);
    let face = ("a/mod.rs", "mod c; pub use c::C;");
    check(
        &[face, ("a/c.rs", "use super::A; use crate::b::B;"), ("b.rs", "use crate::a::A;")],
        &["b.rs -> a/mod.rs"],
    );
    check(&[face, ("a/c.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")], &["a/mod.rs -> a/c.rs"]);
    check(&[face, ("a/c.rs", "use super::A;"), ("b.rs", "use crate::a::A;")], &[]);
}
