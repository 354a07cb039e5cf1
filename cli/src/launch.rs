//! Starts a program with the agent in its JVM and stays with it until it ends.

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::signals::Signals;

/// Environment variable whose options every JVM takes over.
const TOOL_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// A sampling interval such as `10ms`, checked and kept as written.
#[derive(Clone, Debug)]
pub struct Interval(String);

impl FromStr for Interval {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str =
            "write a time from 10us to 60s with its unit (ns, us, ms or s), for example 10ms";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let ns_per_unit: u64 = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(WANTED),
        };
        let ns = number.parse::<u64>().ok().and_then(|number| number.checked_mul(ns_per_unit));
        match ns {
            Some(10_000..=60_000_000_000) => Ok(Interval(text.to_owned())),
            _ => Err(WANTED),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the agent is told.
#[derive(Debug)]
pub struct AgentOptions<'a> {
    /// The agent library.
    pub library: PathBuf,
    /// Unix socket of the collector.
    pub socket: PathBuf,
    /// Sampling interval.
    pub interval: Interval,
    /// Further options, as the user wrote them.
    pub more: &'a [String],
}

impl AgentOptions<'_> {
    /// The argument for a JVM that is started.
    fn argument(&self) -> anyhow::Result<String> {
        let (library, options) = self.parts()?;
        Ok(format!("-agentpath:{library}={options}"))
    }

    /// The library, and what it is told.
    ///
    /// # Errors
    /// If a path cannot be expressed.
    pub fn parts(&self) -> anyhow::Result<(String, String)> {
        let text = |path: &Path| match path.to_str() {
            Some(text) if !text.contains(',') => Ok(text.to_owned()),
            _ => bail!("the path {} cannot be passed to the agent: no commas, UTF-8 only", path.display()),
        };
        // The library is named before the first '=', so its own name must not contain one.
        if self.library.as_os_str().as_encoded_bytes().contains(&b'=') {
            bail!("the path {} cannot be passed to the JVM: it contains '='", self.library.display());
        }
        let mut options =
            format!("mode=cputime,interval={},collector=unix:{}", self.interval, text(&self.socket)?);
        for option in self.more {
            options.push(',');
            options.push_str(option);
        }
        Ok((text(&self.library)?, options))
    }
}

/// A program about to be started.
#[derive(Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    tool_options: Option<OsString>,
}

impl Launch {
    /// Puts the agent into `command`: as the first option of `java`, or for other programs in the environment.
    ///
    /// # Errors
    /// If a path cannot be expressed in the agent's options.
    pub fn new(command: &[OsString], options: &AgentOptions<'_>) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("no program to run")?;
        let argument = options.argument()?;
        let mut launch =
            Launch { program: program.clone(), arguments: arguments.to_vec(), tool_options: None };
        if Path::new(program).file_name() == Some(OsStr::new("java")) {
            launch.arguments.insert(0, argument.into());
        } else {
            launch.tool_options = Some(tool_options(&argument, std::env::var_os(TOOL_OPTIONS)));
        }
        Ok(launch)
    }

    /// In words, for a message about an agent that did not show up.
    pub fn how_the_agent_was_passed(&self) -> &'static str {
        match self.tool_options {
            None => "-agentpath was passed on the command line",
            Some(_) => "-agentpath was passed in JAVA_TOOL_OPTIONS, which only a JVM reads",
        }
    }

    /// Runs the program to its end, passing signals on to it.
    ///
    /// # Errors
    /// If it cannot be started or waited for.
    pub fn run(&self, signals: &Signals) -> anyhow::Result<ExitCode> {
        attend(self.start(signals)?, signals)
    }

    /// Starts the program with the signal mask this one was started with.
    ///
    /// The standard library would pass on the mask of this thread, and lifting the block for that moment would let
    /// a signal end this program and leave the started one alone.
    fn start(&self, signals: &Signals) -> anyhow::Result<Pid> {
        let mut attributes = PosixSpawnAttr::init()?;
        attributes
            .set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
        attributes.set_sigmask(signals.blocked_before())?;
        // Rust programs ignore SIGPIPE, others expect it to work.
        attributes.set_sigdefault(&[Signal::SIGPIPE].into_iter().collect())?;
        let program = text(self.program.clone())?;
        let arguments = [self.program.clone()]
            .into_iter()
            .chain(self.arguments.iter().cloned())
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let started = posix_spawnp(
            &program,
            &PosixSpawnFileActions::init()?,
            &attributes,
            &arguments,
            &self.environment()?,
        );
        started.map_err(|error| {
            let program = self.program.display();
            match error {
                Errno::ENOENT => anyhow!("the program {program} does not exist; give its path or check PATH"),
                error => anyhow::Error::new(error).context(format!("cannot start {program}")),
            }
        })
    }

    /// This program's environment with the agent in it, where that is the way.
    fn environment(&self) -> anyhow::Result<Vec<CString>> {
        let options = self.tool_options.iter().map(|options| (OsString::from(TOOL_OPTIONS), options.clone()));
        std::env::vars_os()
            .filter(|(name, _)| self.tool_options.is_none() || name != TOOL_OPTIONS)
            .chain(options)
            .map(|(mut variable, value)| {
                variable.push("=");
                variable.push(value);
                text(variable)
            })
            .collect()
    }
}

