//! Unix, TCP and TLS sockets with one interface.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};

use super::access::Access;
use crate::address::Address;

/// A non-blocking listening socket.
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
    Tls(TcpListener, Arc<ServerConfig>),
}

impl Listener {
    pub(super) fn bind(address: &Address, access: &Access) -> io::Result<Listener> {
        match address {
            Address::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
            Address::Tcp { host, port } => {
                let listener = bind_tcp(host, *port)?;
                if !access.insecure && !listener.local_addr()?.ip().is_loopback() {
                    return Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        "unencrypted listening beyond the loopback interface is refused: use tls:HOST:PORT or pass --insecure",
                    ));
                }
                Ok(Listener::Tcp(listener))
            }
            Address::Tls { host, port } => {
                let config = access.tls.as_ref().ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "a tls: address needs a certificate and its key: pass --tls-cert and --tls-key",
                    )
                })?;
                Ok(Listener::Tls(bind_tcp(host, *port)?, Arc::clone(config)))
            }
        }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Listener::Unix(_, path) => Address::Unix(path.clone()),
            Listener::Tcp(listener) => {
                let local = listener.local_addr()?;
                Address::Tcp { host: local.ip().to_string(), port: local.port() }
            }
            Listener::Tls(listener, _) => {
                let local = listener.local_addr()?;
                Address::Tls { host: local.ip().to_string(), port: local.port() }
            }
        })
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Stream::Unix(stream)
            }
            Listener::Tcp(listener) => Stream::Tcp(accept_tcp(listener)?),
            Listener::Tls(listener, config) => {
                let stream = accept_tcp(listener)?;
                // The handshake takes place in the first reads, in the connection's thread.
                let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Stream::Tls(stream, Box::new(Mutex::new(session)))
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // The file may be removed already.
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((host, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn accept_tcp(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept()?;
    // Systems differ in whether an accepted socket inherits non-blocking mode.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Removes the socket file of a collector that has ended; a file with a listener stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(path),
        },
        // Other files stay: binding fails with "address in use".
        _ => Ok(()),
    }
}

/// One connection.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Box<Mutex<ServerConnection>>),
}

impl Stream {
    /// Returns a second handle of the socket, only to close it: it has no TLS session.
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) | Stream::Tls(stream, _) => Stream::Tcp(stream.try_clone()?),
        })
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tcp(stream) | Stream::Tls(stream, _) => stream.set_read_timeout(timeout),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_write_timeout(timeout),
            Stream::Tcp(stream) | Stream::Tls(stream, _) => stream.set_write_timeout(timeout),
        }
    }

    /// Makes reads return the bytes that have arrived and then the end of the stream, without waiting.
    pub(super) fn end_reading(&self) {
        self.shutdown(Shutdown::Read);
    }

    /// Closes the writing half.
    pub(super) fn end_writing(&self) {
        self.shutdown(Shutdown::Write);
    }

    fn shutdown(&self, how: Shutdown) {
        // It fails only if the peer has closed the connection.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(how),
            Stream::Tcp(stream) | Stream::Tls(stream, _) => stream.shutdown(how),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.read(buffer),
            Stream::Tcp(stream) => { stream }.read(buffer),
            Stream::Tls(stream, session) => read_tls(&mut session.lock(), stream, buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.write(buffer),
            Stream::Tcp(stream) => { stream }.write(buffer),
            Stream::Tls(stream, session) => write_tls(&mut session.lock(), stream, buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads decrypted bytes; returns `Interrupted` when only the TLS session advanced, so that the caller checks its
/// deadline.
fn read_tls(session: &mut ServerConnection, mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match session.reader().read(buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // A peer that closes without close_notify has ended the stream; the framing detects an incomplete message.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
        result => return result,
    }
    session.read_tls(&mut stream)?;
    let processed = session.process_new_packets();
    // An alert about an error is sent before the error is returned.
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Err(io::ErrorKind::Interrupted.into())
}

fn write_tls(session: &mut ServerConnection, mut stream: &TcpStream, buffer: &[u8]) -> io::Result<usize> {
    let written = session.writer().write(buffer)?;
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    Ok(written)
}
