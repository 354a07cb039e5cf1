//! Loads the agent into a running JVM.
//!
//! Problem: the attach protocol starts with SIGQUIT, which kills a process that does not handle it.
//! Approach: the protocol of the JDK's own attach tools. A JVM that finds `.attach_pidN` when SIGQUIT arrives opens the Unix
//! socket `/tmp/.java_pidN` and reads commands there, one per connection.
//! Invariant: SIGQUIT is sent only to a process that has libjvm mapped and handles this signal. Everybody may write to
//! `/tmp`: a socket is trusted only if the JVM's user owns it, and existing files and links are never written to.
//! Sources: `os/posix/attachListener_posix.cpp`, `services/attachListener.cpp`, `prims/jvmtiAgent.cpp` (before 21
//! `jvmtiExport.cpp`), JDK 11 to 25.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process};

/// Time limit for the JVM to open its socket; it has to start its attach thread first.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for an answer: at the start the agent reads the VM's tables, at the end it delivers its last samples.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The agent's return code if a profile is already running: `JNI_EEXIST`.
const PROFILED: &str = "-5";
/// The agent's return code to [`STOP`] if no profile is running: `JNI_EINVAL`.
const NOT_PROFILED: &str = "-6";
/// Option that ends the agent's profile.
const STOP: &str = "stop";
/// Longest argument in bytes that every JDK release accepts.
const LONGEST_ARGUMENT: usize = 1024;

/// Why attaching failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("there is no process {0}; 'tickwalk attach' lists the JVMs")]
    NoProcess(i32),
    #[error("process {0} belongs to another user; run tickwalk as that user")]
    NotAllowed(i32),
    #[error("process {0} is not a HotSpot JVM: it has no libjvm.so; 'tickwalk attach' lists the JVMs")]
    NoJvm(i32),
    #[error("process {0} runs in another container; run tickwalk in that container")]
    OtherContainer(i32),
    #[error(
        "cannot attach to JVM {0}: it does not handle SIGQUIT; if it is still starting, try again; \
                if it runs with -Xrs, start it without"
    )]
    NoSignal(i32),
    #[error("JVM {0} did not answer within {limit} s; if it is stopped, continue it; if it runs with \
                -XX:+DisableAttachMechanism, start it without",
                limit = SOCKET_TIMEOUT.as_secs())]
    NoSocket(i32),
    #[error(
        "the agent's path or options are longer than {LONGEST_ARGUMENT} bytes or contain a zero byte; \
                    shorten them"
    )]
    BadArgument,
    #[error("JVM {0} is already being profiled; 'tickwalk attach --stop {0}' ends that profile")]
    Profiled(i32),
    #[error("no profile runs in JVM {0}")]
    NotProfiled(i32),
    #[error("the JVM refused the agent: {0}")]
    Refused(String),
    #[error("the connection to the JVM failed: {0}")]
    Io(io::Error),
}

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

/// A JVM that can load the agent on request.
#[derive(Debug)]
pub struct Jvm {
    pid: Pid,
    /// Its process id in its own pid namespace, which is part of its files' names.
    inner_pid: i32,
    /// User and group of the process.
    owner: (u32, u32),
}

impl Jvm {
    /// Checks that process `pid` is a JVM that can be attached to.
    ///
    /// # Errors
    /// If it is not a JVM, or cannot be attached to from this process.
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

