//! The JVMs of this machine, as far as this user may see them.
//!
//! Everything is read from `/proc` and the JVMs' performance data, so listing disturbs no JVM.

use std::fs;
use std::io;

use profile::characters::shown;
use serde::Serialize;

use super::agent;
use super::attach::{Jvm, is_jvm};
use super::errors::AttachError;
use super::flags;
use super::foreign::{self, Links};
use super::perf_data::PerfData;
use super::process::{MappedFile, Process, user_name};

/// Most bytes of a JDK's file `release` that are read; those of JDK 11 to 25 have at most 2 KiB.
const MAX_RELEASE: u64 = 64 << 10;

/// The state of a JVM in the list: profiled, ready to be profiled, or the obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Idle,
    Profiled,
    OtherUser,
    /// It can be profiled, but hides whether it is being profiled.
    Undumpable,
    AttachDisabled,
    /// It does not handle SIGQUIT: it is still starting, or runs with `-Xrs`.
    NoSignal,
    /// Its C library is not supported.
    Musl,
}

impl State {
    /// Returns the word for a table.
    pub fn text(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Profiled => "profiled",
            Self::OtherUser => "other user",
            Self::Undumpable => "undumpable",
            Self::AttachDisabled => "attach disabled",
            Self::NoSignal => "no SIGQUIT handler",
            Self::Musl => "musl",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub pid: i32,
    pub user: String,
    /// Release of its JDK, where it is known.
    pub jdk: Option<String>,
    pub state: State,
    /// The container or unit in which it runs, unless this process runs in the same.
    pub container: Option<String>,
    /// Main class, or jar, and its arguments.
    pub program: String,
}

/// Returns the JVMs in ascending order of process ids.
pub fn jvms() -> io::Result<Vec<Row>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        found.extend(row(Process::of(pid)));
    }
    found.sort_unstable_by_key(|row: &Row| row.pid);
    Ok(found)
}

/// Returns the row of a process; `None` if it is no JVM or has ended.
fn row(process: Process) -> Option<Row> {
    let owner = process.status().ok()?.owner;
    let user = user_name(owner.user);
    let mapped = if process.is_hidden() { Vec::new() } else { process.mapped_files().ok()? };
    let is_candidate = process.is_hidden() || is_jvm(&mapped);
    let state = is_candidate.then(|| state_of(process, &mapped)).flatten()?;
    let data = match state {
        State::Undumpable => PerfData::of_hidden(process, owner.user),
        _ => PerfData::read(process, &mapped),
    };
    let data = data.unwrap_or_default();
    let program = data.command().map_or_else(|| flags::program(&process.arguments()), str::to_owned);
    Some(Row {
        pid: process.id(),
        user,
        jdk: data.java_version().map(printable).or_else(|| released(process, &mapped)),
        state,
        container: process.container().as_deref().map(printable),
        program: printable(&program),
    })
}

/// Returns the state of a process that is a JVM or hides its files; `None` if it is not known to be a JVM.
fn state_of(process: Process, mapped: &[MappedFile]) -> Option<State> {
    if agent::is_profiled(mapped) {
        return Some(State::Profiled);
    }
    match Jvm::find(process.id()) {
        Ok(_) if process.is_hidden() => Some(State::Undumpable),
        Ok(_) => Some(State::Idle),
        // Only the name of the program of a hidden process shows that it is a JVM.
        Err(AttachError::NotAllowed(..) | AttachError::Hidden(_) | AttachError::NoVmThread(_)) => {
            (!process.is_hidden() || is_launcher(process)).then_some(State::OtherUser)
        }
        Err(AttachError::Disabled(_)) => Some(State::AttachDisabled),
        Err(AttachError::NoSignal(_)) => Some(State::NoSignal),
        Err(AttachError::Musl(_)) => Some(State::Musl),
        Err(_) => None,
    }
}

fn is_launcher(process: Process) -> bool {
    let arguments = process.arguments();
    arguments.first().is_some_and(|program| program == "java" || program.ends_with("/java"))
}

/// Returns the release in the JDK's file `release`, for JVMs without performance data.
fn released(process: Process, mapped: &[MappedFile]) -> Option<String> {
    let libjvm = mapped.iter().find(|file| file.is_named("libjvm.so"))?;
    // JAVA_HOME/lib/server/libjvm.so
    let home = libjvm.path.ancestors().nth(3)?;
    let file = foreign::open(&process.root(), &home.join("release"), Links::Refused).ok()?;
    let text = foreign::read(file, MAX_RELEASE).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(printable(value.trim_matches('"')))
}

fn printable(text: &str) -> String {
    shown(text).into_owned()
}
