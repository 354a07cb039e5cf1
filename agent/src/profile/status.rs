//! Requests to an agent that is loaded: what it does now, and which options a start has.
//!
//! Problem: a command that attaches to a JVM learns one number from the agent, and an agent that waits for a start
//! (`start=no`) must keep the options it was loaded with.
//! Approach: `status,reply=PATH` makes the agent connect to a Unix socket of the command and write one line for each fact.
//! The options from the load come before those of a start, so that the later ones count.
//! Invariant: no request needs a thread; secrets are not repeated.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sampler_thread::characters::shown;

use crate::profile::storage::is_unnamed;
use agent_options::{BadRequest, Door, Options, Request, environment};

/// Longest wait for a command that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Options whose values are secrets.
const SECRETS: [&str; 1] = ["token="];

/// The last request to the agent.
static KNOWN: Mutex<Known> = Mutex::new(Known { waiting: None, profile: None });

struct Known {
    /// The options of an agent that waits for a start.
    waiting: Option<String>,
    /// The last profile.
    profile: Option<Profile>,
}

/// A profile, as its options describe it.
struct Profile {
    text: String,
    options: Options,
    since: Instant,
}

/// What the agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// It is about to profile.
    Starting,
    /// It profiles.
    Running,
    /// A profile has ended, and its last samples are being delivered.
    Ending,
    /// An internal error has switched it off.
    Off,
}

/// Reads a request to an agent that is loaded. A start has the options of the load first, if the agent waits for it;
/// else those of the environment, if it is an attach.
///
/// # Errors
/// As [`Request::parse`].
pub fn request(door: Door, text: &str) -> Result<Request, BadRequest> {
    match Request::parse(door, text) {
        Ok(request) if !request.starts() => return Ok(request),
        Ok(_) | Err(_) => {}
    }
    if let Some(waiting) = &KNOWN.lock().waiting {
        return Request::of_layers(door, &[waiting, "start=yes", text]);
    }
    let variables = match door {
        Door::Attach => environment::options(std::env::vars_os()),
        _ => String::new(),
    };
    Request::of_layers(door, &[&variables, text])
}

/// Keeps the options of an agent that waits for a start.
pub fn wait_for_start(text: &str) {
    KNOWN.lock().waiting = Some(text.to_owned());
}

/// Keeps the options of a profile that begins.
pub fn begins(text: &str, options: &Options) {
    let profile = Profile { text: text.to_owned(), options: options.clone(), since: Instant::now() };
    KNOWN.lock().profile = Some(profile);
}

/// Returns the recording of the last profile, if it has one.
pub fn recording() -> Option<PathBuf> {
    KNOWN.lock().profile.as_ref()?.options.file.clone()
}

/// Returns the time from the start of the last profile until now.
pub fn since_start() -> Option<Duration> {
    Some(KNOWN.lock().profile.as_ref()?.since.elapsed())
}

/// Returns the status in lines of `name=value`.
pub fn described(phase: Phase) -> String {
    status(&KNOWN.lock(), phase)
}

/// Writes the status to the socket at `reply`.
///
/// # Errors
/// As connecting and writing.
pub fn answer(reply: &Path, phase: Phase) -> std::io::Result<()> {
    let text = described(phase);
    let mut stream = UnixStream::connect(reply)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.write_all(text.as_bytes())
}

/// Returns the status as lines of `name=value`.
fn status(known: &Known, phase: Phase) -> String {
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
    // The last profile still tells where its recording is.
    if let Some(profile) = &known.profile {
        line("options", &without_secrets(&profile.text));
        line("interval_ns", &profile.options.interval_ns().to_string());
        if phase == Phase::Running {
            line("running_ns", &profile.since.elapsed().as_nanos().to_string());
        }
        // A recording without a name is of use to nobody outside of this process.
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
    use super::*;

    #[test]
    fn a_status_has_what_a_command_shows_and_no_secret() {
        let text = "interval=5ms,token=geheim,file=/tmp/a.tickwalk";
        let options = Request::parse(Door::Load, text).expect("valid").options;
        let mut known = Known { waiting: None, profile: None };
        assert!(status(&known, Phase::Idle).contains("\nstate=idle\n"));
        known.profile = Some(Profile { text: text.to_owned(), options, since: Instant::now() });
        let lines = status(&known, Phase::Running);
        for expected in [
            "state=running",
            "options=interval=5ms,token=***,file=/tmp/a.tickwalk",
            "interval_ns=5000000",
            "file=/tmp/a.tickwalk",
        ] {
            assert!(lines.lines().any(|line| line == expected), "{expected}: {lines}");
        }
        assert!(lines.contains("\nrunning_ns=") && !lines.contains("geheim"), "{lines}");
        assert!(!status(&known, Phase::Idle).contains("running_ns"));
    }

    /// One test, because the options are kept for the process.
    #[test]
    fn options_of_a_start_follow_those_of_the_load() {
        let of = |text: &str| request(Door::C, text).expect("valid");
        assert_eq!(of("interval=1ms").text, "interval=1ms");
        wait_for_start("start=no,interval=5ms,file=a");
        let options = of("").options;
        assert!(options.starts && options.interval == Duration::from_millis(5));
        assert_eq!(options.file.as_deref(), Some(Path::new("a")));
        assert!(!of("start=no").options.starts);
        let stop = of("stop");
        assert!(stop.file.is_none() && stop.text == "stop", "only a start has them: {stop:?}");
    }
}
