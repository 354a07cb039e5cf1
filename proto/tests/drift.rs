//! The committed code equals the code generated from the definition.
//!
//! `TICKWALK_REGENERATE=1 cargo test -p proto --test drift` rewrites `src/generated.rs` instead of comparing.

use std::fs;
use std::path::Path;

#[test]
fn generated_code_matches_the_definition() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("temporary directory");
    let descriptors = protox::compile(["profiler.proto"], [root.join("proto")]).expect("valid definition");
    prost_build::Config::new().out_dir(out.path()).compile_fds(descriptors).expect("code generation");
    let generated = fs::read_to_string(out.path().join("tickwalk.v1.rs")).expect("generated file");

    let committed = root.join("src/generated.rs");
    if std::env::var_os("TICKWALK_REGENERATE").is_some_and(|value| value == "1") {
        fs::write(&committed, &generated).expect("write src/generated.rs");
        return;
    }
    let committed = fs::read_to_string(&committed).expect("src/generated.rs");
    assert!(
        generated == committed,
        "src/generated.rs is out of date: run TICKWALK_REGENERATE=1 cargo test -p proto --test drift"
    );
}
