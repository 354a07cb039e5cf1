//! The agents in a JVM: which library a request is sent to.
//!
//! Problem: the JVM may not see or read this command's library, or may have loaded a file at that path that was
//! replaced since; the linker identifies a loaded library by its path.
//! Approach: use the path if the JVM finds the same file there, else a copy in a private directory. The name of a copy
//! depends on its content, so a loaded copy is used again: the linker finds it by its path although the file is
//! removed. Agents are recognised by a mapping whose name contains an address in their library, and running profiles
//! by another such mapping.
//! Invariant: of one file, at most one copy is loaded, however often a JVM is profiled.
//! Sources: glibc `elf/dl-load.c` (`_dl_map_object` compares names before it opens a file), dlopen(3).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profile::characters::shown;

use super::attach::Jvm;
use super::errors::AttachError;
use super::foreign::{self, Links};
use super::process::{MappedFile, Process};
use super::socket;
use super::workplace::{self, Workplace};
use crate::launch::agent_library;

/// Beginning of the path of the mapping that a loaded agent makes; the rest is an address in its library, in
/// hexadecimal.
const AGENT_MARK: &str = "/memfd:tickwalk-agent-";
/// The same for a running profile.
const PROFILE_MARK: &str = "/memfd:tickwalk-profile-";

/// Time limit for the text of a status.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of a status: two option strings and two paths.
const MAX_STATUS: usize = 64 << 10;

/// Returns whether a profile runs in a process with these mappings, whichever agent runs it.
pub fn is_profiled(mapped: &[MappedFile]) -> bool {
    mapped.iter().any(|file| file.path.to_str().is_some_and(|path| path.starts_with(PROFILE_MARK)))
}

/// Returns the libraries among these mappings that are agents.
fn agents_of(mapped: Vec<MappedFile>) -> Vec<MappedFile> {
    let address = |file: &MappedFile| {
        let digits = file.path.to_str()?.strip_prefix(AGENT_MARK)?;
        u64::from_str_radix(digits, 16).ok()
    };
    let marked: Vec<u64> = mapped.iter().filter_map(address).collect();
    let is_agent = |file: &MappedFile| match &marked[..] {
        // An agent of an earlier version, or one that may not make a mapping with a name.
        [] => is_named_as_agent(file),
        marked => marked.iter().any(|address| file.holds(*address)),
    };
    mapped.into_iter().filter(is_agent).collect()
}

fn is_named_as_agent(file: &MappedFile) -> bool {
    let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == agent_library::FILE_NAME || name.starts_with("libtickwalk-") && name.ends_with(".so")
}

/// Returns the agents that a process has loaded; none if it hides its mappings.
fn loaded(process: Process) -> std::io::Result<Vec<MappedFile>> {
    if process.is_hidden() { Ok(Vec::new()) } else { process.mapped_files().map(agents_of) }
}

/// Returns the paths, as the JVM sees them, of the agents that it may have loaded. If it hides its mappings, that is
/// the library of this command, which is then loaded to answer.
fn paths_of_agents(jvm: &Jvm) -> Result<Vec<String>, AttachError> {
    let paths: Vec<PathBuf> = match jvm.process().is_hidden() {
        true => agent_library::find(None).into_iter().collect(),
        false => loaded(jvm.process())?.into_iter().map(|agent| agent.path).collect(),
    };
    Ok(paths.iter().filter_map(|path| path.to_str()).map(str::to_owned).collect())
}

/// Starts a profile with the agent at `library`, a path of this process.
pub fn start(jvm: &Jvm, library: &Path, options: &str) -> Result<String, AttachError> {
    jvm.check_room_for_profile()?;
    let agents = loaded(jvm.process())?;
    match waiting(jvm, &agents)? {
        Some(path) => jvm.load(&path, options).map(|()| path),
        None => load(jvm, library, &agents, options),
    }
}

/// Calls the agent at `library`, a path of this process, for something that may happen during a profile.
pub fn call(jvm: &Jvm, library: &Path, options: &str) -> Result<String, AttachError> {
    load(jvm, library, &loaded(jvm.process())?, options)
}

/// Loads the agent, or a copy if the JVM cannot open it, and passes the options; returns its path for the JVM.
fn load(jvm: &Jvm, library: &Path, agents: &[MappedFile], options: &str) -> Result<String, AttachError> {
    let process = jvm.process();
    let direct = library.to_str().filter(|_| can_load(process, library, agents));
    if let Some(path) = direct {
        match jvm.load(path, options) {
            // The file exists, but the JVM's user or a security module may not allow opening it.
            Err(AttachError::Refused(reason)) if reason.contains("cannot open shared object file") => {}
            outcome => return outcome.map(|()| path.to_owned()),
        }
    }
    let name = workplace::copied_name(library)?;
    if let Some(copy) = agents.iter().find(|agent| agent.is_named(&name)).and_then(|copy| copy.path.to_str())
    {
        return jvm.load(copy, options).map(|()| copy.to_owned());
    }
    let no_directory = |error| AttachError::NoDirectory(process.id(), error);
    let workplace = Workplace::for_library(process, jvm.owner()).map_err(no_directory)?;
    let copy = workplace.copy(library, &name).map_err(no_directory)?;
    let copy = copy.to_str().ok_or(AttachError::BadArgument)?;
    jvm.load(copy, options).map(|()| copy.to_owned())
}

