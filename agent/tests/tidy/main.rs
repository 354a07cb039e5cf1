//! The architecture as a test: allowed dependencies, files with `unsafe`, imports of the handler.
//!
//! Problem: rules that only a document states are soon broken.
//! Approach: each rule is a function from text to complaints, run over this workspace and, to show that it can
//! fail, over a small text that breaks it.
//! Invariant: a rule about a file that does not exist is a complaint, never a pass.
//!
//! Source: rust-analyzer, `xtask/src/tidy.rs`.

mod architecture;
mod circles;
mod documents;
mod floors;
mod history;
mod source;
mod twins;
mod words;

use std::collections::BTreeSet;
use std::env;
use std::process::Command;

use source::{code_of, has_token, imports, is_test, read, source_folder, sources, without_tests, workspace};

/// Normal and build dependencies among our crates; nothing else is allowed.
const EDGES: &[(&str, &[&str])] = &[
    ("agent", &["agent-options", "sampler-thread", "queue", "stackwalk", "profile", "developer-hooks"]),
    ("agent-options", &["sampler-thread", "queue", "profile"]),
    ("sampler-thread", &["queue", "stackwalk", "proto"]),
    ("cli", &["agent-options", "collector", "lake", "profile"]),
    ("collector", &["lake", "profile", "proto"]),
    ("lake", &["profile", "proto"]),
    ("profile", &["proto"]),
    ("queue", &[]),
    ("stackwalk", &[]),
    ("stackwalk-aarch64", &[]),
    ("proto", &[]),
    ("java-tests", &[]),
    ("developer-hooks", &["sampler-thread", "stackwalk", "proto"]),
    ("agct", &["agent", "sampler-thread", "stackwalk", "proto"]),
];

/// Crates inside the folder of another one.
const NESTED: &[&str] = &["agent-options", "lake", "agct", "developer-hooks", "stackwalk-aarch64"];

/// Files, and folders ending in a slash, that may contain `unsafe`; changed only by a decision in `design/`.
const UNSAFE_ALLOWED: &[&str] = &[
    "queue/src/ring/spsc.rs",
    "queue/src/pool/slabs.rs",
    "queue/src/pool/prefetch.rs",
    "queue/src/ring/thread_queue.rs",
    "stackwalk/src/memory/live.rs",
    "stackwalk/src/memory/safe_fetch.rs",
    "agent/src/lib.rs",
    "agent/src/clock/descriptors/mod.rs",
    "agent/src/clock/perf_event.rs",
    "agent/src/clock/timer.rs",
    "agent/src/dumps/hold.rs",
    "agent/src/dumps/request.rs",
    "agent/src/guest/large_blocks.rs",
    "agent/src/guest/mappings.rs",
    "agent/src/guest/scheduling.rs",
    "agent/src/handler/",
    "agent/src/hooks/",
    "agent/src/jvmti/",
    "agent/src/profile/events.rs",
    "agent/src/profile/pauses.rs",
    "agent/src/program_api/c.rs",
    "agent/src/program_api/java.rs",
    "agent/src/stack_api/",
    "agent/src/vm/chunks.rs",
    "agent/examples/rust_profiler.rs",
    "agent/include/iterator/profile2.rs",
    "java-tests/agct/src/",
];

/// Crates that forbid `unsafe` altogether.
const UNSAFE_FORBIDDEN: &[&str] = &[
    "sampler-thread",
    "proto",
    "agent/options",
    "collector",
    "collector/lake",
    "profile",
    "cli",
    "java-tests",
    "java-tests/hooks",
];

/// The only folder of the walker that depends on a CPU.
const CPU_SEAM: &str = "stackwalk/src/cpu/";
/// Registers of x86-64 and aarch64.
const CPU_REGISTERS: &[&str] = &[
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "x12", "x13", "x19", "x20", "x22", "x28", "x29", "x30", "lr",
];

