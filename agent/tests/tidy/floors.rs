//! The floors of each crate: rooms in an order, short functions, few files at a root.
//!
//! Problem: a crate whose rooms use each other in both directions can only be understood whole.
//! Approach: each `lib.rs` and `main.rs` lists its rooms from the bottom up, in its opening comment, as "- [`room`]:
//! what it is". Imports may only lead down that list. Other rules count lines, parameters and files.
//! Invariant: what breaks a rule is named in a list of exceptions beside that rule, and an exception that nothing needs
//! is a complaint, so the lists only shrink.

use std::collections::{BTreeMap, BTreeSet};

use crate::circles::{CRATES, Graph, module_of, production_files};
use crate::settle;
use crate::source::{code_of, is_test, source_folder, sources, without_tests};

/// Words that announce the list of rooms.
const ROOMS: &str = "Rooms, from the bottom up";
/// Crates without rooms: a few files each.
const WITHOUT_ROOMS: &[&str] = &["java-tests", "java-tests/agct", "java-tests/hooks", "proto"];
/// Most files beside `lib.rs` or `main.rs` in a crate with rooms.
const ROOT_FILES: usize = 5;
/// Imports that lead up, as "crate: file -> file".
const UPWARD: &[&str] = &[];
/// Most lines of a function, from its first to its last brace.
const FUNCTION_LINES: usize = 80;
/// Longer functions, as "file: function".
const LONG_FUNCTIONS: &[&str] = &[];
/// Files whose functions take tuples, and how many such parameters each has.
const TUPLE_PARAMETERS: &[(&str, usize)] = &[("java-tests/agct/src/record.rs", 1)];
/// Files that the cargo feature of developers' hooks switches parts of.
const HOOKS: &[&str] = &["agent/src/hooks/mod.rs", "agent/options/src/kinds/debug.rs"];
/// Folders whose files may keep state behind a lock for the whole process.
const LOCKED_STATE: &[&str] = &[
    "agent/src/profile/",
    "agent/src/guest/",
    "agent/src/jvmti/",
    "agent/src/stack_api/",
    "java-tests/agct/",
];
/// Other files that do.
const LOCKED_STATICS: &[&str] = &[];
/// Modules in a file beside the folder of their children, instead of its `mod.rs`.
const BESIDE_FOLDER: &[&str] = &[];
/// Files that compile a file of another crate.
const FOREIGN_FILES: &[&str] = &["java-tests/agct/src/record.rs"];

#[test]
fn imports_lead_down_the_list_of_rooms() {
    let sources = sources();
    let mut complaints = Vec::new();
    let mut upward = BTreeSet::new();
    for name in CRATES.iter().filter(|name| !WITHOUT_ROOMS.contains(name)) {
        let files = production_files(name, &sources);
        let root =
            ["lib.rs", "main.rs"].into_iter().find_map(|root| files.get(root)).expect("a crate has a root");
        let rooms = rooms_in(root);
        complaints.extend(list_complaints(name, &rooms, &files));
        upward.extend(upward_imports(name, &rooms, &files));
    }
    complaints.extend(compare(&upward, UPWARD, "imports a room above its own"));
    settle(complaints);
}

#[test]
fn functions_are_short() {
    let mut long = BTreeSet::new();
    for (path, text) in production() {
        for (name, lines) in functions_in(&without_tests(&code_of(&text))) {
            if lines > FUNCTION_LINES {
                long.insert(format!("{path}: {name}"));
            }
        }
    }
    settle(compare(&long, LONG_FUNCTIONS, "is longer than 80 lines"));
}

#[test]
fn parameters_are_no_tuples() {
    let mut found = BTreeSet::new();
    for (path, text) in production() {
        let count = tuple_parameters(&without_tests(&code_of(&text)));
        if count > 0 {
            found.insert((path, count));
        }
    }
    let expected: BTreeSet<_> =
        TUPLE_PARAMETERS.iter().map(|(path, count)| (path.to_string(), *count)).collect();
    let differing = found.symmetric_difference(&expected);
    settle(
        differing
            .map(|(path, count)| {
                format!("{path}: {count} parameters are tuples; use a struct, or correct the list")
            })
            .collect(),
    );
}

