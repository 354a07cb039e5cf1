//! The status of the agent, as it is shown.
//!
//! Problem: a command that attaches to a JVM gets one number from the agent.
//! Approach: `status,reply=PATH` makes the agent connect to a Unix socket of the command and write one line for
//! each fact.
//! Invariant: no request needs a thread; secrets are not repeated.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use sampler_thread::characters::shown;

use super::session::Session;
use super::state::{self, Phase, Record};
use super::storage::is_unnamed;

/// Longest wait for a command that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Options whose values are secrets.
const SECRETS: [&str; 1] = ["token="];

/// Returns the time since the last profile was started.
pub fn since_start() -> Option<Duration> {
    Some(state::record().profile.as_ref()?.since.elapsed())
}

/// Returns the status in lines of `name=value`.
pub fn described() -> String {
    let phase = state::phase();
    let collector = state::with_session(Session::collector).flatten();
    status(&state::record(), phase, collector.as_deref())
}

/// Writes the status to the socket at `reply`.
///
/// # Errors
/// As connecting and writing.
pub fn answer(reply: &Path) -> std::io::Result<()> {
    let text = described();
    let mut stream = UnixStream::connect(reply)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.write_all(text.as_bytes())
}

fn status(known: &Record, phase: Phase, collector: Option<&str>) -> String {
    let state = match phase {
        Phase::Idle if known.waiting.is_some() => "waiting",
        Phase::Idle => "idle",
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Ending => "ending",
        Phase::Off => "off",
    };
    let mut lines = format!("version={}\nstate={state}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{name}={}", shown(value));
    };
    if let Some(waiting) = &known.waiting {
        line("waiting", &without_secrets(waiting));
    }
    if let Some(profile) = &known.profile {
        line("options", &without_secrets(&profile.text));
        line("interval_ns", &profile.options.interval_ns().to_string());
        if phase == Phase::Running {
            line("running_ns", &profile.since.elapsed().as_nanos().to_string());
        }
        if let Some(collector) = collector {
            line("collector", collector);
        }
        // A recording without a name cannot be read from outside of this process.
        if let Some(file) = profile.options.file.as_ref().filter(|file| !is_unnamed(file)) {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            line("file", &file.to_string_lossy());
        }
        if let Some(result) = &profile.options.result {
            let result = std::path::absolute(&result.path).unwrap_or_else(|_| result.path.clone());
            line("result", &result.to_string_lossy());
        }
    }
    lines
}

fn without_secrets(text: &str) -> String {
    let parts = text.split(',').map(|part| {
        let secret = SECRETS.iter().find(|name| part.trim().starts_with(*name));
        secret.map_or_else(|| part.to_owned(), |name| format!("{name}***"))
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::state::LastProfile;
    use super::*;
    use agent_options::{Door, Request};

    #[test]
    fn a_status_has_what_a_command_shows_and_no_secret() {
        let text = "interval=5ms,token=geheim,file=/tmp/a.tickwalk";
        let options = Request::parse(Door::Load, text).expect("valid").options;
        let mut known = Record::new();
        assert!(status(&known, Phase::Idle, None).contains("\nstate=idle\n"));
        known.profile = Some(LastProfile { text: text.to_owned(), options, since: Instant::now() });
        let lines = status(&known, Phase::Running, Some("connected"));
        for expected in [
            "state=running",
            "options=interval=5ms,token=***,file=/tmp/a.tickwalk",
            "interval_ns=5000000",
            "file=/tmp/a.tickwalk",
            "collector=connected",
        ] {
            assert!(lines.lines().any(|line| line == expected), "{expected}: {lines}");
        }
        assert!(lines.contains("\nrunning_ns=") && !lines.contains("geheim"), "{lines}");
        assert!(!status(&known, Phase::Idle, None).contains("running_ns"));
    }
}