const HANDLER: &str = "agent/src/handler/on_tick.rs";
const HANDLER_LINES: usize = 150;
const HANDLER_IMPORTS: &[&str] = &[
    "core",
    "libc",
    "queue",
    "super::errno",
    "super::expiration",
    "super::ucontext",
    "super::mounted",
    "super::own_stack",
    "super::snapshot",
    "crate::handler::slots",
];
/// Files that run in signal handlers: the same bans apply.
const HANDLER_SIBLINGS: &[&str] = &[
    "agent/src/handler/errno.rs",
    "agent/src/handler/expiration.rs",
    "agent/src/clock/descriptors/mod.rs",
    "agent/src/handler/draw/mod.rs",
    "agent/src/clock/drift/mod.rs",
    "agent/src/dumps/request.rs",
    "agent/src/clock/grid/mod.rs",
    "agent/src/handler/ucontext.rs",
    "agent/src/handler/cpu/aarch64.rs",
    "agent/src/handler/cpu/x86_64.rs",
    "agent/src/handler/frozen.rs",
    "agent/src/handler/heap.rs",
    "agent/src/handler/mounted.rs",
    "agent/src/handler/own_stack.rs",
    "agent/src/handler/snapshot.rs",
    "agent/src/stack_api/api.rs",
    "agent/src/stack_api/callback.rs",
    "agent/src/stack_api/entry.rs",
    "agent/src/stack_api/info.rs",
    "agent/src/stack_api/iterator.rs",
    "agent/src/stack_api/memos.rs",
    "agent/src/stack_api/queues.rs",
    "agent/src/stack_api/subject.rs",
    "agent/src/stack_api/threads.rs",
    "agent/src/stack_api/trace.rs",
    "agent/src/stack_api/walk.rs",
    "stackwalk/src/hotspot/committed.rs",
];
/// Lints that those files and the handler deny.
const HANDLER_LINTS: &[&str] = &[
    "clippy::indexing_slicing",
    "clippy::arithmetic_side_effects",
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::panic",
];
/// Identifiers that allocate, lock, log or panic. They match whole words only: `unwrap_or` is not `unwrap`.
const HANDLER_BANNED: &[&str] = &[
    "Box",
    "Vec",
    "String",
    "format!",
    "println",
    "tracing",
    "unwrap",
    "expect(",
    "panic!",
    "thread_local",
    "Mutex",
    "lock(",
];

/// Most lines of a file; tests and generated code are exempt.
const SOURCE_LINES: usize = 800;
/// Unfinished work and switched-off tests. Written in two parts so that this file passes.
const MARKERS: &[&str] =
    &[concat!("todo", "!"), concat!("unimplemented", "!"), concat!("FIX", "ME"), concat!("#[", "ignore")];

// ---------------------------------------------------------------- the rules, over this workspace

#[test]
fn crates_depend_only_on_what_they_may() {
    settle(edge_complaints(&workspace_edges()));
}

#[test]
fn unsafe_lives_only_where_it_may() {
    let mut complaints = Vec::new();
    for (path, text) in sources() {
        if !is_test(&path) && has_token(&code_of(&text), "unsafe") && !may_be_unsafe(&path) {
            complaints.push(format!("{path}: contains `unsafe`; allowed only in {UNSAFE_ALLOWED:?}"));
        }
    }
    for name in UNSAFE_FORBIDDEN {
        let roots = ["lib.rs", "main.rs"].map(|file| format!("{}/{file}", source_folder(name)));
        let texts: Vec<_> = roots.iter().filter_map(|root| Some((root, read(root)?))).collect();
        if texts.is_empty() {
            complaints.push(format!("{name}: neither {} nor {} exists", roots[0], roots[1]));
        }
        let lax = texts.into_iter().filter(|(_, text)| !forbids_unsafe(text));
        complaints.extend(lax.map(|(root, _)| format!("{root}: lacks #![forbid(unsafe_code)]")));
    }
    let missing = UNSAFE_ALLOWED.iter().filter(|path| !workspace().join(path).exists());
    complaints
        .extend(missing.map(|path| format!("{path}: named in the list for `unsafe` but does not exist")));
    settle(complaints);
}