#[test]
fn hooks_are_switched_in_few_files() {
    let switched = production().into_iter().filter(|(_, text)| text.contains("feature = \"hooks\""));
    let switched: BTreeSet<_> = switched.map(|(path, _)| path).collect();
    settle(compare(&switched, HOOKS, "is switched by the feature `hooks`"));
}

#[test]
fn no_file_is_compiled_into_another_crate() {
    let mut foreign = BTreeSet::new();
    for (path, text) in production() {
        let folder = CRATES
            .iter()
            .map(|name| source_folder(name))
            .find(|folder| path.starts_with(&format!("{folder}/")));
        let Some(folder) = folder else { continue };
        let depth = path[folder.len() + 1..].matches('/').count();
        let leaves = |line: &str| line.contains("#[path") && line.matches("../").count() > depth;
        if text.lines().any(leaves) {
            foreign.insert(path);
        }
    }
    settle(compare(&foreign, FOREIGN_FILES, "compiles a file of another crate"));
}

#[test]
fn state_behind_a_lock_is_in_few_rooms() {
    let elsewhere = |path: &str| !LOCKED_STATE.iter().any(|folder| path.starts_with(folder));
    let locked = production().into_iter().filter(|(path, text)| elsewhere(path) && has_locked_static(text));
    let locked: BTreeSet<_> = locked.map(|(path, _)| path).collect();
    settle(compare(&locked, LOCKED_STATICS, "has a static behind a lock"));
}

#[test]
fn a_module_with_children_is_a_folder() {
    let files: BTreeSet<_> = sources().into_iter().map(|(path, _)| path).collect();
    settle(compare(&beside_folder(&files), BESIDE_FOLDER, "is `mod.rs` in the folder of its children"));
}

fn has_locked_static(text: &str) -> bool {
    let code = without_tests(&code_of(text));
    let mut kinds = code.lines().filter_map(|line| line.split_once("static ")?.1.split_once(": "));
    kinds.any(|(_, kind)| ["Mutex<", "RwLock<"].iter().any(|lock| kind.starts_with(lock)))
}

/// The files beside a folder of the same name that has modules.
fn beside_folder(files: &BTreeSet<String>) -> BTreeSet<String> {
    let is_parent = |path: &&String| {
        let folder = format!("{}/", path.trim_end_matches(".rs"));
        files.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
    };
    files.iter().filter(is_parent).cloned().collect()
}

#[test]
fn hidden_state_and_modules_beside_their_folder_are_noticed() {
    assert!(has_locked_static("pub static A: Mutex<u8> = Mutex::new(0);"));
    assert!(has_locked_static("fn f() {\n    static A: RwLock<u8> = RwLock::new(0);\n}"));
    assert!(!has_locked_static("fn f(a: &'static Mutex<u8>) {}\nstatic B: OnceLock<u8> = OnceLock::new();"));
    let files = ["a.rs", "a/b.rs", "c.rs", "c/mod.rs", "d.rs", "d_e/f.rs"].map(str::to_owned);
    assert_eq!(beside_folder(&files.into()), BTreeSet::from(["a.rs".to_owned(), "c.rs".to_owned()]));
}

/// Files of our crates that are no tests and not generated.
fn production() -> Vec<(String, String)> {
    let is_production =
        |path: &str| !is_test(path) && !path.ends_with("generated.rs") && path.contains("/src/");
    sources().into_iter().filter(|(path, _)| is_production(path)).collect()
}

/// Complaints about what breaks a rule without an exception, and about exceptions without need.
fn compare(found: &BTreeSet<String>, exceptions: &[&str], fault: &str) -> Vec<String> {
    let new = found.iter().filter(|item| !exceptions.contains(&item.as_str()));
    let stale = exceptions.iter().filter(|item| !found.contains(**item));
    new.map(|item| format!("{item}: {fault}"))
        .chain(stale.map(|item| format!("{item}: take it from the list of exceptions, it keeps the rule")))
        .collect()
}

// ---------------------------------------------------------------- rooms

/// The rooms that the opening comment of `root` lists, from the bottom up.
fn rooms_in(root: &str) -> Vec<String> {
    let comment = root.lines().take_while(|line| line.starts_with("//!")).map(|line| line[3..].trim());
    let list = comment.skip_while(|line| !line.contains(ROOMS)).skip(1);
    let list = list.skip_while(|line| line.is_empty());
    let items = list.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("- "));
    items.filter_map(|item| item.split('`').nth(1)).map(str::to_owned).collect()
}

