//! Finds the agent library of this installation.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

pub const FILE_NAME: &str = "libtickwalk.so";

/// Environment variable that names the agent library.
pub const VARIABLE: &str = "TICKWALK_AGENT";

/// Returns the absolute path of the library: that of `option`, of [`VARIABLE`], or the first found near this program.
pub fn find(option: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = option {
        return named(path, "--agent");
    }
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return named(Path::new(&path), VARIABLE);
    }
    let places = places()?;
    if let Some(found) = places.iter().find(|path| path.is_file()) {
        return std::path::absolute(found)
            .with_context(|| format!("no absolute path for {}", found.display()));
    }
    let tried: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
    bail!("{FILE_NAME} not found (tried {}); pass --agent PATH or set {VARIABLE}", tried.join(", "))
}

fn named(path: &Path, by: &str) -> anyhow::Result<PathBuf> {
    if !path.is_file() {
        bail!("the agent library {} does not exist; correct {by}", path.display());
    }
    std::path::absolute(path).with_context(|| format!("no absolute path for {}", path.display()))
}

/// Returns the paths to try: beside the program, in the `lib` of an installation, in Cargo's output directories.
fn places() -> anyhow::Result<Vec<PathBuf>> {
    let program = env::current_exe().context("cannot find the path of this program; pass --agent PATH")?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let mut places = vec![directory.join(FILE_NAME)];
    if let Some(above) = directory.parent() {
        for subdirectory in ["lib", "lib/tickwalk", "release", "debug"] {
            places.push(above.join(subdirectory).join(FILE_NAME));
        }
    }
    places.dedup();
    Ok(places)
}
