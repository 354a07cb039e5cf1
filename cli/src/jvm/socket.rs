//! Connections between this command and a JVM, in either direction.
//!
//! Problem: a socket in a shared `/tmp` may belong to another JVM that has the same id in its own pid namespace, and
//! the other end may be hostile.
//! Approach: the kernel reports the process at the other end of a Unix socket (`SO_PEERCRED`); other processes than the
//! expected one are refused. Every wait has a deadline, and every text a maximum length.
//! Sources: unix(7), net/unix/af_unix.c (`init_peercred` at listen(2) and connect(2)).

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, setsockopt, socket};
use nix::sys::time::TimeVal;
use rustix::event::{PollFd, PollFlags, poll};

use super::process::Process;

/// Longest wait for a place in the queue of a listener, and for a reader.
const SEND_TIMEOUT_SECONDS: i64 = 5;

/// Connects to the Unix socket at `path`; waits at most some seconds for a listener with a full queue.
pub fn connect_to(path: &Path) -> io::Result<UnixStream> {
    connect_socket(&UnixAddr::new(path)?)
}

/// Connects to a name in the abstract namespace, which has no file.
pub fn connect_to_name(name: &str) -> io::Result<UnixStream> {
    connect_socket(&UnixAddr::new_abstract(name.as_bytes())?)
}

fn connect_socket(address: &UnixAddr) -> io::Result<UnixStream> {
    let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&stream, SendTimeout, &TimeVal::new(SEND_TIMEOUT_SECONDS, 0))?;
    nix::sys::socket::connect(stream.as_raw_fd(), address)?;
    Ok(stream.into())
}

/// Returns the process at the other end; 0 if its pid namespace is not visible here.
pub fn peer(stream: &UnixStream) -> io::Result<i32> {
    Ok(getsockopt(stream, PeerCredentials)?.pid())
}

/// Returns the effective user of that process, as it was when it began to listen or connected.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, PeerCredentials)?.uid())
}

/// Waits for a connection of `process`, and closes those of others.
///
/// # Errors
/// `TimedOut` at the deadline; as accept(2).
pub fn accept(listener: &UnixListener, process: Process, deadline: Instant) -> io::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) if peer(&stream)? == process.id() => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(listener, deadline)?,
            Err(error) => return Err(error),
        }
    }
}

/// Waits until a descriptor is readable.
fn wait(descriptor: impl AsFd, deadline: Instant) -> io::Result<()> {
    let left = left_until(deadline)?.try_into().map_err(io::Error::other)?;
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&left))?;
    Ok(())
}

/// Returns the time until `deadline`.
fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads until the other end closes the connection.
///
/// # Errors
/// `TimedOut` at the deadline, however slowly the bytes come; `FileTooLarge` if there are more than `limit`.
pub fn read(mut stream: &UnixStream, limit: usize, deadline: Instant) -> io::Result<String> {
    let (mut bytes, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        stream.set_read_timeout(Some(left_until(deadline)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(count) => bytes.extend_from_slice(part.get(..count).unwrap_or_default()),
            // The deadline is checked again.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    fn own() -> Process {
        Process::of(i32::try_from(std::process::id()).expect("a process id"))
    }

    #[test]
    fn answers_have_a_limit_and_a_deadline() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"0\n\xff").expect("written");
        let error = read(&ours, 100, soon()).expect_err("it stays open");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        theirs.write_all(&[b'A'; 101]).expect("written");
        assert_eq!(read(&ours, 100, soon()).expect_err("too long").kind(), io::ErrorKind::FileTooLarge);
        theirs.write_all(b"0\n\xff").expect("written");
        drop(theirs);
        assert_eq!(read(&ours, 100, soon()).expect("an answer"), "0\n\u{fffd}");
    }

    /// Bytes keep arriving, but the answer never ends.
    #[test]
    fn a_slow_answer_ends_at_the_deadline() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let sender = thread::spawn(move || {
            while theirs.write_all(b"A").is_ok() {
                thread::yield_now()
            }
        });
        let error = read(&ours, usize::MAX, soon()).expect_err("no end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(ours);
        sender.join().expect("no panic");
    }

    #[test]
    fn the_process_at_the_other_end_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bound");
        let stream = connect_to(&path).expect("connected");
        assert_eq!(peer(&stream).expect("known"), own().id());
        assert!(accept(&listener, own(), soon()).is_ok());
        let _other = connect_to(&path).expect("connected");
        let error = accept(&listener, Process::of(1), soon()).expect_err("another process");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