/// The room of a file: its folder at the root of the crate, or the file itself; `None` for the root.
fn room_of(file: &str) -> Option<&str> {
    match file.split_once('/') {
        Some((folder, _)) => Some(folder),
        None => Some(file.trim_end_matches(".rs")).filter(|name| !matches!(*name, "lib" | "main")),
    }
}

fn list_complaints(name: &str, rooms: &[String], files: &BTreeMap<String, String>) -> Vec<String> {
    let there: BTreeSet<&str> = files.keys().filter_map(|file| room_of(file)).collect();
    let unlisted = there.iter().filter(|room| !rooms.iter().any(|listed| listed == *room));
    let gone = rooms.iter().filter(|room| !there.contains(room.as_str()));
    let at_root = files.keys().filter(|file| !file.contains('/') && room_of(file).is_some()).count();
    let crowded = (at_root > ROOT_FILES)
        .then(|| format!("{name}: {at_root} files beside the root, more than {ROOT_FILES}"));
    unlisted
        .map(|room| format!("{name}: the room `{room}` is not in the list of rooms"))
        .chain(gone.map(|room| format!("{name}: the list of rooms has `{room}`, which does not exist")))
        .chain(crowded)
        .collect()
}

fn upward_imports(name: &str, rooms: &[String], files: &BTreeMap<String, String>) -> Vec<String> {
    let floor = |file: &str| rooms.iter().position(|room| Some(room.as_str()) == room_of(file));
    let graph = Graph::of(files);
    let edges = graph.edges.iter().flat_map(|(from, targets)| targets.keys().map(move |to| (from, to)));
    let upward =
        edges.filter(|(from, to)| matches!((floor(from), floor(to)), (Some(from), Some(to)) if from < to));
    upward.map(|(from, to)| format!("{name}: {from} -> {to}")).collect()
}

#[test]
fn an_import_that_leads_up_is_noticed() {
    let root = "//! A crate.\n//!\n//! Rooms, from the bottom up:\n//! - [`low`]: one.\n//! - `high`: two.\n//!\n//! - `no`: x.\n";
    let rooms = rooms_in(root);
    assert_eq!(rooms, ["low", "high"]);
    let files = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
        entries.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
    };
    let check = |entries: &[(&str, &str)], expect: &[&str]| {
        assert_eq!(upward_imports("a", &rooms, &files(entries)), expect, "{entries:?}");
    };
    let lib = ("lib.rs", "mod low; mod high; use low::B; use high::A;");
    check(&[lib, ("high.rs", "use crate::low::x::X;"), ("low/mod.rs", "mod x;"), ("low/x.rs", "")], &[]);
    check(
        &[lib, ("high.rs", ""), ("low/mod.rs", "mod x;"), ("low/x.rs", "use crate::high::Y;")],
        &["a: low/x.rs -> high.rs"],
    );
    check(&[lib, ("high.rs", ""), ("low.rs", "#[cfg(test)] mod tests { use crate::high::Y; }")], &[]);
    let listed = list_complaints("a", &rooms, &files(&[lib, ("low.rs", ""), ("new.rs", "")]));
    assert!(listed.len() == 2 && listed[0].contains("`new`") && listed[1].contains("`high`"), "{listed:?}");
    let many = [("a.rs", ""), ("b.rs", ""), ("c.rs", ""), ("d.rs", ""), ("e.rs", ""), ("f.rs", "")];
    assert!(list_complaints("a", &[], &files(&many)).last().is_some_and(|text| text.contains("6 files")));
    assert_eq!(module_of("low/mod.rs"), ["low"]);
}

#[test]
fn an_exception_without_need_is_noticed() {
    let found = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert!(compare(&found, &["a", "b"], "is bad").is_empty());
    assert_eq!(compare(&found, &["a"], "is bad"), ["b: is bad"]);
    assert!(compare(&found, &["a", "b", "c"], "is bad")[0].starts_with("c: take it"));
}

// ---------------------------------------------------------------- functions

