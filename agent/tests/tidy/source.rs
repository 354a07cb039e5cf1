//! Reads the workspace's Rust files as text, and their code without comments and literals.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{EDGES, NESTED};

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the agent lies in the workspace").to_owned()
}

pub fn read(path: &str) -> Option<String> {
    fs::read_to_string(workspace().join(path)).ok()
}

/// Returns the folder of a crate's library or command, relative to the workspace.
pub fn source_folder(name: &str) -> String {
    match name {
        "java-tests" => "java-tests/harness".to_owned(),
        _ => format!("{name}/src"),
    }
}

/// Returns whether the rules for production code exempt this file.
pub fn is_test(path: &str) -> bool {
    let in_folder = |folder: &str| path.split('/').any(|part| part == folder);
    ["tests", "benches", "fuzz"].into_iter().any(in_folder) || path.ends_with("/tests.rs")
}

/// Returns all Rust files of our crates: path relative to the workspace, and text.
pub fn sources() -> Vec<(String, String)> {
    files(&["rs"])
}

/// Returns the files of our crates whose names end in one of `endings`: path relative to the workspace, and text.
pub fn files(endings: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let crates = EDGES.iter().map(|(name, _)| name).filter(|name| !NESTED.contains(name));
    let mut folders: Vec<PathBuf> = crates.map(|name| workspace().join(name)).collect();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("folders are readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending)) {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                let path =
                    path.strip_prefix(workspace()).expect("found below it").to_string_lossy().into_owned();
                files.push((path, text));
            }
        }
    }
    files.sort();
    // The files of a nested crate were found twice.
    files.dedup();
    files
}

/// Returns the position of `token` in `code` as whole words.
pub fn find_token(code: &str, token: &str) -> Option<usize> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |&(at, _): &(usize, &str)| {
        let before = code[..at].chars().next_back().is_some_and(word) && token.starts_with(word);
        let after = code[at + token.len()..].chars().next().is_some_and(word) && token.ends_with(word);
        !before && !after
    };
    code.match_indices(token).find(whole).map(|(at, _)| at)
}

pub fn has_token(code: &str, token: &str) -> bool {
    find_token(code, token).is_some()
}

/// Returns `text` without comments and without the contents of strings and characters.
pub fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else if let Some(length) = raw_string(rest).filter(|_| !ends_in_word(&code)) {
            length
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

fn ends_in_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the length of the block comment, nested ones included, that `text` begins with.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns the length of the literal that `text` begins with and the next unescaped `quote` ends.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns whether `text` begins with a character literal, not a lifetime.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

/// Returns the length of the raw string, with its prefix, that `text` begins with.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let body = text[prefix.len()..].trim_start_matches('#');
    let hashes = text.len() - prefix.len() - body.len();
    let inner = body.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(inner.find(&end).map_or(text.len(), |at| prefix.len() + hashes + 1 + at + end.len()))
}

/// One `use` item.
pub struct UseTree {
    /// Its text from `use` to the semicolon.
    pub text: String,
    /// The paths it imports, groups expanded, without renamings.
    pub paths: Vec<String>,
    /// True if the item re-exports the paths to other modules.
    pub is_public: bool,
}

/// Returns the `use` items of `code`.
pub fn use_trees(code: &str) -> Vec<UseTree> {
    let mut items = Vec::new();
    let mut rest = code;
    while let Some(at) = find_token(rest, "use") {
        let before = rest[..at].trim_end();
        let visibility = before.rsplit([';', '}', '{', ']']).next().unwrap_or("").trim();
        let tail = &rest[at + "use".len()..];
        let tree = tail.split(';').next().unwrap_or("");
        let mut paths = Vec::new();
        let renamed = tree.replace('\n', " ");
        let tree_text: String = without_renaming(&renamed).split_whitespace().collect();
        expand("", &tree_text, &mut paths);
        items.push(UseTree { text: format!("use{tree};"), paths, is_public: visibility.starts_with("pub") });
        rest = tail;
    }
    items
}

/// Returns all paths that the `use` items of `code` import, groups expanded.
pub fn imports(code: &str) -> Vec<String> {
    use_trees(code).into_iter().flat_map(|item| item.paths).collect()
}

/// Removes ` as C` from `a::B as C, d`.
fn without_renaming(tree: &str) -> String {
    let mut parts = tree.split(" as ");
    let mut text = parts.next().unwrap_or("").to_owned();
    for part in parts {
        text += part.trim_start().trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    }
    text
}

/// Returns `code` without the items under `#[cfg(test)]`.
pub fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept += &rest[..at];
        rest = &rest[at..];
        let end = rest.find([';', '{']).map_or(rest.len(), |end| match rest.as_bytes()[end] {
            b'{' => end + block(&rest[end..]),
            _ => end + 1,
        });
        rest = &rest[end..];
    }
    kept + rest
}

/// Returns the length of the block, nested ones included, that `code` begins with.
fn block(code: &str) -> usize {
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

fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, group)) = tree.split_once('{') else {
        let path = format!("{prefix}{tree}");
        paths.push(path.trim_start_matches("::").trim_end_matches("::self").to_owned());
        return;
    };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in group.char_indices().chain([(group.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if at > start {
                    expand(&format!("{prefix}{head}"), &group[start..at], paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}
