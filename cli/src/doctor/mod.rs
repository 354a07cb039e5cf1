//! Checks whether this machine and its JDKs can be profiled.
//!
//! Each check returns findings with their severity and remedy.

mod jdk;
mod kernel;
mod limits;
mod running;
mod trial;

use std::path::{Path, PathBuf};
use std::{env, fmt};

use serde::Serialize;

use crate::launch::agent_library;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Profiling works, with a restriction.
    Warn,
    /// Profiling does not work.
    Fail,
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub status: Status,
    pub subject: &'static str,
    pub found: String,
    /// Remedy; `None` if there is no problem.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Finding { status: Status::Ok, subject, found: found.into(), fix: None }
    }

    fn warn(subject: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { status: Status::Warn, subject, found: found.into(), fix: Some(fix.into()) }
    }

    fn fail(subject: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { status: Status::Fail, subject, found: found.into(), fix: Some(fix.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        writeln!(f, "{mark:<5} {:<14} {}", self.subject, self.found)?;
        match &self.fix {
            Some(fix) => writeln!(f, "{:<20} -> {fix}", ""),
            None => Ok(()),
        }
    }
}

/// Runs all checks. The trial run uses the JVM of `java`, else that of `JAVA_HOME`, else the one in `PATH`; it is
/// left out without any.
pub fn examine(java: Option<&Path>) -> Vec<Finding> {
    let mut findings = kernel::examine();
    findings.extend(limits::examine());
    findings.extend(jdk::examine());
    findings.extend(running::examine());
    let home = env::var_os("JAVA_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    match agent_library::find(None) {
        Ok(agent) => {
            findings.push(Finding::ok("agent", agent.display().to_string()));
            if let Some(java) = java.map(Path::to_owned).or(home).or_else(jdk::in_path) {
                findings.extend(trial::examine(&java, &agent));
            }
        }
        Err(error) => findings.push(Finding::fail(
            "agent",
            error.to_string(),
            "set TICKWALK_AGENT to the path of libtickwalk.so, or build it with 'cargo build --release -p agent'",
        )),
    }
    findings
}
