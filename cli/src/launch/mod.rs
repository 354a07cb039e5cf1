//! Starts a program with the agent in its JVM and waits for its end.

pub mod agent_library;
pub mod remote;
pub mod signals;

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::launch::signals::Signals;

/// Environment variable with options for every JVM.
const TOOL_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// How long the program's exit may be delayed while this process gets no processor; the result is worth it.
const END_SILENCE: &str = "10s";

/// Time after which an agent ends its profile if this command was killed.
pub const ABANDON: &str = "10s";

#[derive(Debug)]
pub struct AgentOptions<'a> {
    pub library: PathBuf,
    pub socket: PathBuf,
    /// Further options, as the agent reads them.
    pub more: &'a [String],
}

impl AgentOptions<'_> {
    /// Returns the option that loads the agent at the start of a JVM.
    fn argument(&self) -> anyhow::Result<String> {
        // The JVM splits the option at the first '='.
        if self.library.as_os_str().as_encoded_bytes().contains(&b'=') {
            bail!(
                "cannot pass the path {} to the JVM: it contains '='; use another path",
                self.library.display()
            );
        }
        Ok(format!("-agentpath:{}={}", plain(&self.library)?, self.text()?))
    }

    pub fn text(&self) -> anyhow::Result<String> {
        let mut options = format!("mode=cputime,exitwait={END_SILENCE},abandon={ABANDON},collector=unix:");
        options.push_str(plain(&self.socket)?);
        for option in self.more {
            options.push(',');
            options.push_str(option);
        }
        Ok(options)
    }
}

/// Returns a path as text that the agent's options can contain.
pub fn plain(path: &Path) -> anyhow::Result<&str> {
    match path.to_str() {
        Some(text) if !text.contains(',') => Ok(text),
        _ => bail!(
            "cannot pass the path {} to the agent: it has a comma or is not UTF-8; use another path",
            path.display()
        ),
    }
}

/// A program that cannot be started; the exit code is that of shells.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error("the program {0} does not exist; give its path or check PATH")]
    NotFound(String),
    #[error("the program {0} cannot be run: {1}")]
    NotExecutable(String, Errno),
}

impl NotStarted {
    /// Exit code of a command that could not be started.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable(..) => 126,
        }
    }
}

/// Destination of a program's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// To that of this command.
    Inherited,
    Discarded,
}

/// A program with the options that load the agent.
#[derive(Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    tool_options: Option<OsString>,
    output: Output,
}

impl Launch {
    /// Adds the agent to `command`: as the first option of `java`; for other programs, or with `follow`, in
    /// `JAVA_TOOL_OPTIONS`.
    pub fn new(command: &[OsString], options: &AgentOptions<'_>, follow: bool) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("no program to run")?;
        let argument = options.argument()?;
        let (program, arguments) = (program.clone(), arguments.to_vec());
        let mut launch = Launch { program, arguments, tool_options: None, output: Output::Inherited };
        if Path::new(&launch.program).file_name() == Some(OsStr::new("java")) && !follow {
            launch.arguments.insert(0, argument.into());
        } else {
            launch.tool_options = Some(tool_options(&argument, std::env::var_os(TOOL_OPTIONS)));
        }
        Ok(launch)
    }

    /// Chooses where the program's standard output goes.
    pub fn with_output(self, output: Output) -> Self {
        Self { output, ..self }
    }

    /// Returns how the agent was passed, for messages about an agent that did not connect.
    pub fn how_the_agent_was_passed(&self) -> &'static str {
        match self.tool_options {
            None => "-agentpath was passed on the command line",
            Some(_) => "-agentpath was passed in JAVA_TOOL_OPTIONS, which only a JVM reads",
        }
    }

    /// Runs the program to its end and forwards `signals` to it; returns its exit code, 128 + N if signal N ended it.
    pub fn run(&self, signals: &Signals) -> anyhow::Result<u8> {
        wait(self.start(signals)?, signals)
    }

    /// Starts the program with the signal mask that this program was started with.
    ///
    /// `std::process::Command` would pass on the current mask, and unblocking the signals meanwhile would let one of
    /// them end this program alone.
    fn start(&self, signals: &Signals) -> anyhow::Result<Pid> {
        let mut attributes = PosixSpawnAttr::init()?;
        attributes
            .set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
        attributes.set_sigmask(signals.blocked_before())?;
        // Rust programs ignore SIGPIPE; other programs need its default action.
        attributes.set_sigdefault(&[Signal::SIGPIPE].into_iter().collect())?;
        let program = text(self.program.clone())?;
        let arguments = [self.program.clone()]
            .into_iter()
            .chain(self.arguments.iter().cloned())
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let mut files = PosixSpawnFileActions::init()?;
        let nowhere = match self.output {
            Output::Inherited => None,
            Output::Discarded => {
                Some(File::options().write(true).open("/dev/null").context("cannot open /dev/null")?)
            }
        };
        if let Some(nowhere) = &nowhere {
            files.add_dup2(nowhere.as_raw_fd(), io::stdout().as_raw_fd())?;
        }
        let started = posix_spawnp(&program, &files, &attributes, &arguments, &self.environment()?);
        started.map_err(|error| {
            let program = self.program.display().to_string();
            match error {
                Errno::ENOENT => NotStarted::NotFound(program).into(),
                Errno::EACCES | Errno::ENOEXEC => NotStarted::NotExecutable(program, error).into(),
                error => anyhow::Error::new(error).context(format!("cannot start {program}")),
            }
        })
    }

    /// Returns the environment of this program, with the agent in `JAVA_TOOL_OPTIONS` if it is passed that way.
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

/// Waits for the program and returns its exit code. SIGCHLD is blocked, so the end of the program cannot be missed.
fn wait(pid: Pid, signals: &Signals) -> anyhow::Result<u8> {
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)).context("cannot wait for the program")? {
            // Exit codes fit into a byte, and so does 128 + signal: signal numbers end at 64.
            WaitStatus::Exited(_, code) => return Ok(u8::try_from(code).unwrap_or(1)),
            WaitStatus::Signaled(_, signal, _) => {
                return Ok(u8::try_from(128 + signal as i32).unwrap_or(1));
            }
            _ => {}
        }
        let received = signals.next()?;
        // The terminal has signalled the program itself; many programs exit at once on a second SIGINT.
        if received.signal != Signal::SIGCHLD && !received.from_terminal {
            // An error means that the program has ended; the next iteration handles that.
            let _ = kill(pid, received.signal);
        }
    }
}

/// Returns `argument` before the options in `present`, quoted if it contains spaces.
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
        AgentOptions { library: "/opt/libtickwalk.so".into(), socket: "/tmp/s".into(), more }
    }

    fn launch(command: &[&str]) -> Launch {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        Launch::new(&command, &options(&["log=debug".into()]), false).expect("plain paths")
    }

    const ARGUMENT: &str = "-agentpath:/opt/libtickwalk.so=mode=cputime,exitwait=10s,abandon=10s,collector=unix:/tmp/s,log=debug";

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
}
