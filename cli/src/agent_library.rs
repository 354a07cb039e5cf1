//! Finds the agent library that belongs to this program.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// File name of the agent.
pub const FILE_NAME: &str = "libtickwalk.so";

/// Environment variable that names the agent library.
pub const VARIABLE: &str = "TICKWALK_AGENT";

/// The library named by `option`, by [`VARIABLE`], or found near this program; an absolute path.
///
/// # Errors
/// If it is nowhere, with the places that were looked at.
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
    let looked: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
    bail!("{FILE_NAME} not found (looked for {}); pass --agent PATH or set {VARIABLE}", looked.join(", "))
}

fn named(path: &Path, by: &str) -> anyhow::Result<PathBuf> {
    if !path.is_file() {
        bail!("the agent library {} named by {by} does not exist", path.display());
    }
    std::path::absolute(path).with_context(|| format!("no absolute path for {}", path.display()))
}

/// Beside the program, in the `lib` directory of an installation, and in the directories Cargo builds to.
fn places() -> anyhow::Result<Vec<PathBuf>> {
    let program = env::current_exe().context("the path of this program is unknown")?;
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
