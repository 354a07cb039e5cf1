//! Loads the agent into a running JVM.
//!
//! Problem: the attach protocol starts with SIGQUIT, which kills a process that does not handle it, and makes a JVM
//! with attaching disabled print its stacks.
//! Approach: the protocol of the JDK's own attach tools. A JVM that finds `.attach_pidN` when SIGQUIT arrives opens
//! the Unix socket `/tmp/.java_pidN` and reads commands there, one per connection; N is its own process id for
//! itself, and `/tmp` that of its root directory. A starting JVM may overlook the file, or remove its own new socket
//! as a stale one (`AttachListener::vm_start` runs after the thread that handles the signal has started). So the
//! signal is repeated, with doubling pauses, until there is a socket; a JVM that has one would print its stacks.
//! Invariant: SIGQUIT is sent only to a process that has libjvm mapped, handles this signal, and does not disable
//! attaching. Anybody may write to `/tmp`, so a socket is trusted only if the JVM's user owns it and this JVM listens
//! on it, and existing files and links are never written to.
//! Sources: `os/posix/attachListener_posix.cpp`, `services/attachListener.cpp`, `prims/jvmtiAgent.cpp` (before 21
//! `jvmtiExport.cpp`), JDK 11 to 25.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profile::characters;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::errors::{AttachError, LONGEST_ARGUMENT, Peer, SOCKET_TIMEOUT};
use super::flags;
use super::identity::Owner;
use super::perf_data::PerfData;
use super::process::{MappedFile, Process, Status, user_name};
use super::room::{self, Room};
use super::socket;

/// Time from the first SIGQUIT to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Time limit for an answer: the agent reads the VM's tables at the start and delivers its last samples at the end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer: a code and the messages of the linker.
const MAX_ANSWER: usize = 64 << 10;
/// The agent's return code if a profile is already running: `JNI_EEXIST`.
const PROFILED: &str = "-5";
/// The agent's return code if no profile is running that could be ended: `JNI_EINVAL`.
const NOT_PROFILED: &str = "-6";
/// The agent's return code if the last profile has samples to deliver (`ENDING` in `agent/src/lib.rs`).
const ENDING: &str = "-7";
/// Name of a thread of every HotSpot JVM, which carries out VM operations.
const VM_THREAD: &str = "VM Thread";
/// Most characters of an answer that are shown.
const SHOWN_CHARACTERS: usize = 1000;

/// Threads of a profile: the sampler thread, its helper that drains queues, and the sender.
const PROFILE_THREADS: u64 = 3;

/// A JVM that can load the agent on request.
#[derive(Debug)]
pub struct Jvm {
    pid: Pid,
    process: Process,
    status: Status,
    answer_timeout: Duration,
}

impl Jvm {
    /// Checks that process `pid` is a JVM that can be attached to; sends nothing to it.
    pub fn find(pid: i32) -> Result<Self, AttachError> {
        let positive = Some(pid).filter(|pid| *pid > 0);
        let checked = positive.and_then(Pid::from_raw).ok_or(AttachError::NoProcess(pid))?;
        let process = Process::of(pid);
        let status = process.status().map_err(|_| AttachError::NoProcess(pid))?;
        let data = match process.is_hidden() {
            true => examine_hidden(process, &status)?,
            false => examine(process)?,
        };
        let published = data.and_then(|data| data.can_be_attached_to());
        if !published.unwrap_or_else(|| !flags::forbids_attaching(process)) {
            return Err(AttachError::Disabled(pid));
        }
        if !status.handles_quit {
            return Err(AttachError::NoSignal(pid));
        }
        Ok(Self { pid: checked, process, status, answer_timeout: ANSWER_TIMEOUT })
    }

