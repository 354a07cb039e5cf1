//! Compiles `workloads/native/*.c` once for all tests, as `workload` does with the Java sources.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::jdk::crate_folder;

/// Optimised and without frame pointers: the code that profilers find hardest to unwind.
const OPTIONS: [&str; 6] =
    ["-O2", "-fPIC", "-shared", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall"];

/// The shared library made of `workloads/native/NAME.c`, compiled now if need be.
///
/// # Panics
/// If there is no C compiler, or the source does not compile.
pub fn native_library(name: &str) -> PathBuf {
    let sources = crate_folder().join("workloads/native");
    let source = sources.join(format!("{name}.c"));
    let mut hasher = DefaultHasher::new();
    for path in [&source, &sources.join("jni_functions.h")] {
        std::fs::read(path).expect("a workload source").hash(&mut hasher);
    }
    OPTIONS.hash(&mut hasher);
    let folder = crate_folder().join(".cache/native").join(format!("{:016x}", hasher.finish()));
    let library = folder.join(format!("lib{name}.so"));
    if !library.is_file() {
        compile(&source, &folder, &library);
    }
    library
}

fn compile(source: &Path, folder: &Path, library: &Path) {
    std::fs::create_dir_all(folder).expect("a writable java-tests/.cache");
    let scratch = tempfile::NamedTempFile::new_in(folder).expect("a writable java-tests/.cache/native");
    let output = Command::new("cc").args(OPTIONS).arg("-o").arg(scratch.path()).arg(source).output();
    let output = output.expect("a C compiler named cc");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    // Readers see nothing or all of it; whoever comes second replaces it by the same.
    scratch.persist(library).expect("the library appears by a rename");
}
