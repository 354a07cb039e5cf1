//! Writes `src/generated.rs` of the crate `proto` from its definition, `proto/profiler.proto`.

use std::path::Path;

#[path = "../../tests/support/checksum.rs"]
mod checksum;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate `proto`");
    let out = tempfile::tempdir().expect("temporary directory");
    let descriptors = protox::compile(["profiler.proto"], [root.join("proto")]).expect("valid definition");
    prost_build::Config::new().out_dir(out.path()).compile_fds(descriptors).expect("code generation");
    let code = std::fs::read_to_string(out.path().join("tickwalk.v1.rs")).expect("generated file");
    let definition = std::fs::read_to_string(root.join("proto/profiler.proto")).expect("profiler.proto");
    let first_line = checksum::line(&definition, &code);
    std::fs::write(root.join("src/generated.rs"), first_line + &code).expect("write src/generated.rs");
}
