//! The JVMs of this machine, as far as this user may see them.
//!
//! Problem: a user who wants a profile knows a program, not a process id.
//! Approach: everything is read from `/proc` and the JVM's performance data; no JVM is disturbed by a list.

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

/// What can be done with a JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A profile can begin.
    Idle,
    /// A profile runs.
    Profiled,
    /// It belongs to another user.
    OtherUser,
    /// It can be attached to, but hides from its own user whether it is profiled.
    Undumpable,
    /// It runs with `-XX:+DisableAttachMechanism`.
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

/// A JVM.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Process id.
    pub pid: i32,
    /// Name of its user.
    pub user: String,
    /// Release of its JDK, where it is known.
    pub jdk: Option<String>,
    /// What can be done with it.
    pub state: State,
    /// The container or unit in which it runs, if that is another one than that of this process.
    pub container: Option<String>,
    /// Main class, or jar, and its arguments.
    pub program: String,
}

/// Returns the JVMs in ascending order of process ids.
///
/// # Errors
/// If `/proc` cannot be read.
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
    let state = match process.is_hidden() {
        true => hidden_state_of(process)?,
        false if is_jvm(&mapped) => state_of(process, &mapped)?,
        false => return None,
    };
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

fn state_of(process: Process, mapped: &[MappedFile]) -> Option<State> {
    if agent::is_profiled(mapped) {
        return Some(State::Profiled);
    }
    match Jvm::find(process.id()) {
        Ok(_) => Some(State::Idle),
        Err(AttachError::NotAllowed(..)) => Some(State::OtherUser),
        Err(AttachError::Disabled(_)) => Some(State::AttachDisabled),
        Err(AttachError::NoSignal(_)) => Some(State::NoSignal),
        Err(AttachError::Musl(_)) => Some(State::Musl),
        Err(_) => None,
    }
}

/// Returns the state of a process that hides its files; `None` if it is not known to be a JVM.
fn hidden_state_of(process: Process) -> Option<State> {
    match Jvm::find(process.id()) {
        Ok(_) => Some(State::Undumpable),
        // Whether it is a JVM can be told by its name only.
        Err(AttachError::NotAllowed(..) | AttachError::Hidden(_)) => {
            is_launcher(process).then_some(State::OtherUser)
        }
        Err(AttachError::Disabled(_)) => Some(State::AttachDisabled),
        Err(AttachError::NoSignal(_)) => Some(State::NoSignal),
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

/// Returns a text as one line.
fn printable(text: &str) -> String {
    shown(text).into_owned()
}
