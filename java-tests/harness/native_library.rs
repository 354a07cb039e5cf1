//! Compiles `workloads/native/*.c` once for all tests.

use std::ffi::OsStr;
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
    built(&workload_source(name), &[])
}

/// Like [`native_library`], for a client of the stack-walk API: with the headers in these folders of `agent/include`
/// and those of the JDK that compiles the workloads.
///
/// # Panics
/// Like [`native_library`], and if there are no headers of a JDK.
pub fn api_client(name: &str, folders: &[&str]) -> PathBuf {
    api_client_of(&workload_source(name), folders)
}

/// Like [`api_client`], of the example `agent/examples/NAME.c`.
///
/// # Panics
/// Like [`api_client`].
pub fn api_example(name: &str, folders: &[&str]) -> PathBuf {
    api_client_of(&crate_folder().join("../agent/examples").join(format!("{name}.c")), folders)
}

fn workload_source(name: &str) -> PathBuf {
    crate_folder().join("workloads/native").join(format!("{name}.c"))
}

fn api_client_of(source: &Path, folders: &[&str]) -> PathBuf {
    let include = crate_folder().join("../agent/include");
    let jni = jni_headers();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| include.join(folder)).collect();
    folders.extend([jni.join("linux"), jni]);
    built(source, &folders)
}

/// Returns the folder with `jni.h`: that of the JDK whose compiler is found first.
fn jni_headers() -> PathBuf {
    let javacs = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .filter_map(|folder| folder.join("javac").canonicalize().ok())
        .collect::<Vec<_>>();
    let folders = javacs.iter().filter_map(|javac| Some(javac.parent()?.parent()?.join("include")));
    folders.into_iter().find(|folder| folder.join("jni.h").is_file()).expect(
        "a JDK with include/jni.h, whose javac is on the PATH (the packages of runtimes have no headers)",
    )
}

fn built(source: &Path, folders: &[PathBuf]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    for path in [source, &crate_folder().join("workloads/native/jni_functions.h")] {
        std::fs::read(path).expect("a workload source").hash(&mut hasher);
    }
    for folder in folders {
        let headers = std::fs::read_dir(folder).expect("a folder with headers");
        let mut headers: Vec<PathBuf> = headers.flatten().map(|entry| entry.path()).collect();
        headers.sort();
        for header in headers.iter().filter(|path| path.is_file()) {
            std::fs::read(header).expect("a header").hash(&mut hasher);
        }
    }
    OPTIONS.hash(&mut hasher);
    let folder = crate_folder().join(".cache/native").join(format!("{:016x}", hasher.finish()));
    let name = source.file_stem().expect("a name of a source").to_string_lossy();
    let library = folder.join(format!("lib{name}.so"));
    if !library.is_file() {
        compile(source, folders, &folder, &library);
    }
    library
}

fn compile(source: &Path, headers: &[PathBuf], folder: &Path, library: &Path) {
    std::fs::create_dir_all(folder).expect("java-tests/.cache is writable");
    let scratch = tempfile::NamedTempFile::new_in(folder).expect("java-tests/.cache/native is writable");
    let headers = headers.iter().flat_map(|folder| [OsStr::new("-I"), folder.as_os_str()]);
    let output =
        Command::new("cc").args(OPTIONS).args(headers).arg("-o").arg(scratch.path()).arg(source).output();
    let output = output.expect("a C compiler named cc is installed");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    // The rename is atomic; a concurrent test process replaces the library by an equal one.
    scratch.persist(library).expect("the compiled library is renamed");
}