#[test]
fn the_handler_is_short_and_uses_little() {
    settle(match read(HANDLER) {
        Some(text) => handler_complaints(&text),
        None => vec![format!("{HANDLER}: does not exist")],
    });
}

#[test]
fn functions_of_the_handler_obey_its_rules() {
    let complaints = HANDLER_SIBLINGS.iter().chain([&HANDLER]).flat_map(|path| match read(path) {
        Some(text) => sibling_complaints(path, &text, &roots_above(path)),
        None => vec![format!("{path}: does not exist")],
    });
    settle(complaints.collect());
}

#[test]
fn files_are_finished_and_not_too_long() {
    let sources = sources();
    assert!(sources.len() > 20, "found {} source files: the walk is broken", sources.len());
    settle(sources.iter().flat_map(|(path, text)| file_complaints(path, text)).collect());
}

fn settle(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

// ---------------------------------------------------------------- dependencies

/// One dependency of one of our crates on another.
struct Edge {
    from: String,
    to: String,
    dev: bool,
}

fn workspace_edges() -> Vec<Edge> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("metadata lists packages");
    let name_of = |value: &serde_json::Value| value["name"].as_str().expect("packages have names").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name_of).collect();
    assert_eq!(ours, EDGES.iter().map(|(name, _)| name.to_string()).collect(), "crates of the workspace");
    let mut edges = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().expect("packages list dependencies") {
            let (from, to) = (name_of(package), name_of(dependency));
            if ours.contains(&to) {
                edges.push(Edge { from, to, dev: dependency["kind"] == "dev" });
            }
        }
    }
    edges
}

fn edge_complaints(edges: &[Edge]) -> Vec<String> {
    let may = |edge: &Edge| {
        // The Java tests talk to processes; even their own tests link nothing of ours.
        let free = edge.dev && edge.from != "java-tests";
        let allowed = EDGES.iter().find(|(from, _)| *from == edge.from).map_or(&[][..], |(_, to)| to);
        free || allowed.contains(&edge.to.as_str())
    };
    let wrong = edges.iter().filter(|edge| !may(edge));
    wrong.map(|edge| format!("{} must not depend on {}", edge.from, edge.to)).collect()
}

#[test]
fn a_forbidden_edge_is_noticed() {
    let edge = |from: &str, to: &str, dev| Edge { from: from.into(), to: to.into(), dev };
    let check = |edge: Edge, allowed: bool| {
        let complaints = edge_complaints(&[edge]);
        assert_eq!(complaints.is_empty(), allowed, "{complaints:?}");
    };
    check(edge("agent", "queue", false), true);
    check(edge("agent", "proto", false), false);
    check(edge("queue", "stackwalk", false), false);
    check(edge("queue", "stackwalk", true), true);
    check(edge("java-tests", "collector", true), false);
    check(edge("newcomer", "queue", false), false);
}

// ---------------------------------------------------------------- unsafe

fn may_be_unsafe(path: &str) -> bool {
    let covers = |allowed: &str| path == allowed || allowed.ends_with('/') && path.starts_with(allowed);
    UNSAFE_ALLOWED.iter().any(|allowed| covers(allowed))
}

fn forbids_unsafe(text: &str) -> bool {
    let code: String = code_of(text).split_whitespace().collect();
    code.contains("#![forbid(unsafe_code)]")
}