/// The functions in `code`, each with the number of lines from its `fn` to its last brace.
fn functions_in(code: &str) -> Vec<(String, usize)> {
    let mut functions = Vec::new();
    for (name, signature, body) in signatures_in(code) {
        let lines = code[signature..body + block_length(&code[body..])].lines().count();
        functions.push((name, lines));
    }
    functions
}

/// Name of each function with a body, and where its name and its body begin.
fn signatures_in(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let start = at + "fn ".len();
        let name: String = code[start..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // Array types and defaults of constants hold semicolons and braces only inside brackets.
        let mut depth = 0_i32;
        let end = code[start..].char_indices().find(|(_, c)| {
            match c {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(c, '{' | ';')
        });
        if let Some((length, '{')) = end.filter(|_| !name.is_empty()) {
            found.push((name, start, start + length));
        }
    }
    found
}

/// Length of the block that `code` begins with.
fn block_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Number of parameters of functions that are tuples of two or more values, bare or behind a reference.
fn tuple_parameters(code: &str) -> usize {
    let mut count = 0;
    for (_, start, body) in signatures_in(code) {
        for parameter in parameters_of(&code[start..body]) {
            let Some((_, kind)) = split_pattern(&parameter) else { continue };
            let kind = kind.trim_start_matches('&').trim_start_matches("mut ").trim();
            count += usize::from(kind.starts_with('(') && kind.ends_with(')') && kind.contains(','));
        }
    }
    count
}

/// The parameters of a signature that begins at the function's name.
fn parameters_of(signature: &str) -> Vec<String> {
    // Bounds in angle brackets may hold parentheses, as in `F: Fn(A)`.
    let (mut angle, mut depth, mut parameters, mut current) = (0_i32, 0_i32, Vec::new(), String::new());
    let mut previous = ' ';
    for character in signature.chars() {
        match character {
            '<' => angle += 1,
            '>' if previous != '-' && previous != '=' => angle -= 1,
            _ => {}
        }
        let opens = matches!(character, '(' | '[' | '{');
        let closes = matches!(character, ')' | ']' | '}');
        if depth == 0 && angle > 0 {
            previous = character;
            continue;
        }
        if closes {
            depth -= 1;
            if depth == 0 {
                break;
            }
        }
        if depth == 1 && angle == 0 && character == ',' {
            parameters.push(std::mem::take(&mut current));
        } else if depth > 0 {
            current.push(character);
        }
        depth += i32::from(opens);
        previous = character;
    }
    parameters.push(current);
    parameters.retain(|parameter| !parameter.trim().is_empty());
    parameters
}

/// Splits `pattern: Type` at the colon that is no part of a path.
fn split_pattern(parameter: &str) -> Option<(&str, &str)> {
    let mut depth = 0_i32;
    let mut characters = parameter.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '(' | '[' | '<' | '{' => depth += 1,
            ')' | ']' | '>' | '}' => depth -= 1,
            ':' if depth == 0 => match characters.peek() {
                Some((_, ':')) => {
                    characters.next();
                }
                _ => return Some((parameter[..at].trim(), parameter[at + 1..].trim())),
            },
            _ => {}
        }
    }
    None
}

#[test]
fn a_long_function_is_noticed() {
    let long = format!(
        "fn short() {{ 1 }}\nimpl A {{\n    pub fn long(&self) -> [u8; 2] {{\n{}    }}\n}}",
        "        x();\n".repeat(79)
    );
    assert_eq!(functions_in(&long), [("short".to_owned(), 1), ("long".to_owned(), 81)]);
    assert!(functions_in("trait A { fn a(&self); }").is_empty());
}

#[test]
fn a_parameter_that_is_a_tuple_is_noticed() {
    let check = |code: &str, expect: usize| assert_eq!(tuple_parameters(code), expect, "{code}");
    check("fn f((a, b): (u8, u8)) {}", 1);
    check("fn f(&self, pair: &(u8, Vec<u8>), other: (u8, u8)) {}", 2);
    check("fn f<F: Fn((u8, u8)) -> u8>(f: F, g: impl Fn((u8, u8)) -> u8) -> (u8, u8) {}", 0);
    check("fn f(list: &[(u8, u8)], map: Map<(u8, u8), u8>, unit: ()) {}", 0);
    check("fn f(a: a::B, (c,): (u8,), d: &mut (u8, u8)) {}", 2);
}
