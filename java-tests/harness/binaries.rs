//! Finds the built `tickwalk` command and agent library beside the running test.

use std::path::PathBuf;

/// Returns the path of the `tickwalk` command.
///
/// # Panics
/// If it has not been built.
pub fn tickwalk() -> PathBuf {
    find("tickwalk")
}

/// Returns the path of the agent library.
///
/// # Panics
/// If it has not been built.
pub fn agent() -> PathBuf {
    find("libtickwalk.so")
}

/// Returns the path of a library that is an example of the agent.
///
/// # Panics
/// If it has not been built.
pub fn example(file: &str) -> PathBuf {
    find(&format!("examples/{file}"))
}

/// Finds a build output: tests run in `TARGET/PROFILE/deps`, `cargo build` writes one folder above.
fn find(name: &str) -> PathBuf {
    let folder = match std::env::var_os("TICKWALK_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let test = std::env::current_exe().expect("the path of the running test");
            let profile =
                test.parent().and_then(|deps| deps.parent()).expect("tests are in TARGET/PROFILE/deps");
            profile.to_owned()
        }
    };
    let path = folder.join(name);
    assert!(path.is_file(), "{} does not exist: run `cargo build --workspace` first", path.display());
    path
}