#[test]
fn unsafe_is_noticed_in_code_only() {
    let check = |text: &str, expect: bool| assert_eq!(has_token(&code_of(text), "unsafe"), expect, "{text}");
    check("fn f() { unsafe { g() } }", true);
    check("unsafe impl Send for A {}", true);
    check(
        "// unsafe\n/* unsafe /* nested */ unsafe */ let a = \"unsafe \\\" unsafe\"; #![deny(unsafe_code)]",
        false,
    );
    check("let a = r#\"a \" unsafe\"#; let b = b\"unsafe\"; let c = '\"'; f::<'a>(\"unsafe\")", false);
    check("let quote = '\"'; unsafe {} // \"", true);
    check("fn f<'a>(x: &'a str) { unsafe {} }", true);
    assert!(may_be_unsafe("agent/src/jvmti/raw.rs") && may_be_unsafe("queue/src/pool/slabs.rs"));
    assert!(!may_be_unsafe("queue/src/pool/plan.rs") && !may_be_unsafe("agent/src/signals.rs"));
    assert!(forbids_unsafe("#![forbid(unsafe_code)]") && !forbids_unsafe("// #![forbid(unsafe_code)]"));
    assert!(!forbids_unsafe("#![deny(unsafe_code)]"));
}

// ---------------------------------------------------------------- the seam to the CPU

#[test]
fn only_the_seam_names_registers() {
    let sources = sources();
    let stackwalk = sources.iter().filter(|(path, _)| path.starts_with("stackwalk/src/") && !is_test(path));
    settle(stackwalk.flat_map(|(path, text)| register_complaints(path, text)).collect());
}

fn register_complaints(path: &str, text: &str) -> Vec<String> {
    if path.starts_with(CPU_SEAM) {
        return Vec::new();
    }
    let code = without_tests(&code_of(text));
    let named = CPU_REGISTERS.iter().filter(|register| has_token(&code, register));
    named.map(|register| format!("{path}: names the register `{register}`; only {CPU_SEAM} may")).collect()
}

#[test]
fn a_register_outside_of_the_seam_is_noticed() {
    let check = |path: &str, text: &str, complaints: usize| {
        assert_eq!(register_complaints(path, text).len(), complaints, "{text}");
    };
    check("stackwalk/src/walker/a.rs", "fn f() { capture.rbx + rsp }", 2);
    check("stackwalk/src/cpu/x86_64/a.rs", "fn f() { capture.rbx }", 0);
    check("stackwalk/src/a.rs", "// rbx\nfn f() { \"rbx\"; r12_to_r15 }\n#[cfg(test)] mod tests { rbx }", 0);
}

// ---------------------------------------------------------------- the handler

fn handler_complaints(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > HANDLER_LINES {
        complaints.push(format!("{HANDLER}: {lines} lines, more than {HANDLER_LINES}"));
    }
    let code = code_of(text);
    for path in imports(&code) {
        let within = |allowed: &str| path == allowed || path.starts_with(&format!("{allowed}::"));
        if !HANDLER_IMPORTS.iter().any(|allowed| within(allowed)) {
            complaints.push(format!("{HANDLER}: imports {path}; allowed are {HANDLER_IMPORTS:?}"));
        }
    }
    let banned = HANDLER_BANNED.iter().filter(|banned| has_token(&code, banned));
    complaints.extend(banned.map(|banned| format!("{HANDLER}: uses `{banned}`")));
    complaints
}

/// Returns the text of the module roots in the folders above a file, whose lints the file inherits.
fn roots_above(path: &str) -> String {
    let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
    folders.filter_map(|folder| read(&format!("{folder}/mod.rs"))).collect()
}

fn sibling_complaints(path: &str, text: &str, roots: &str) -> Vec<String> {
    let (code, roots) = (code_of(text), code_of(roots));
    let denies = |code: &str, lint: &str| {
        let attributes = code.split("#![deny(").skip(1).filter_map(|rest| rest.split_once(")]"));
        attributes.into_iter().any(|(lints, _)| lints.contains(lint))
    };
    let is_denied =
        |lint: &str| denies(&code, lint) || denies(&roots, lint) && !code.contains("#![allow(clippy");
    let missing = HANDLER_LINTS.iter().filter(|lint| !is_denied(lint));
    let banned = HANDLER_BANNED.iter().filter(|banned| has_token(&code, banned));
    missing
        .map(|lint| format!("{path}: does not deny {lint}"))
        .chain(banned.map(|banned| format!("{path}: uses `{banned}`")))
        .collect()
}