/// Returns the path of a loaded agent of this version that waits for a start.
///
/// # Errors
/// [`AttachError::Profiled`] if one of them runs a profile.
fn waiting(jvm: &Jvm, agents: &[MappedFile]) -> Result<Option<String>, AttachError> {
    let mut found = None;
    for path in agents.iter().filter_map(|agent| agent.path.to_str()) {
        let status = Status::ask(jvm, path)?;
        match status.state() {
            "running" | "starting" => return Err(AttachError::Profiled(jvm.process().id())),
            "ending" => return Err(AttachError::Ending(jvm.process().id())),
            "waiting" if status.fact("version") == Some(env!("CARGO_PKG_VERSION")) => {
                found = Some(path.to_owned());
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Status of a loaded agent.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its path for the JVM.
    pub library: String,
    facts: BTreeMap<String, String>,
}

impl Status {
    /// Returns the status of the agent at `library`.
    fn ask(jvm: &Jvm, library: &str) -> Result<Self, AttachError> {
        let process = jvm.process();
        let no_directory = |error| AttachError::NoDirectory(process.id(), error);
        let workplace = Workplace::for_socket(process, jvm.owner()).map_err(no_directory)?;
        let (listener, socket) = workplace.listen("status").map_err(no_directory)?;
        jvm.load(library, &format!("status,reply={}", socket.display()))?;
        // The agent connects and writes before the request returns.
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let text = socket::accept(&listener, process, deadline)
            .and_then(|stream| socket::read(&stream, MAX_STATUS, deadline))
            .map_err(|_| AttachError::NoStatus(process.id()))?;
        let facts = text.lines().filter_map(|line| line.split_once('='));
        let facts = facts.map(|(name, value)| (shown(name).into_owned(), shown(value).into_owned()));
        Ok(Self { library: library.to_owned(), facts: facts.collect() })
    }

    /// Returns the status of the loaded agent that profiles, else of one that waits for a start, else of any; `None`
    /// if none is loaded.
    pub fn of(jvm: &Jvm) -> Result<Option<Self>, AttachError> {
        Ok(Self::all(jvm)?.into_iter().next())
    }

    /// Returns the status of all loaded agents; the one that profiles comes first.
    fn all(jvm: &Jvm) -> Result<Vec<Self>, AttachError> {
        let paths = paths_of_agents(jvm)?;
        let mut all: Vec<Self> =
            paths.iter().map(|path| Self::ask(jvm, path)).collect::<Result<_, AttachError>>()?;
        let order = ["running", "starting", "ending", "waiting", "idle"];
        all.sort_by_key(|status| {
            order.iter().position(|state| *state == status.state()).unwrap_or(order.len())
        });
        Ok(all)
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

    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }
}

/// Returns whether the JVM finds the same file at this path, and has not loaded another one from there.
fn can_load(process: Process, library: &Path, agents: &[MappedFile]) -> bool {
    let Ok(file) = foreign::open(&process.root(), library, Links::Followed) else { return false };
    let (Ok(ours), Ok(theirs)) = (fs::metadata(library), file.metadata()) else { return false };
    let is_same = (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino());
    // A read-only container may have a copy.
    let is_copy = || {
        let mut bytes = Vec::new();
        let is_read = file.take(ours.len() + 1).read_to_end(&mut bytes).is_ok();
        is_read && ours.len() == theirs.len() && fs::read(library).is_ok_and(|ours| ours == bytes)
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
    let mut failure = AttachError::NotProfiled(jvm.process().id());
    // An idle agent may be between two profiles (`loop=`).
    for agent in Status::all(jvm)? {
        match jvm.load(&agent.library, "stop") {
            Ok(()) => return Ok(()),
            Err(AttachError::NotProfiled(_)) => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(path: &str, begin: u64) -> MappedFile {
        let spans = std::iter::once(begin..begin + 0x1000).collect();
        MappedFile { path: path.into(), inode: begin, addresses: String::new(), spans, is_deleted: false }
    }

    #[test]
    fn agents_are_known_by_their_marks() {
        let paths = |mapped: &[MappedFile]| -> Vec<String> {
            let agents = agents_of(mapped.to_vec());
            agents.iter().map(|agent| agent.path.display().to_string()).collect()
        };
        let mut process = vec![
            mapped("/opt/a.so", 0x7000),
            mapped("/opt/libtickwalk.so", 0x9000),
            mapped("/opt/b.so", 0xb000),
        ];
        assert_eq!(paths(&process), ["/opt/libtickwalk.so"]);
        process.push(mapped("/memfd:tickwalk-agent-7010", 0x1_0000));
        process.push(mapped("/memfd:tickwalk-agent-b800", 0x1_1000));
        assert_eq!(paths(&process), ["/opt/a.so", "/opt/b.so"]);
        assert!(!is_profiled(&process));
        process.push(mapped("/memfd:tickwalk-profile-b800", 0x1_2000));
        assert!(is_profiled(&process));
        process.push(mapped("/memfd:tickwalk-agent-x", 0x1_3000));
        assert_eq!(paths(&process).len(), 2);
    }
}
