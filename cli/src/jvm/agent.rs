//! The agents in a JVM: which library a request is sent to.
//!
//! Problem: a JVM may not see this command's library, may not be allowed to read it, or may have loaded a file at this path
//! that was replaced later; the linker takes a loaded library for the file with the same path.
//! Approach: use the path if the JVM finds the same file there, else a copy in a private directory. The name of a copy
//! depends on its content, and the loaded copy is used again: the linker finds it by its path although the file is removed.
//! Invariant: of one file, at most one copy is loaded, however often a JVM is profiled.
//! Sources: glibc `elf/dl-load.c` (`_dl_map_object` compares names before it opens a file), dlopen(3).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::attach::Jvm;
use super::errors::AttachError;
use super::process::{MappedFile, Process};
use super::workplace::{self, Workplace};

/// Name of the thread that every profile has; the kernel keeps 15 bytes of "tickwalk-sampler".
const SAMPLER_THREAD: &str = "tickwalk-sample";

/// Returns whether a profile runs in a process, whichever agent runs it.
pub fn is_profiled(process: Process) -> bool {
    process.has_thread(SAMPLER_THREAD)
}

/// Returns the paths of the agents that a process has loaded.
///
/// # Errors
/// If the process has ended, or belongs to another user.
pub fn loaded(process: Process) -> std::io::Result<Vec<MappedFile>> {
    let mut agents = process.mapped_files()?;
    agents.retain(|file| {
        let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name == "libtickwalk.so" || name.starts_with("libtickwalk-") && name.ends_with(".so")
    });
    Ok(agents)
}

/// Starts a profile with the agent at `library`, a path of this process.
///
/// # Errors
/// As [`Jvm::load`].
pub fn start(jvm: &Jvm, library: &Path, options: &str) -> Result<String, AttachError> {
    let process = jvm.process();
    if is_profiled(process) {
        return Err(AttachError::Profiled(process.0));
    }
    let agents = loaded(process)?;
    let direct = library.to_str().filter(|_| can_load(process, library, &agents));
    if let Some(path) = direct {
        match jvm.load(path, options) {
            // The file exists, and the JVM's user or its security module may not open it.
            Err(AttachError::Refused(reason)) if reason.contains("cannot open shared object file") => {}
            outcome => return outcome.map(|()| path.to_owned()),
        }
    }
    let name = workplace::copied_name(library)?;
    if let Some(copy) = agents.iter().find(|agent| agent.is_named(&name)).and_then(|copy| copy.path.to_str())
    {
        return jvm.load(copy, options).map(|()| copy.to_owned());
    }
    let no_directory = |error| AttachError::NoDirectory(process.0, error);
    let workplace = Workplace::for_library(process, jvm.owner()).map_err(no_directory)?;
    let copy = workplace.copy(library, &name).map_err(no_directory)?;
    let copy = copy.to_str().ok_or(AttachError::BadArgument)?;
    jvm.load(copy, options).map(|()| copy.to_owned())
}

/// Returns whether the JVM finds the same file at this path, and has not loaded another one from there.
fn can_load(process: Process, library: &Path, agents: &[MappedFile]) -> bool {
    let inner = process.outer_path(library);
    let (Ok(ours), Ok(theirs)) = (fs::metadata(library), fs::metadata(inner)) else { return false };
    let is_same = (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino());
    let at_path = |agent: &&MappedFile| agent.path == library;
    is_same && agents.iter().filter(at_path).all(|agent| !agent.is_deleted && agent.inode == ours.ino())
}

/// Ends the profile of a JVM, whichever agent runs it.
///
/// # Errors
/// [`AttachError::NotProfiled`] if none runs; else as [`Jvm::load`].
pub fn stop(jvm: &Jvm) -> Result<(), AttachError> {
    let mut failure = AttachError::NotProfiled(jvm.process().0);
    for agent in loaded(jvm.process())? {
        let Some(path) = agent.path.to_str() else { continue };
        match jvm.load(path, "stop") {
            Ok(()) => return Ok(()),
            Err(AttachError::NotProfiled(_)) => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