    /// Sets the time limit for an answer.
    pub fn answering_within(self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self }
    }

    pub fn process(&self) -> Process {
        self.process
    }

    /// Returns user and group of the JVM.
    pub fn owner(&self) -> Owner {
        self.status.owner
    }

    /// Checks that the JVM can start the threads of a profile.
    ///
    /// # Errors
    /// [`AttachError::NoThreads`], which names the limit.
    pub fn check_room_for_profile(&self) -> Result<(), AttachError> {
        let directory = open_directory(&self.process.outer_path(Path::new("/tmp")))?;
        let has_listener = self.open_socket(&path_in(&directory, &self.socket_name()))?.is_some();
        self.check_room(PROFILE_THREADS + u64::from(!has_listener))
    }

    fn check_room(&self, threads: u64) -> Result<(), AttachError> {
        match room::of(self.process, &self.status, threads) {
            Room::Enough => Ok(()),
            Room::Missing(limit) => Err(AttachError::NoThreads { pid: self.process.id(), threads, limit }),
        }
    }

    /// Loads the agent at `library`, a path that the JVM sees, if it is not loaded, and calls it with `options`.
    pub fn load(&self, library: &str, options: &str) -> Result<(), AttachError> {
        let parts = ["1", "load", library, "true", options];
        if parts.iter().any(|part| part.len() > LONGEST_ARGUMENT || part.contains('\0')) {
            return Err(AttachError::BadArgument);
        }
        let mut stream = self.connect()?;
        let request: Vec<u8> = parts.iter().flat_map(|part| part.bytes().chain([0])).collect();
        stream.write_all(&request)?;
        let pid = self.process.id();
        let answer = socket::read(&stream, MAX_ANSWER, Instant::now() + self.answer_timeout);
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => AttachError::NoAnswer(pid, self.answer_timeout),
            io::ErrorKind::FileTooLarge => AttachError::LongAnswer(pid),
            _ => error.into(),
        })?;
        parse_answer(pid, &answer)
    }

    fn connect(&self) -> Result<UnixStream, AttachError> {
        let directory = open_directory(&self.process.outer_path(Path::new("/tmp")))?;
        let socket = path_in(&directory, &self.socket_name());
        if let Some(stream) = self.open_socket(&socket)? {
            return Ok(stream);
        }
        // A JVM that cannot start the thread for attach requests exits.
        self.check_room(1)?;
        let _trigger = self.trigger(&directory)?;
        // The watch starts before the signal is sent, so that the creation of the socket is not missed.
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, path_in(&directory, "."), WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        let deadline = Instant::now() + SOCKET_TIMEOUT;
        let (mut next_signal, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            if let Some(stream) = self.open_socket(&socket)? {
                return Ok(stream);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(AttachError::NoSocket(self.process.id()));
            }
            if now >= next_signal {
                kill_process(self.pid, Signal::QUIT).map_err(|error| match error {
                    Errno::SRCH => AttachError::NoProcess(self.process.id()),
                    error => error.into(),
                })?;
                (next_signal, pause) = (now + pause, 2 * pause);
            }
            let left = deadline.min(next_signal).saturating_duration_since(now);
            let left = left.try_into().map_err(io::Error::other)?;
            poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&left))?;
            // The events are discarded; the loop checks the socket itself.
            let mut events = [0; 4096];
            let _ = rustix::io::read(&watch, &mut events);
        }
    }

    /// Returns the name of the JVM's socket, which contains its id in its own pid namespace.
    fn socket_name(&self) -> String {
        format!(".java_pid{}", self.status.inner_pid)
    }

    /// Connects to the socket at `path`; `None` if nothing listens there, as for the file of an ended process.
    ///
    /// # Errors
    /// [`AttachError::OtherJvm`] if another process listens there.
    fn open_socket(&self, path: &Path) -> Result<Option<UnixStream>, AttachError> {
        if !self.owns(path) {
            return Ok(None);
        }
        // The JVM reads the ids of the thread that connects.
        let Ok(stream) = self.owner().act(|| socket::connect_to(path)) else { return Ok(None) };
        let peer = socket::peer(&stream)?;
        if peer == self.process.id() {
            return Ok(Some(stream));
        }
        let (pid, inner_pid) = (self.process.id(), self.status.inner_pid);
        Err(AttachError::OtherJvm { pid, inner_pid, peer: Peer(peer) })
    }

    /// Returns whether the JVM's user owns a file; files of other users are not trusted.
    fn owns(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|file| file.uid() == self.owner().user)
    }

    /// Creates the file that makes SIGQUIT a request to attach: in `directory`, the JVM's `/tmp`, else in its working
    /// directory, which changes for a moment while a JVM starts (`open_directory_secure_cwd` in
    /// `os/posix/perfMemory_posix.cpp`). The JVM ignores files of other users.
    fn trigger(&self, directory: &OwnedFd) -> Result<Trigger, AttachError> {
        let name = format!(".attach_pid{}", self.status.inner_pid);
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        let working = open_directory(&self.process.file("cwd"));
        let places = [directory.try_clone(), working];
        for place in places.into_iter().flatten() {
            let path = path_in(&place, &name);
            let created = self.owner().act(|| {
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map(drop)
            });
            match created {
                Ok(()) => return Ok(Trigger { owner: self.owner(), place, name, is_ours: true }),
                // Another tool has created the file, which has the same effect.
                Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists && self.owns(&path) => {
                    return Ok(Trigger { owner: self.owner(), place, name, is_ours: false });
                }
                Err(reason) => failure = reason,
            }
        }
        Err(failure.into())
    }
}

