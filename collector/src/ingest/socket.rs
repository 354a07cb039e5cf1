//! Unix and TCP sockets behind one face.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::Address;

/// A socket that accepts connections without blocking.
pub(super) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener::Unix(listener, path.clone()))
            }
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
                listener.set_nonblocking(true)?;
                if !listener.local_addr()?.ip().is_loopback() {
                    tracing::warn!(%address, "listening beyond this machine, without encryption");
                }
                Ok(Listener::Tcp(listener))
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
        })
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        // Whether an accepted socket inherits non-blocking mode differs between systems, hence explicitly.
        Ok(match self {
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Stream::Unix(stream)
            }
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Somebody may have removed it already, and then there is nothing to do.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a collector that is gone; one that still answers keeps its address.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => fs::remove_file(path),
        },
        // Anything else is left alone: binding reports that the address is in use.
        _ => Ok(()),
    }
}

/// One connection.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(super) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_write_timeout(timeout),
            Stream::Tcp(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// Lets reads return what has arrived and then the end of the stream, instead of waiting.
    pub(super) fn end_reading(&self) {
        self.shutdown(Shutdown::Read);
    }

    /// Tells the peer that nothing more will be sent.
    pub(super) fn end_writing(&self) {
        self.shutdown(Shutdown::Write);
    }

    fn shutdown(&self, how: Shutdown) {
        // It fails when the peer is gone, which is what it would bring about.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(how),
            Stream::Tcp(stream) => stream.shutdown(how),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.read(buffer),
            Stream::Tcp(stream) => { stream }.read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.write(buffer),
            Stream::Tcp(stream) => { stream }.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
