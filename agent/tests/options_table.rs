//! The table of options in `docs/options.md` is the one of the code.
//!
//! `TICKWALK_REGENERATE=1 cargo test -p agent --test options_table` rewrites it.

use std::fs;
use std::path::Path;

use tickwalk::options::table::{AgentOption, OPTIONS};

const HEAD: &str = "| option | default | range | meaning |\n|---|---|---|---|\n";

fn row(option: &AgentOption) -> String {
    let AgentOption { name, value, default, range, meaning, .. } = option;
    let equals = if value.is_empty() { "" } else { "=" };
    format!("| `{name}{equals}{value}` | {default} | {range} | {meaning} |\n")
        .replace("|  |", "| |")
        .replace("|  |", "| |")
}

#[test]
fn page_has_the_table_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/options.md");
    let page = fs::read_to_string(&path).expect("docs/options.md");
    let (before, rest) = page.split_once(HEAD).expect("the head of the table");
    let end = rest.find("\n\n").expect("the end of the table") + 1;
    let table: String = OPTIONS.iter().map(row).collect();
    if std::env::var_os("TICKWALK_REGENERATE").is_some_and(|value| value == "1") {
        fs::write(&path, [before, HEAD, &table, &rest[end..]].concat()).expect("written");
    }
    let page = fs::read_to_string(&path).expect("docs/options.md");
    assert!(
        page.contains(&format!("{HEAD}{table}\n")),
        "the table of options in docs/options.md is not that of the code"
    );
}
