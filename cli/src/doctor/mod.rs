//! Examines whether this machine and its JDKs can be profiled.
//!
//! Each check yields one finding: what is so, and if that is bad, what to do about it.

mod jdk;
mod kernel;
mod trial;

use std::path::{Path, PathBuf};
use std::{env, fmt};

use serde::Serialize;

use crate::agent_library;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// Profiling works, with a restriction.
    Warn,
    /// Profiling does not work.
    Fail,
}

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How good it is.
    pub status: Status,
    /// What was examined.
    pub subject: &'static str,
    /// What is so.
    pub found: String,
    /// What to do about it, if there is something to do.
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

/// Runs all checks; a JVM is started if `java` names one or `JAVA_HOME` does.
pub fn examine(java: Option<&Path>) -> Vec<Finding> {
    let mut findings = kernel::examine();
    findings.extend(jdk::examine());
    let home = env::var_os("JAVA_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    match agent_library::find(None) {
        Ok(agent) => {
            findings.push(Finding::ok("agent", agent.display().to_string()));
            if let Some(java) = java.map(Path::to_owned).or(home) {
                findings.extend(trial::examine(&trial::launcher(&java), &agent));
            }
        }
        Err(error) => findings.push(Finding::fail(
            "agent",
            error.to_string(),
            "build it with 'cargo build --release -p agent'",
        )),
    }
    findings
}
