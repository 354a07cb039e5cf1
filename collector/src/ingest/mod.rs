//! Receives the messages of agents: one thread for each connection, one recording for each session.
//!
//! A listener thread waits for connections and the stop signal. Each connection has a blocking thread, which appends
//! received messages to the session's recording or to the store and then acknowledges them. At stop the listener closes
//! the reading half of every connection: bytes that have arrived are still stored and acknowledged.
//! Invariant: a message is acknowledged only after it was stored; a fault of one connection ends that connection only.

mod access;
mod certificate;
mod clock;
mod connection;
mod limits;
mod own_recording;
mod refusal;
mod session;
mod shared;
mod socket;

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;

use crate::address::Address;
use crate::places::Places;
pub use access::Access;
pub(crate) use access::equal;
pub use certificate::CertificateError;
pub(crate) use clock::now_ns;
pub use limits::Limits;
pub use refusal::Refusal;
use session::Sessions;
pub use session::{Destination, SessionReport};
pub use shared::Health;
use shared::Shared;
use socket::Listener;

/// A running collector; dropping it stops it.
pub struct Server {
    address: Address,
    stop: StopHandle,
    listener: Option<JoinHandle<()>>,
    /// Readable once a session has ended.
    ended: UnixStream,
}

/// Stops a [`Server`] from any thread.
#[derive(Clone)]
pub struct StopHandle {
    shared: Arc<Shared>,
    waker: Arc<UnixStream>,
}

impl StopHandle {
    /// Makes the server store what has arrived and then end; returns at once.
    pub fn stop(&self) {
        // Release pairs with the Acquire of the listener, which reads the flag after the waker became readable.
        self.shared.stopping.store(true, Ordering::Release);
        // A byte that cannot be written means that earlier ones are still unread, or that the listener is gone.
        let _ = (&*self.waker).write(&[0]);
    }

    /// Returns the known sessions in the order of their first connection.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.shared.sessions.lock().report()
    }

    pub fn health(&self) -> Health {
        self.shared.health()
    }
}

impl Server {
    /// Starts a server that listens on `address` and stores sessions in `destination`.
    ///
    /// # Errors
    /// If listening on the address fails or the listener thread cannot be started.
    pub fn start(address: &Address, destination: Destination, limits: Limits) -> io::Result<Server> {
        Server::start_for(Access::default(), address, destination, limits)
    }

    /// Starts a server with access control.
    ///
    /// # Errors
    /// As [`Server::start`]; `PermissionDenied` for an unencrypted address beyond the loopback interface, and
    /// `InvalidInput` for a TLS address without a certificate.
    pub fn start_for(
        access: Access,
        address: &Address,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        Self::serve(Listener::bind(address, &access)?, access, destination, limits)
    }

    /// Starts a server on a Unix socket that is bound to `path` already; the caller removes the file.
    ///
    /// # Errors
    /// If the listener thread cannot be started.
    pub fn start_bound(
        socket: UnixListener,
        path: &Path,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        Self::serve(Listener::bound(socket, path)?, Access::default(), destination, limits)
    }

    fn serve(
        listener: Listener,
        access: Access,
        destination: Destination,
        limits: Limits,
    ) -> io::Result<Server> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        let (ending, ended) = UnixStream::pair()?;
        ending.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            limits,
            access,
            stopping: AtomicBool::new(false),
            sessions: Mutex::new(Sessions::new(destination, limits.sessions)),
            open: Mutex::new(Places::new(limits.unknown, limits.connections)),
            refused: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            ending,
        });
        let address = listener.address().clone();
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("listener".into())
            .spawn(move || listen(&listener, &woken, &thread_shared))?;
        let stop = StopHandle { shared, waker: Arc::new(waker) };
        Ok(Server { address, stop, listener: Some(thread), ended })
    }

    /// Returns a descriptor that becomes readable when the last message of a session is stored.
    pub fn session_ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Returns the address of the listener, with its actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a handle that stops this server.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Returns the known sessions in the order of their first connection.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.stop.sessions()
    }

    /// Stores what has arrived, ends all threads and returns the known sessions.
    pub fn stop(mut self) -> Vec<SessionReport> {
        self.end();
        self.sessions()
    }

    fn end(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.stop.stop();
            if listener.join().is_err() {
                tracing::error!("the listener thread panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Pause after a failed accept: usually the process has run out of file descriptors.
const RETRY_MS: u16 = 100;

/// Records the end of the listener on drop, also after a panic.
struct RecordEnd<'s>(&'s Shared);

impl Drop for RecordEnd<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Accepts all waiting connections and starts their threads; returns the error that ended this.
fn accept_all(
    listener: &Listener,
    shared: &Arc<Shared>,
    last_id: &mut u64,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), io::Error> {
    loop {
        match listener.accept() {
            Ok(stream) => {
                *last_id += 1;
                threads.extend(connection::start(*last_id, stream, shared));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn listen(listener: &Listener, woken: &UnixStream, shared: &Arc<Shared>) {
    let _ending = RecordEnd(shared);
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut last_id = 0;
    loop {
        let mut waiting = [listener.as_fd(), woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut waiting, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                tracing::error!(%error, "waiting for connections failed; restart the collector to accept connections");
                break;
            }
        }
        let stopping = shared.stopping.load(Ordering::Acquire);
        threads.retain(|thread| !thread.is_finished());
        // At stop, waiting connections are still accepted: their data may be complete.
        let accepted = accept_all(listener, shared, &mut last_id, &mut threads);
        if stopping {
            break;
        }
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection could not be accepted");
            // The stop signal ends the pause. An error occurs again in the next wait, which logs it.
            let _ = poll(&mut [PollFd::new(woken.as_fd(), PollFlags::POLLIN)], PollTimeout::from(RETRY_MS));
        }
    }
    for stream in shared.open.lock().iter() {
        stream.shutdown(Shutdown::Read);
    }
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a connection thread panicked");
        }
    }
}
