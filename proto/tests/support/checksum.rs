//! The first line of the generated code, by which a test notices that definition and code no longer belong together.

use xxhash_rust::xxh3::xxh3_64;

/// Returns that line, with a checksum of the definition and one of the code below the line.
pub fn line(definition: &str, code: &str) -> String {
    let [definition, code] = [definition, code].map(|text| xxh3_64(text.as_bytes()));
    format!("// Definition {definition:016x}, code {code:016x}; written by proto/generate.\n")
}
