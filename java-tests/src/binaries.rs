//! Finds the built `tickwalk` binary and agent library beside the running test.

use std::path::PathBuf;

/// The command line binary.
pub fn tickwalk() -> PathBuf {
    find("tickwalk")
}

/// The agent library.
pub fn agent() -> PathBuf {
    find("libtickwalk.so")
}

/// A test executable lies in `TARGET/PROFILE/deps`; what `cargo build` made lies one folder above.
fn find(name: &str) -> PathBuf {
    let folder = match std::env::var_os("TICKWALK_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let test = std::env::current_exe().expect("the path of the running test");
            let profile =
                test.parent().and_then(|deps| deps.parent()).expect("a test lies in TARGET/PROFILE/deps");
            profile.to_owned()
        }
    };
    let path = folder.join(name);
    assert!(path.is_file(), "{} is not there: run `cargo build` first", path.display());
    path
}
