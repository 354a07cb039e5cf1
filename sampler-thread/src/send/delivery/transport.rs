//! A connection to a collector: Unix socket, TCP, or TLS over TCP.
//!
//! Problem: samples contain names of classes and methods, which must not cross a network unencrypted.
//! Approach: unencrypted TCP only on the loopback interface, unless the user allows more; otherwise TLS 1.2 or 1.3 with
//! rustls, which verifies the collector's certificate.
//! Invariant: no call blocks longer than its time limit.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::descriptor::{Identify, Lost, OwnedDescriptor};

/// Longest wait for a collector to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a collector that does not read or does not answer a handshake.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// Files of trusted certificates: Debian and Alpine, Red Hat, SUSE.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// Beginning of the names of the private directories in which `tickwalk record` and `tickwalk attach` make their
/// sockets.
const PRIVATE_PREFIX: &str = "tickwalk-";

/// Why a TLS target cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("cannot read {}: {}", .0.display(), .1)]
    Unreadable(PathBuf, String),
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    #[error("the system has no known file of trusted certificates; name one with ca=PATH")]
    NoSystemRoots,
    #[error("'{0}' is neither a host name nor an IP address")]
    BadName(String),
    #[error("TLS cannot be set up: {0}")]
    Config(rustls::Error),
}

/// The address of a collector.
#[derive(Clone)]
pub enum Target {
    /// A Unix stream socket.
    Unix(PathBuf),
    /// `host:port`; beyond this machine only if `insecure`.
    Tcp {
        /// Host and port.
        address: String,
        /// True if samples may cross a network unencrypted.
        insecure: bool,
    },
    /// TLS at `host:port`.
    Tls {
        /// Host and port.
        address: String,
        /// The name that the certificate must contain.
        name: ServerName<'static>,
        /// Trusted certificates.
        config: Arc<ClientConfig>,
    },
}

impl Target {
    /// Removes the socket of a command that was killed, with its private directory. Other sockets stay.
    pub fn remove_left_behind(&self) {
        let Self::Unix(socket) = self else { return };
        let is_private = |directory: &&Path| {
            let name = directory.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(PRIVATE_PREFIX))
        };
        if let Some(directory) = socket.parent().filter(is_private) {
            // Errors mean that they are removed already, or belong to another user. A directory with other files stays.
            let _ = std::fs::remove_file(socket);
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// A TLS target that trusts the certificates in `roots`, or those of the system.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn tls(address: &str, roots: Option<&Path>) -> Result<Self, TlsError> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::BadName(host))?;
        let system = || SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists());
        let path = roots.or_else(system).ok_or(TlsError::NoSystemRoots)?;
        let mut store = RootCertStore::empty();
        let unreadable =
            |error: rustls::pki_types::pem::Error| TlsError::Unreadable(path.to_owned(), error.to_string());
        let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
        let (added, _) = store.add_parsable_certificates(certificates.filter_map(Result::ok));
        if added == 0 {
            return Err(TlsError::NoCertificate(path.to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self::Tls { address: address.to_owned(), name, config: Arc::new(config) })
    }

    /// Connects.
    ///
    /// # Errors
    /// Errors of the socket, of name resolution and of TLS; `PermissionDenied` if samples would cross a network
    /// unencrypted.
    pub fn connect(&self) -> io::Result<Connection> {
        match self {
            Self::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_write_timeout(Some(IO_TIMEOUT))?;
                socket.set_read_timeout(Some(IO_TIMEOUT))?;
                Ok(Connection { socket: OwnedDescriptor::new(Socket::Unix(socket))?, tls: None })
            }
            Self::Tcp { address, insecure } => {
                let socket = tcp(address)?;
                if !insecure && !socket.peer_addr()?.ip().is_loopback() {
                    return Err(unencrypted());
                }
                Ok(Connection { socket: OwnedDescriptor::new(Socket::Tcp(socket))?, tls: None })
            }
            Self::Tls { address, name, config } => {
                let session =
                    ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
                let socket = OwnedDescriptor::new(Socket::Tcp(tcp(address)?))?;
                let mut connection = Connection { socket, tls: Some(Box::new(session)) };
                connection.handshake()?;
                Ok(connection)
            }
        }
    }

    /// Returns whether the target resolves to an address where samples would cross a network unencrypted.
    pub fn is_unencrypted_network(&self) -> bool {
        match self {
            Self::Tcp { address, insecure: false } => address
                .to_socket_addrs()
                .is_ok_and(|mut found| found.any(|address: SocketAddr| !address.ip().is_loopback())),
            _ => false,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { address, .. } => f.write_str(address),
            Self::Tls { address, .. } => write!(f, "tls:{address}"),
        }
    }
}

fn unencrypted() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "samples would cross the network unencrypted; use tls:HOST:PORT, or add insecure",
    )
}

/// Connects to the first address of the host that accepts.
fn tcp(address: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(socket) => {
                socket.set_write_timeout(Some(IO_TIMEOUT))?;
                socket.set_read_timeout(Some(IO_TIMEOUT))?;
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => (&*socket).read(buffer),
            Socket::Tcp(socket) => (&*socket).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => (&*socket).write(buffer),
            Socket::Tcp(socket) => (&*socket).write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Identify for Socket {}

pub struct Connection {
    socket: OwnedDescriptor<Socket>,
    tls: Option<Box<ClientConnection>>,
}

impl Connection {
    fn handshake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.is_handshaking() {
            tls.complete_io(&mut self.socket)?;
        }
        Ok(())
    }

    /// Checks that the program has not closed the connection's descriptor.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn check(&self) -> Result<(), Lost> {
        self.socket.get().map(|_| ())
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Errors of the socket; `WouldBlock` or `TimedOut` if the peer does not read.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            // rustls buffers 64 KiB at a time; the rest is passed again.
            let taken = tls.writer().write(rest)?;
            rest = rest.get(taken..).unwrap_or_default();
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }

    /// Receives what has arrived, if the socket is readable; returns `Some(0)` for nothing yet, `None` for the end.
    ///
    /// # Errors
    /// Errors of the socket and of TLS.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else {
            let length = self.socket.read(buffer)?;
            return Ok((length > 0).then_some(length));
        };
        if tls.read_tls(&mut self.socket)? == 0 {
            return Ok(None);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        match tls.reader().read(buffer) {
            Ok(0) => Ok(None),
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