#[test]
fn a_lax_sibling_of_the_handler_is_noticed() {
    let strict = format!("#![deny({})]\nfn f() {{}}", HANDLER_LINTS.join(", "));
    assert!(sibling_complaints("a.rs", &strict, "").is_empty());
    assert!(sibling_complaints("a.rs", "fn f() {}", &strict).is_empty());
    let lax = "#![allow(clippy::panic)]\nfn f() {}";
    assert!(sibling_complaints("a.rs", lax, &strict).len() == HANDLER_LINTS.len());
    assert!(sibling_complaints("a.rs", &strict.replace("clippy::panic", "clippy::all"), "").len() == 1);
    assert!(
        sibling_complaints("a.rs", &format!("{strict} fn g() {{ Vec::new(); }}"), "")[0].contains("`Vec`")
    );
    assert!(sibling_complaints("a.rs", "fn f() {}", "").len() == HANDLER_LINTS.len());
}

#[test]
fn a_handler_that_does_too_much_is_noticed() {
    let check = |text: &str, expect: &str| {
        let complaints = handler_complaints(text).join("\n");
        assert!(
            if expect.is_empty() { complaints.is_empty() } else { complaints.contains(expect) },
            "{complaints}"
        );
    };
    check(
        "use core::{mem, ptr};\nuse super::ucontext::{self, pc};\nuse crate::handler::slots::Slot;\nuse libc;",
        "",
    );
    check("x.checked_add(1).unwrap_or(0); block(); // Vec, panic!\n#![deny(clippy::unwrap_used)]", "");
    check("use std::sync::Arc;", "imports std::sync::Arc");
    check("use {core::mem, std::fmt};", "imports std::fmt");
    check(
        "use crate::{handler::slots::Slot, profile::session::{self, Session}};",
        "imports crate::profile::session::Session",
    );
    check("use corelib::x;", "imports corelib::x");
    check("pub(crate) use super::ucontexts;", "imports super::ucontexts");
    check("fn f() { x.unwrap(); }", "`unwrap`");
    check("let a = Box::new(1);", "`Box`");
    check("let a = format!(\"{a}\");", "`format!`");
    check("a.lock().expect(\"b\");", "`lock(`");
    check("a.lock().expect(\"b\");", "`expect(`");
    check(&"\n".repeat(HANDLER_LINES + 1), "more than 150");
}

// ---------------------------------------------------------------- files

fn file_complaints(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > SOURCE_LINES && !is_test(path) && !path.ends_with("/generated.rs") {
        complaints.push(format!("{path}: {lines} lines, more than {SOURCE_LINES}"));
    }
    let code = code_of(text);
    for marker in MARKERS {
        // Comments count only for a marker that is written in comments.
        let searched = if marker.chars().all(char::is_alphabetic) { text } else { &code };
        if has_token(searched, marker) {
            complaints.push(format!("{path}: contains {marker}"));
        }
    }
    complaints
}

#[test]
fn unfinished_and_overlong_files_are_noticed() {
    let long = "\n".repeat(SOURCE_LINES + 1);
    let check = |path: &str, text: &str, complaints: usize| {
        assert_eq!(file_complaints(path, text).len(), complaints, "{path}");
    };
    check("a/src/lib.rs", &long, 1);
    check("a/src/lib.rs", &long[1..], 0);
    check("a/tests/a.rs", &long, 0);
    check("a/src/a/tests.rs", &long, 0);
    check("a/src/generated.rs", &long, 0);
    check("a/src/a.rs", concat!("fn f() { to", "do!() } // FIX", "ME later"), 2);
    check("a/tests/a.rs", concat!("#[", "ignore = \"slow\"] fn f() { unimple", "mented!() }"), 2);
    check("a/src/a.rs", "// One may write todo! in a comment.", 0);
}
