//! Addresses of collectors in options: `unix:/path`, `tcp:host:port`, `host:port` or `tls:host:port`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Path of a Unix stream socket.
    Unix(PathBuf),
    /// TCP host and port.
    Tcp {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// Port; a listener at port 0 gets a free port from the system.
        port: u16,
    },
    /// TCP host and port, with TLS.
    Tls {
        /// Name or address.
        host: String,
        /// Port, 0 for a free one.
        port: u16,
    },
}

/// Why a text is not an [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    #[error("the path of the Unix socket is missing: write unix:/path, host:port or tls:host:port")]
    NoPath,
    #[error("the host is missing: write unix:/path, host:port or tls:host:port")]
    NoHost,
    #[error(
        "the port is missing or not a number from 0 to 65535: write unix:/path, host:port or tls:host:port"
    )]
    NoPort,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(AddressError::NoPath),
                path => Ok(Address::Unix(path.into())),
            };
        }
        let encrypted = text.starts_with("tls:");
        let text = text.strip_prefix("tcp:").or_else(|| text.strip_prefix("tls:")).unwrap_or(text);
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
        let port = port.parse().map_err(|_| AddressError::NoPort)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match host {
            "" => Err(AddressError::NoHost),
            host if encrypted => Ok(Address::Tls { host: host.to_owned(), port }),
            host => Ok(Address::Tcp { host: host.to_owned(), port }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } => write_host(f, "tcp", host, *port),
            Address::Tls { host, port } => write_host(f, "tls", host, *port),
        }
    }
}

fn write_host(f: &mut fmt::Formatter<'_>, scheme: &str, host: &str, port: u16) -> fmt::Result {
    if host.contains(':') {
        return write!(f, "{scheme}:[{host}]:{port}");
    }
    write!(f, "{scheme}:{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, AddressError>) {
        let parsed = text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(parsed.as_deref(), expected.as_ref().map(|text| *text), "{text}");
    }

    #[test]
    fn addresses_are_parsed_and_written() {
        check("unix:/run/tickwalk.sock", Ok("unix:/run/tickwalk.sock"));
        check("tcp:localhost:4170", Ok("tcp:localhost:4170"));
        check("127.0.0.1:0", Ok("tcp:127.0.0.1:0"));
        check("[::1]:4170", Ok("tcp:[::1]:4170"));
        check("tls:[::1]:4171", Ok("tls:[::1]:4171"));
        check("tls:host", Err(AddressError::NoPort));
        check("unix:", Err(AddressError::NoPath));
        check(":80", Err(AddressError::NoHost));
        check("localhost", Err(AddressError::NoPort));
        check("localhost:99999", Err(AddressError::NoPort));
        check("", Err(AddressError::NoPort));
    }
}
