//! Where to forward to: the address of a receiver, and what is sent along with each request.

use std::fmt;
use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// Why a receiver cannot be named like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// Not `http://HOST:PORT` or `https://HOST:PORT`.
    Address,
    /// No header of the form `NAME=VALUE` in ASCII.
    Header,
    /// The certificates of this machine, or those given, cannot be used.
    Certificates,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetError::Address => "write http://HOST:4317 or https://HOST:4317",
            TargetError::Header => "write a header as NAME=VALUE",
            TargetError::Certificates => "the certificates that receivers are trusted by cannot be loaded",
        })
    }
}

impl std::error::Error for TargetError {}

/// A receiver of OTLP over gRPC.
#[derive(Clone)]
pub struct Target {
    address: String,
    headers: MetadataMap,
    /// PEM of the certificates that are trusted; the system's if there is none.
    certificates: Option<String>,
}

/// Without the headers' values, which may be secrets.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .headers
            .keys()
            .map(|key| match key {
                tonic::metadata::KeyRef::Ascii(key) => key.as_str(),
                tonic::metadata::KeyRef::Binary(key) => key.as_str(),
            })
            .collect();
        f.debug_struct("Target").field("address", &self.address).field("headers", &names).finish()
    }
}

impl Target {
    /// The receiver at `address`.
    ///
    /// # Errors
    /// [`TargetError::Address`].
    pub fn new(address: &str) -> Result<Target, TargetError> {
        let address = address.trim_end_matches('/').to_owned();
        let endpoint = Endpoint::from_shared(address.clone()).map_err(|_| TargetError::Address)?;
        // By the text, for the library gives sockets of files a made-up address of this kind.
        let is_known = address.starts_with("http://") || address.starts_with("https://");
        let is_bare = matches!(endpoint.uri().path(), "" | "/");
        if is_known && is_bare && endpoint.uri().host().is_some_and(|host| !host.is_empty()) {
            Ok(Target { address, headers: MetadataMap::new(), certificates: None })
        } else {
            Err(TargetError::Address)
        }
    }

    /// The same receiver, who gets `header`, `NAME=VALUE`, with each request.
    ///
    /// # Errors
    /// [`TargetError::Header`].
    pub fn with_header(mut self, header: &str) -> Result<Target, TargetError> {
        let (name, value) = header.split_once('=').ok_or(TargetError::Header)?;
        let name = name.trim().to_ascii_lowercase();
        let key = AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|_| TargetError::Header)?;
        let value = AsciiMetadataValue::try_from(value.trim()).map_err(|_| TargetError::Header)?;
        self.headers.insert(key, value);
        Ok(self)
    }

    /// The same receiver, trusted by one of the certificates in `pem` and no others.
    pub fn with_certificates(mut self, pem: String) -> Target {
        self.certificates = Some(pem);
        self
    }

    /// As it was given.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn headers(&self) -> &MetadataMap {
        &self.headers
    }

    /// A channel that connects when it is first used, and again after every loss. Called within a runtime.
    pub(super) fn channel(&self, connect: Duration) -> Result<Channel, TargetError> {
        let mut endpoint = Endpoint::from_shared(self.address.clone()).map_err(|_| TargetError::Address)?;
        if self.address.starts_with("https:") {
            let tls = ClientTlsConfig::new();
            let tls = match &self.certificates {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            };
            endpoint = endpoint.tls_config(tls).map_err(|_| TargetError::Certificates)?;
        }
        // A receiver behind a firewall that forgets connections is noticed before a request is lost in it.
        let keep_alive = Duration::from_secs(30);
        Ok(endpoint.connect_timeout(connect).http2_keep_alive_interval(keep_alive).connect_lazy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_receivers() {
        for (address, is_good) in [
            ("http://127.0.0.1:4317", true),
            ("https://pyroscope.example:4317/", true),
            ("http://[::1]:4317", true),
            ("http://localhost:4318/v1/profiles", false),
            ("localhost:4317", false),
            ("unix:/run/otel", false),
            ("", false),
        ] {
            assert_eq!(Target::new(address).is_ok(), is_good, "{address}");
        }
    }

    #[test]
    fn values_of_headers_are_not_shown() {
        let target = Target::new("http://localhost:4317").expect("good address");
        let target = target.with_header("Authorization=Bearer sesame=").expect("good header");
        let shown = format!("{target:?}");
        assert!(shown.contains("authorization") && !shown.contains("sesame"), "{shown}");
        let value = target.headers().get("authorization").and_then(|value| value.to_str().ok());
        assert_eq!(value, Some("Bearer sesame="));
        for header in ["novalue", "a b=c", "=c"] {
            assert!(target.clone().with_header(header).is_err(), "{header}");
        }
    }
}
