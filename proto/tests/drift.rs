//! The committed code is the one that was generated from the committed definition.

use std::fs;
use std::path::Path;

#[path = "support/checksum.rs"]
mod checksum;

#[test]
fn generated_code_belongs_to_the_definition() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let definition = fs::read_to_string(root.join("proto/profiler.proto")).expect("profiler.proto");
    let committed = fs::read_to_string(root.join("src/generated.rs")).expect("src/generated.rs");
    let (first_line, code) = committed.split_once('\n').expect("several lines");
    assert_eq!(
        format!("{first_line}\n"),
        checksum::line(&definition, code),
        "src/generated.rs is out of date; run: cargo run --manifest-path proto/generate/Cargo.toml"
    );
}
