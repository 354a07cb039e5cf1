//! Loads the agent into a JVM that runs already.
//!
//! Problem: the JVM must be asked in its own way, and asking wrongly ends it: SIGQUIT kills every process that does not
//! handle it.
//! Approach: the protocol of the JDK's own attach tools. A JVM that finds `.attach_pidN` when SIGQUIT arrives opens the Unix
//! socket `/tmp/.java_pidN` and takes commands there, one a connection.
//! Invariant: SIGQUIT is sent only to a process that has libjvm mapped and handles this signal. `/tmp` is everybody's: a
//! socket is trusted only if it is the JVM's, and no file or link that is there already is written to.
//! Sources: `os/posix/attachListener_posix.cpp`, `services/attachListener.cpp`, `prims/jvmtiAgent.cpp` (before 21
//! `jvmtiExport.cpp`), JDK 11 to 25.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process};

/// How long a JVM may take to open its socket: its attach thread starts first.
const SOCKET_PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may take: the agent reads the VM's tables, and ends with its last samples delivered.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// The agent's answer where a profile runs: `JNI_EEXIST`.
const PROFILED: &str = "-5";
/// Its answer to [`STOP`] where none does: `JNI_EINVAL`.
const NOT_PROFILED: &str = "-6";
/// Tells the agent to end its profile.
const STOP: &str = "stop";
/// Longest argument that every release takes.
const LONGEST_ARGUMENT: usize = 1024;

/// Why the agent is not in the JVM.
#[derive(Debug)]
pub enum AttachError {
    /// There is no such process.
    NoProcess(i32),
    /// It belongs to somebody else.
    NotAllowed(i32),
    /// It has no libjvm.
    NoJvm(i32),
    /// It sees other files than this program.
    OtherContainer(i32),
    /// It does not handle the signal that would make it listen.
    NoSignal(i32),
    /// It did not open its socket in time.
    Silent(i32),
    /// Options or paths that the protocol cannot carry.
    TooLong,
    /// Another profile runs there.
    Profiled(i32),
    /// There is no profile to end.
    NotProfiled(i32),
    /// What the JVM answered.
    Refused(String),
    /// The conversation broke.
    Io(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(pid) => write!(f, "there is no process {pid}"),
            Self::NotAllowed(pid) => {
                write!(f, "process {pid} belongs to another user; run this as that user")
            }
            Self::NoJvm(pid) => write!(f, "process {pid} is no HotSpot JVM: it has no libjvm.so"),
            Self::OtherContainer(pid) => {
                write!(f, "process {pid} runs in another container; run tickwalk there")
            }
            Self::NoSignal(pid) => write!(
                f,
                "JVM {pid} cannot be attached to: it does not handle SIGQUIT (started with -Xrs, or not up yet)"
            ),
            Self::Silent(pid) => write!(
                f,
                "JVM {pid} did not answer within {} s (is it stopped, or started with -XX:+DisableAttachMechanism?)",
                SOCKET_PATIENCE.as_secs()
            ),
            Self::TooLong => {
                write!(
                    f,
                    "the agent's path or options are longer than {LONGEST_ARGUMENT} bytes, or hold a zero byte"
                )
            }
            Self::Profiled(pid) => write!(
                f,
                "JVM {pid} is being profiled already; 'tickwalk attach --stop {pid}' ends that profile"
            ),
            Self::NotProfiled(pid) => write!(f, "no profile runs in JVM {pid}"),
            Self::Refused(answer) => write!(f, "the JVM refused the agent: {answer}"),
            Self::Io(error) => write!(f, "talking to the JVM failed: {error}"),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for AttachError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// A JVM that can be asked to load the agent.
#[derive(Debug)]
pub struct Jvm {
    pid: Pid,
    /// Its id where it runs, which names its files.
    inner_pid: i32,
    /// User and group it runs as.
    owner: (u32, u32),
}

impl Jvm {
    /// Looks at process `pid`.
    ///
    /// # Errors
    /// If it is no JVM, or one that cannot be attached to from here.
    pub fn find(pid: i32) -> Result<Self, AttachError> {
        let positive = Some(pid).filter(|pid| *pid > 0);
        let checked = positive.and_then(Pid::from_raw).ok_or(AttachError::NoProcess(pid))?;
        let proc = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
        let read = |name: &str| {
            fs::read_to_string(proc(name)).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => AttachError::NotAllowed(pid),
                _ => AttachError::NoProcess(pid),
            })
        };
        let status = read("status")?;
        if !has_libjvm(&read("maps")?) {
            return Err(AttachError::NoJvm(pid));
        }
        if fs::read_link(proc("ns/mnt"))? != fs::read_link("/proc/self/ns/mnt")? {
            return Err(AttachError::OtherContainer(pid));
        }
        if !handles_quit(&status) {
            return Err(AttachError::NoSignal(pid));
        }
        let metadata = fs::metadata(proc("status"))?;
        let inner_pid = field(&status, "NSpid:").and_then(|ids| ids.split_whitespace().last()?.parse().ok());
        Ok(Self {
            pid: checked,
            inner_pid: inner_pid.unwrap_or(pid),
            owner: (metadata.uid(), metadata.gid()),
        })
    }