/// Checks that a process with visible files is a JVM; returns its performance data.
fn examine(process: Process) -> Result<Option<PerfData>, AttachError> {
    let pid = process.id();
    let mapped = process.mapped_files().map_err(|_| AttachError::NoProcess(pid))?;
    if !is_jvm(&mapped) {
        return Err(AttachError::NoJvm(pid));
    }
    if is_musl(&mapped) {
        return Err(AttachError::Musl(pid));
    }
    Ok(PerfData::read(process, &mapped))
}

/// Does the same for a process that hides its files. An undumpable JVM of this user can be attached to if it shares
/// the file system of this process. SIGQUIT may end other programs, so the process must have performance data or the
/// thread that every HotSpot JVM has.
fn examine_hidden(process: Process, status: &Status) -> Result<Option<PerfData>, AttachError> {
    let (pid, user) = (process.id(), status.owner.user);
    let shows_threads = process.file("task").read_dir().is_ok();
    if shows_threads && !process.has_thread(VM_THREAD) {
        return Err(AttachError::NoVmThread(pid));
    }
    if user != Owner::own().user {
        return Err(AttachError::NotAllowed(pid, user_name(user)));
    }
    let data = PerfData::of_hidden(process, user);
    let is_jvm = data.is_some() || process.has_thread(VM_THREAD);
    // Another pid namespace comes with another file system.
    if !is_jvm || status.inner_pid != pid {
        return Err(AttachError::Hidden(pid));
    }
    Ok(data)
}

/// A file that is removed on drop, unless another tool created it.
struct Trigger {
    owner: Owner,
    place: OwnedFd,
    name: String,
    is_ours: bool,
}