fn text(text: OsString) -> anyhow::Result<CString> {
    CString::new(text.into_vec()).context("an argument contains a zero byte")
}

/// Waits for the program; SIGCHLD is among the blocked signals, so its end cannot be missed.
fn attend(pid: Pid, signals: &Signals) -> anyhow::Result<ExitCode> {
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)).context("cannot wait for the program")? {
            // Exit codes are a byte, and so are signal numbers, which end at 64.
            WaitStatus::Exited(_, code) => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
            WaitStatus::Signaled(_, signal, _) => {
                return Ok(ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1)));
            }
            _ => {}
        }
        let received = signals.next()?;
        // A key of the terminal has reached the program by itself; twice would mean "at once" to many.
        if received.signal != Signal::SIGCHLD && !received.from_terminal {
            // A program that has just ended cannot be signalled, which the next round finds out.
            let _ = kill(pid, received.signal);
        }
    }
}

/// The agent's argument in front of options that are set already, quoted if the JVM would split it.
fn tool_options(argument: &str, present: Option<OsString>) -> OsString {
    let mut options = OsString::new();
    if argument.contains(char::is_whitespace) {
        options.push(format!("\"{argument}\""));
    } else {
        options.push(argument);
    }
    if let Some(present) = present.filter(|present| !present.is_empty()) {
        options.push(" ");
        options.push(present);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(more: &[String]) -> AgentOptions<'_> {
        AgentOptions {
            library: "/opt/libtickwalk.so".into(),
            socket: "/tmp/s".into(),
            interval: Interval("10ms".into()),
            more,
        }
    }

    fn launch(command: &[&str]) -> Launch {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        Launch::new(&command, &options(&["log=debug".into()])).expect("plain paths")
    }

    const ARGUMENT: &str =
        "-agentpath:/opt/libtickwalk.so=mode=cputime,interval=10ms,collector=unix:/tmp/s,log=debug";

    #[test]
    fn java_gets_the_agent_as_its_first_option() {
        let launch = launch(&["/usr/bin/java", "-jar", "app.jar"]);
        assert_eq!(launch.arguments, [ARGUMENT, "-jar", "app.jar"]);
        assert_eq!(launch.tool_options, None);
    }

    #[test]
    fn other_programs_get_it_in_the_environment() {
        let launch = launch(&["./gradlew", "run"]);
        assert_eq!(launch.arguments, ["run"]);
        assert!(launch.tool_options.is_some_and(|options| options.to_string_lossy().starts_with(ARGUMENT)));
    }

    #[test]
    fn options_that_are_set_stay_and_spaces_are_quoted() {
        assert_eq!(tool_options("-a", Some("-Dx=1".into())), "-a -Dx=1");
        assert_eq!(tool_options("-a", Some("".into())), "-a");
        assert_eq!(tool_options("-a b", None), "\"-a b\"");
    }

    #[test]
    fn paths_the_options_cannot_express_are_refused() {
        let mut bad = options(&[]);
        bad.socket = "/tmp/a,b".into();
        assert!(bad.argument().is_err());
        let mut bad = options(&[]);
        bad.library = "/opt/a=b.so".into();
        assert!(bad.argument().is_err());
    }

    #[test]
    fn intervals() {
        for (text, good) in [
            ("10ms", true),
            ("10us", true),
            ("60s", true),
            ("9us", false),
            ("10", false),
            ("ms", false),
            ("-1s", false),
        ] {
            assert_eq!(text.parse::<Interval>().is_ok(), good, "{text}");
        }
    }
}