    /// Process ids of the JVMs that could be attached to from here, with their command lines, in ascending order.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn all() -> io::Result<Vec<(i32, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // What has ended meanwhile or is somebody else's is none that could be attached to.
            if Self::find(pid).is_ok() {
                found.push((pid, command_line(pid)));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// User and group that must be able to open what the agent is told to open.
    pub fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// Ends the profile of the agent at `library`.
    ///
    /// # Errors
    /// As [`Jvm::load`].
    pub fn stop(&self, library: &str) -> Result<(), AttachError> {
        self.load(library, STOP)
    }

    /// Paths of the libraries called `name` that it has loaded.
    ///
    /// # Errors
    /// If it has ended meanwhile.
    pub fn libraries(&self, name: &str) -> Result<Vec<String>, AttachError> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid.as_raw_nonzero()))?;
        let path = |line: &str| line.find('/').and_then(|start| line.get(start..).map(str::to_owned));
        let mut found: Vec<String> = maps.lines().filter_map(path).collect();
        found.retain(|path| Path::new(path).file_name().is_some_and(|file| file == name));
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Has the agent at `library` called with `options`.
    ///
    /// # Errors
    /// If the JVM does not answer, or either of them says no.
    pub fn load(&self, library: &str, options: &str) -> Result<(), AttachError> {
        let parts = ["1", "load", library, "true", options];
        if parts.iter().any(|part| part.len() > LONGEST_ARGUMENT || part.contains('\0')) {
            return Err(AttachError::TooLong);
        }
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        let request: Vec<u8> = parts.iter().flat_map(|part| part.bytes().chain([0])).collect();
        stream.write_all(&request)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        understand(self.pid.as_raw_nonzero().get(), &answer)
    }

    fn connect(&self) -> Result<UnixStream, AttachError> {
        let directory = PathBuf::from(format!("/proc/{}/root", self.pid.as_raw_nonzero())).join("tmp");
        let socket = directory.join(format!(".java_pid{}", self.inner_pid));
        // A file that an ended process left behind refuses connections.
        let is_its = || fs::symlink_metadata(&socket).is_ok_and(|file| file.uid() == self.owner.0);
        let open = || is_its().then(|| UnixStream::connect(&socket).ok()).flatten();
        if let Some(stream) = open() {
            return Ok(stream);
        }
        let _trigger = self.trigger(&directory)?;
        // Watched before the signal is sent, so that its coming cannot be missed.
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, &directory, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        kill_process(self.pid, Signal::QUIT)?;
        let deadline = Instant::now() + SOCKET_PATIENCE;
        loop {
            if let Some(stream) = open() {
                return Ok(stream);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.try_into().map_err(io::Error::other)?;
            if poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&left))? == 0 {
                return Err(AttachError::Silent(self.pid.as_raw_nonzero().get()));
            }
            // What else happens in this directory is of no interest.
            let mut events = [0; 4096];
            let _ = rustix::io::read(&watch, &mut events);
        }
    }

    /// The file that tells the JVM what SIGQUIT is for: in its working directory, or else where its socket will be.
    fn trigger(&self, directory: &Path) -> Result<Trigger, AttachError> {
        let name = format!(".attach_pid{}", self.inner_pid);
        let places = [PathBuf::from(format!("/proc/{}/cwd", self.pid.as_raw_nonzero())), directory.into()];
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for place in places {
            let path = place.join(&name);
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Trigger(Some(path))),
                // Somebody else attaches as well, or did: it tells the JVM the same.
                Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => return Ok(Trigger(None)),
                Err(reason) => error = reason,
            }
        }
        Err(error.into())
    }
}

