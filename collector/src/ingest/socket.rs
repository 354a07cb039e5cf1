//! Unix, TCP and TLS sockets with one interface.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};
use socket2::Socket;

use super::access::Access;
use crate::address::Address;

/// A non-blocking listening socket.
pub(super) struct Listener {
    socket: Socket,
    address: Address,
    tls: Option<Arc<ServerConfig>>,
    /// True if the file of a Unix socket is removed at the end.
    removes_file: bool,
}

impl Listener {
    /// Returns a listener on a socket that is bound already; its owner removes the file.
    pub(super) fn bound(socket: UnixListener, path: &Path) -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        let address = Address::Unix(path.to_owned());
        Ok(Listener { socket: socket.into(), address, tls: None, removes_file: false })
    }

    pub(super) fn bind(address: &Address, access: &Access) -> io::Result<Listener> {
        let (socket, tls): (Socket, _) = match address {
            Address::Unix(path) => {
                remove_stale(path)?;
                (UnixListener::bind(path)?.into(), None)
            }
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
                if !access.insecure && !listener.local_addr()?.ip().is_loopback() {
                    let reason = "unencrypted listening beyond the loopback interface is refused: use tls:HOST:PORT or pass --insecure";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                (listener.into(), None)
            }
            Address::Tls { host, port } => {
                let Some(config) = &access.tls else {
                    let reason =
                        "a tls: address needs a certificate and its key: pass --tls-cert and --tls-key";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
                };
                (TcpListener::bind((host.as_str(), *port))?.into(), Some(Arc::clone(config)))
            }
        };
        socket.set_nonblocking(true)?;
        let mut address = address.clone();
        if let (Address::Tcp { host, port } | Address::Tls { host, port }, Some(local)) =
            (&mut address, socket.local_addr()?.as_socket())
        {
            (*host, *port) = (local.ip().to_string(), local.port());
        }
        Ok(Listener { socket, address, tls, removes_file: true })
    }

    /// Returns the address with the actual port.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        let (socket, _) = self.socket.accept()?;
        // Systems differ in whether an accepted socket inherits non-blocking mode.
        socket.set_nonblocking(false)?;
        if !matches!(self.address, Address::Unix(_)) {
            socket.set_tcp_nodelay(true)?;
        }
        // The handshake takes place in the first reads, in the connection's thread.
        let tls = self.tls.as_ref().map(|config| ServerConnection::new(Arc::clone(config)));
        let tls = tls.transpose().map_err(io::Error::other)?;
        Ok(Stream { socket, tls: tls.map(|session| Box::new(Mutex::new(session))) })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), true) = (&self.address, self.removes_file) {
            // The file may be removed already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a collector that has ended; a file with a listener remains.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(path),
        },
        // Other files remain: binding fails with "address in use".
        _ => Ok(()),
    }
}

pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<Mutex<ServerConnection>>>,
}

impl Stream {
    /// Returns a second handle of the socket, only to close it: it has no TLS session.
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(Stream { socket: self.socket.try_clone()?, tls: None })
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(timeout))
    }

    /// Closes one half or both. Reads return the bytes that have arrived and then the end of the stream.
    pub(super) fn shutdown(&self, how: Shutdown) {
        // It fails only if the peer has closed the connection.
        let _ = self.socket.shutdown(how);
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.socket).read(buffer),
            Some(session) => read_tls(&mut session.lock(), &self.socket, buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.socket).write(buffer),
            Some(session) => write_tls(&mut session.lock(), &self.socket, buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads decrypted bytes; returns `Interrupted` when only the TLS session advanced, so that the caller checks its
/// deadline.
fn read_tls(session: &mut ServerConnection, mut stream: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
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

fn write_tls(session: &mut ServerConnection, mut stream: &Socket, buffer: &[u8]) -> io::Result<usize> {
    let written = session.writer().write(buffer)?;
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    Ok(written)
}