    /// Returns process ids and command lines of the JVMs that can be attached to from this process, in ascending order.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn all() -> io::Result<Vec<(i32, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Errors mean that the process has ended, is not a JVM, or belongs to another user.
            if Self::find(pid).is_ok() {
                found.push((pid, command_line(pid)));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns user and group of the JVM, which need access to the collector's socket.
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

    /// Returns the paths of the loaded libraries with the file name `name`.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn libraries(&self, name: &str) -> Result<Vec<String>, AttachError> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid.as_raw_nonzero()))?;
        let path = |line: &str| line.find('/').and_then(|start| line.get(start..).map(str::to_owned));
        let mut found: Vec<String> = maps.lines().filter_map(path).collect();
        found.retain(|path| Path::new(path).file_name().is_some_and(|file| file == name));
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Loads the agent at `library` if necessary and calls it with `options`.
    ///
    /// # Errors
    /// If the JVM does not answer, or the JVM or the agent refuses.
    pub fn load(&self, library: &str, options: &str) -> Result<(), AttachError> {
        let parts = ["1", "load", library, "true", options];
        if parts.iter().any(|part| part.len() > LONGEST_ARGUMENT || part.contains('\0')) {
            return Err(AttachError::BadArgument);
        }
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let request: Vec<u8> = parts.iter().flat_map(|part| part.bytes().chain([0])).collect();
        stream.write_all(&request)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        parse_answer(self.pid.as_raw_nonzero().get(), &answer)
    }

    fn connect(&self) -> Result<UnixStream, AttachError> {
        let directory = PathBuf::from(format!("/proc/{}/root", self.pid.as_raw_nonzero())).join("tmp");
        let socket = directory.join(format!(".java_pid{}", self.inner_pid));
        // The socket file of an ended process refuses connections.
        let is_owned = || fs::symlink_metadata(&socket).is_ok_and(|file| file.uid() == self.owner.0);
        let open = || is_owned().then(|| UnixStream::connect(&socket).ok()).flatten();
        if let Some(stream) = open() {
            return Ok(stream);
        }
        let _trigger = self.trigger(&directory)?;
        // The watch begins before the signal is sent, so the creation of the socket cannot be missed.
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, &directory, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        kill_process(self.pid, Signal::QUIT)?;
        let deadline = Instant::now() + SOCKET_TIMEOUT;
        loop {
            if let Some(stream) = open() {
                return Ok(stream);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.try_into().map_err(io::Error::other)?;
            if poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&left))? == 0 {
                return Err(AttachError::NoSocket(self.pid.as_raw_nonzero().get()));
            }
            // Discard the events; the loop checks the socket itself.
            let mut events = [0; 4096];
            let _ = rustix::io::read(&watch, &mut events);
        }
    }

    /// Creates the file by which the JVM takes SIGQUIT for a request to attach: in its working directory, else in
    /// `directory`.
    fn trigger(&self, directory: &Path) -> Result<Trigger, AttachError> {
        let name = format!(".attach_pid{}", self.inner_pid);
        let places = [PathBuf::from(format!("/proc/{}/cwd", self.pid.as_raw_nonzero())), directory.into()];
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for place in places {
            let path = place.join(&name);
            match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Trigger(Some(path))),
                // Another tool has created the file, which has the same effect.
                Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => return Ok(Trigger(None)),
                Err(reason) => error = reason,
            }
        }
        Err(error.into())
    }
}

/// A file that is removed on drop; `None` if another tool created it.
struct Trigger(Option<PathBuf>);

impl Drop for Trigger {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // An error means that the file is already removed.
            let _ = fs::remove_file(path);
        }
    }
}

fn has_libjvm(maps: &str) -> bool {
    maps.lines().any(|line| line.ends_with("/libjvm.so"))
}

/// Returns the arguments of a process as one line, with '?' for each control character.
fn command_line(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ");
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns whether a process catches SIGQUIT, by its `/proc/PID/status`. The lowest bit of the mask is signal 1.
fn handles_quit(status: &str) -> bool {
    let caught = field(status, "SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    caught.is_some_and(|mask| mask >> (Signal::QUIT.as_raw() - 1) & 1 == 1)
}

/// Reads an answer: the first line is the VM's code, 0 for success; the text after it has the agent's return code.
fn parse_answer(pid: i32, answer: &str) -> Result<(), AttachError> {
    let (code, text) = answer.split_once('\n').unwrap_or((answer, ""));
    let text = text.trim();
    match (code.trim(), text.strip_prefix("return code: ").map(str::trim)) {
        ("0", Some("0")) => Ok(()),
        ("0", Some(PROFILED)) => Err(AttachError::Profiled(pid)),
        ("0", Some(NOT_PROFILED)) => Err(AttachError::NotProfiled(pid)),
        ("0", Some(code)) => {
            Err(AttachError::Refused(format!("return code {code}; the JVM's standard error has the cause")))
        }
        ("", _) => Err(AttachError::Refused("the JVM closed the connection without an answer".to_owned())),
        (code, _) if text.is_empty() => Err(AttachError::Refused(format!("code {code}"))),
        _ => Err(AttachError::Refused(text.lines().collect::<Vec<_>>().join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert!(parse_answer(7, "0\nreturn code: 0\n").is_ok());
        let refused = |answer| parse_answer(7, answer).unwrap_err().to_string();
        assert!(refused("0\nreturn code: -5\n").ends_with("'tickwalk attach --stop 7' ends that profile"));
        assert_eq!(refused("0\nreturn code: -6\n"), "no profile runs in JVM 7");
        assert!(refused("0\nreturn code: -1\n").contains("return code -1; "));
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
