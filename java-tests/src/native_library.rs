//! Compiles `workloads/native/*.c` once for all tests.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::jdk::crate_folder;

/// Optimised and without frame pointers, which is the hardest code to unwind.
const OPTIONS: [&str; 6] =
    ["-O2", "-fPIC", "-shared", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall"];

/// Returns the path of the shared library built from `workloads/native/NAME.c`; compiles it if it does not exist.
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
    std::fs::create_dir_all(folder).expect("java-tests/.cache is writable");
    let scratch = tempfile::NamedTempFile::new_in(folder).expect("java-tests/.cache/native is writable");
    let output = Command::new("cc").args(OPTIONS).arg("-o").arg(scratch.path()).arg(source).output();
    let output = output.expect("a C compiler named cc is installed");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    // The rename is atomic; a concurrent test process replaces the library by an equal one.
    scratch.persist(library).expect("the compiled library is renamed");
}