/// A file that is removed again, if it is ours.
struct Trigger(Option<PathBuf>);

impl Drop for Trigger {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Whoever removed it first has done the same.
            let _ = fs::remove_file(path);
        }
    }
}

fn has_libjvm(maps: &str) -> bool {
    maps.lines().any(|line| line.ends_with("/libjvm.so"))
}

/// Arguments as one line; control characters of theirs do not reach a terminal.
fn command_line(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ");
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Whether a process catches SIGQUIT, by its `/proc/PID/status`; the lowest bit is signal 1.
fn handles_quit(status: &str) -> bool {
    let caught = field(status, "SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    caught.is_some_and(|mask| mask >> (Signal::QUIT.as_raw() - 1) & 1 == 1)
}

/// The first line is the VM's code, 0 if the command was understood; the agent's own is in the text.
fn understand(pid: i32, answer: &str) -> Result<(), AttachError> {
    let (code, text) = answer.split_once('\n').unwrap_or((answer, ""));
    let text = text.trim();
    match (code.trim(), text.strip_prefix("return code: ").map(str::trim)) {
        ("0", Some("0")) => Ok(()),
        ("0", Some(PROFILED)) => Err(AttachError::Profiled(pid)),
        ("0", Some(NOT_PROFILED)) => Err(AttachError::NotProfiled(pid)),
        ("0", Some(code)) => {
            Err(AttachError::Refused(format!("its own answer is {code}; why is on the JVM's standard error")))
        }
        ("", _) => Err(AttachError::Refused("it closed the connection without an answer".to_owned())),
        (code, _) if text.is_empty() => Err(AttachError::Refused(format!("code {code}"))),
        _ => Err(AttachError::Refused(text.lines().collect::<Vec<_>>().join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert!(understand(7, "0\nreturn code: 0\n").is_ok());
        let refused = |answer| understand(7, answer).unwrap_err().to_string();
        assert!(refused("0\nreturn code: -5\n").ends_with("'tickwalk attach --stop 7' ends that profile"));
        assert_eq!(refused("0\nreturn code: -6\n"), "no profile runs in JVM 7");
        assert!(refused("0\nreturn code: -1\n").contains("-1; why"));
        let missing = "0\n/x.so was not loaded.\n/x.so: cannot open shared object file\n";
        assert!(refused(missing).ends_with("/x.so was not loaded.; /x.so: cannot open shared object file"));
        assert!(refused("100\n").contains("code 100"));
        assert!(refused("").contains("without an answer"));
    }

    #[test]
    fn a_signal_that_would_kill_is_not_sent() {
        assert!(handles_quit("Name:\tjava\nSigCgt:\t2000000181005ccf\n"));
        assert!(!handles_quit("SigCgt:\t2000000181005ccb\n"));
        assert!(!handles_quit("SigIgn:\tffffffffffffffff\n"));
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert!(matches!(Jvm::find(own), Err(AttachError::NoJvm(pid)) if pid == own));
        assert!(matches!(Jvm::find(0), Err(AttachError::NoProcess(0))));
        assert!(matches!(Jvm::find(-5), Err(AttachError::NoProcess(-5))));
        assert!(matches!(Jvm::find(i32::MAX), Err(AttachError::NoProcess(i32::MAX))));
    }
}
