//! The agents in a JVM: which library a request is sent to.
//!
//! Problem: a JVM may not see this command's library, may not be allowed to read it, or may have loaded a file at this path
//! that was replaced later; the linker takes a loaded library for the file with the same path.
//! Approach: use the path if the JVM finds the same file there, else a copy in a private directory. The name of a copy
//! depends on its content, and the loaded copy is used again: the linker finds it by its path although the file is removed.
//! Invariant: of one file, at most one copy is loaded, however often a JVM is profiled.
//! Sources: glibc `elf/dl-load.c` (`_dl_map_object` compares names before it opens a file), dlopen(3).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::attach::Jvm;
use super::errors::AttachError;
use super::process::{MappedFile, Process};
use super::workplace::{self, Workplace};

/// Name of the thread that every profile has; the kernel keeps 15 bytes of "tickwalk-sampler".
const SAMPLER_THREAD: &str = "tickwalk-sample";

/// Time limit for the text of a status.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a status: two option strings and two paths.
const MAX_STATUS: u64 = 64 << 10;

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
    match waiting(jvm, &agents)? {
        Some(path) => jvm.load(&path, options).map(|()| path),
        None => load(jvm, library, &agents, options),
    }
}

/// Calls the agent at `library`, a path of this process, for something that may happen beside a profile.
///
/// # Errors
/// As [`Jvm::load`].
pub fn call(jvm: &Jvm, library: &Path, options: &str) -> Result<String, AttachError> {
    load(jvm, library, &loaded(jvm.process())?, options)
}

/// Loads the agent, or a copy if the JVM cannot open it, and passes the options; returns its path for the JVM.
fn load(jvm: &Jvm, library: &Path, agents: &[MappedFile], options: &str) -> Result<String, AttachError> {
    let process = jvm.process();
    let direct = library.to_str().filter(|_| can_load(process, library, agents));
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

/// Returns the path of a loaded agent of this version that waits for a start.
fn waiting(jvm: &Jvm, agents: &[MappedFile]) -> Result<Option<String>, AttachError> {
    for path in agents.iter().filter_map(|agent| agent.path.to_str()) {
        let status = Status::ask(jvm, path)?;
        if status.state() == "waiting" && status.fact("version") == Some(env!("CARGO_PKG_VERSION")) {
            return Ok(Some(path.to_owned()));
        }
    }
    Ok(None)
}

/// What a loaded agent says about itself.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its path for the JVM.
    pub library: String,
    facts: BTreeMap<String, String>,
}

impl Status {
    /// Asks the agent at `library`.
    ///
    /// # Errors
    /// As [`Jvm::load`].
    fn ask(jvm: &Jvm, library: &str) -> Result<Self, AttachError> {
        let no_directory = |error| AttachError::NoDirectory(jvm.process().0, error);
        let workplace = Workplace::for_socket(jvm.process(), jvm.owner()).map_err(no_directory)?;
        let (listener, socket) = workplace.listen("status").map_err(no_directory)?;
        listener.set_nonblocking(true)?;
        jvm.load(library, &format!("status,reply={}", socket.display()))?;
        // The agent has connected and written before it returned.
        let (mut stream, _) = listener.accept()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut text = String::new();
        stream.by_ref().take(MAX_STATUS).read_to_string(&mut text)?;
        let facts = text.lines().filter_map(|line| line.split_once('='));
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Self { library: library.to_owned(), facts })
    }

    /// Asks the loaded agents; returns the one that profiles, else one that waits for a start, else any. `None` if no agent
    /// is loaded.
    ///
    /// # Errors
    /// As [`Jvm::load`].
    pub fn of(jvm: &Jvm) -> Result<Option<Self>, AttachError> {
        let agents = loaded(jvm.process())?;
        let paths = agents.iter().filter_map(|agent| agent.path.to_str());
        let all: Vec<Self> = paths.map(|path| Self::ask(jvm, path)).collect::<Result<_, _>>()?;
        let order = ["running", "starting", "ending", "waiting", "idle"];
        let rank =
            |status: &Self| order.iter().position(|state| *state == status.state()).unwrap_or(order.len());
        Ok(all.into_iter().min_by_key(rank))
    }

    /// Returns one of its facts (`agent/src/profile/status.rs`).
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// Returns its state: running, starting, ending, waiting (for a start), idle, or off after an internal error.
    pub fn state(&self) -> &str {
        self.fact("state").unwrap_or("unknown")
    }

    /// Returns the recording of the profile, as the JVM sees it.
    pub fn file(&self) -> Option<&Path> {
        self.fact("file").map(Path::new)
    }

    /// Returns all facts.
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }
}

/// Returns whether the JVM finds the same file at this path, and has not loaded another one from there.
fn can_load(process: Process, library: &Path, agents: &[MappedFile]) -> bool {
    let inner = process.outer_path(library);
    let (Ok(ours), Ok(theirs)) = (fs::metadata(library), fs::metadata(&inner)) else { return false };
    let is_same = (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino());
    // A container that cannot be written to may have a copy.
    let is_copy = || {
        theirs.is_file()
            && ours.len() == theirs.len()
            && matches!((fs::read(library), fs::read(inner)), (Ok(ours), Ok(theirs)) if ours == theirs)
    };
    let at_path = |agent: &&MappedFile| agent.path == library;
    let is_current = |agent: &MappedFile| !agent.is_deleted && agent.inode == theirs.ino();
    (is_same || is_copy()) && agents.iter().filter(at_path).all(is_current)
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