impl Drop for Trigger {
    fn drop(&mut self) {
        if self.is_ours {
            let path = path_in(&self.place, &self.name);
            // An error means that the file is already removed.
            let _ = self.owner.act(|| fs::remove_file(path));
        }
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns a path to a file in an open directory, for threads with other rights as well.
fn path_in(directory: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Returns whether a process with these mappings is a HotSpot JVM.
pub fn is_jvm(mapped: &[MappedFile]) -> bool {
    mapped.iter().any(|file| file.is_named("libjvm.so"))
}

/// Returns whether a process with these mappings uses the C library musl. Its loader is one file with the library,
/// which is named `ld-musl-CPU.so.1` on Alpine and `libc.so` elsewhere; glibc's is `libc.so.6`.
fn is_musl(mapped: &[MappedFile]) -> bool {
    let is_loader = |file: &MappedFile| {
        let name = file.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("ld-musl-") || name.starts_with("libc.musl-") || name == "libc.so"
    };
    mapped.iter().any(is_loader)
}

/// Reads an answer: the first line is the VM's code, 0 for success; the text after it has the agent's return code.
fn parse_answer(pid: i32, answer: &str) -> Result<(), AttachError> {
    let (code, text) = answer.split_once('\n').unwrap_or((answer, ""));
    let text = text.trim();
    match (code.trim(), text.strip_prefix("return code: ").map(str::trim)) {
        ("0", Some("0")) => Ok(()),
        ("0", Some(PROFILED)) => Err(AttachError::Profiled(pid)),
        ("0", Some(ENDING)) => Err(AttachError::Ending(pid)),
        ("0", Some(NOT_PROFILED)) => Err(AttachError::NotProfiled(pid)),
        ("0", Some(code)) => {
            let text = format!("return code {code}; the JVM's standard error has the cause");
            Err(AttachError::Refused(shown(&text)))
        }
        ("", _) => Err(AttachError::Refused("the JVM closed the connection without an answer".to_owned())),
        _ if text.contains("Dynamic agent loading is not enabled") => Err(AttachError::NoDynamicLoading(pid)),
        (code, _) if text.is_empty() => Err(AttachError::Refused(shown(&format!("code {code}")))),
        _ => Err(AttachError::Refused(shown(text))),
    }
}

/// Returns the beginning of an answer as one line.
fn shown(text: &str) -> String {
    let line = characters::shown(&text.lines().collect::<Vec<_>>().join("; ")).into_owned();
    match line.char_indices().nth(SHOWN_CHARACTERS) {
        Some((at, _)) => format!("{}...", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert!(parse_answer(7, "0\nreturn code: 0\n").is_ok());
        let refused = |answer| parse_answer(7, answer).unwrap_err().to_string();
        assert!(refused("0\nreturn code: -5\n").ends_with("'tickwalk stop 7' ends that profile"));
        assert_eq!(refused("0\nreturn code: -6\n"), "no profile runs in JVM 7");
        assert!(refused("0\nreturn code: -1\n").contains("return code -1; "));
        let missing = "0\n/x.so was not loaded.\n/x.so: cannot open shared object file\n";
        assert!(refused(missing).ends_with("/x.so was not loaded.; /x.so: cannot open shared object file"));
        assert!(refused("100\n").contains("code 100"));
        assert!(refused("").contains("without an answer"));
        // A peer that is no JVM may send anything.
        let wild = refused("0\n\x1b]0;title\x07\nsecond\n");
        assert!(wild.ends_with(r": \u001b]0;title\u0007; second"), "{wild}");
        assert!(refused(&format!("1\n{}", "x".repeat(5000))).len() < 1100);
    }

    #[test]
    fn a_process_that_is_no_jvm_is_refused() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert!(matches!(Jvm::find(own), Err(AttachError::NoJvm(pid)) if pid == own));
        assert!(matches!(Jvm::find(0), Err(AttachError::NoProcess(0))));
        assert!(matches!(Jvm::find(-5), Err(AttachError::NoProcess(-5))));
        assert!(matches!(Jvm::find(i32::MAX), Err(AttachError::NoProcess(i32::MAX))));
    }

    #[test]
    fn the_trigger_file_is_made_in_the_temporary_directory_and_removed() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        let process = Process::of(own);
        let jvm = Jvm {
            pid: Pid::from_raw(own).expect("a process id"),
            process,
            status: process.status().expect("a process"),
            answer_timeout: ANSWER_TIMEOUT,
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = open_directory(folder.path()).expect("exists");
        let file = folder.path().join(format!(".attach_pid{own}"));
        let trigger = jvm.trigger(&directory).expect("created");
        assert!(file.exists());
        let of_another_tool = jvm.trigger(&directory).expect("the same file");
        drop(of_another_tool);
        assert!(file.exists(), "it belongs to the one that made it");
        // A file of another user, which the JVM ignores; only the superuser can make one.
        if jvm.owner().user == 0 {
            std::os::unix::fs::chown(&file, Some(12_345), None).expect("any user");
            let elsewhere = jvm.trigger(&directory).expect("created in the working directory");
            assert!(elsewhere.is_ours && Path::new(&elsewhere.name).exists());
        }
        drop(trigger);
        assert!(!file.exists());
    }

    #[test]
    fn musl_and_jvms_are_recognised_by_their_libraries() {
        let mapped = |path: &str| {
            let (path, addresses, spans) = (path.into(), "0-1".into(), std::iter::once(0..1).collect());
            [MappedFile { path, inode: 1, addresses, spans, is_deleted: false }]
        };
        assert!(is_musl(&mapped("/lib/ld-musl-x86_64.so.1")));
        assert!(is_musl(&mapped("/usr/lib/x86_64-linux-musl/libc.so")));
        assert!(!is_musl(&mapped("/lib/x86_64-linux-gnu/libc.so.6")));
        assert!(is_jvm(&mapped("/opt/jdk/lib/server/libjvm.so")));
        assert!(!is_jvm(&mapped("/opt/jdk/lib/libjava.so")));
    }
}
