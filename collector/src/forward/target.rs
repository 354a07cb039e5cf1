//! Receivers: their address, and the headers of each request.

use std::fmt;
use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// Why a receiver's description is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    #[error("invalid receiver address: write http://HOST:4317 or https://HOST:4317")]
    Address,
    #[error("invalid header: write NAME=VALUE in ASCII")]
    Header,
    #[error(
        "the certificates to trust cannot be loaded: check the system's certificates or the given PEM file"
    )]
    Certificates,
}

/// A receiver of OTLP over gRPC.
#[derive(Clone)]
pub struct Target {
    address: String,
    headers: MetadataMap,
    /// Trusted certificates in PEM form; `None` for the system's.
    certificates: Option<String>,
}

/// Omits the values of headers, which may be secrets.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        f.debug_struct("Target").field("address", &self.address).field("headers", &names).finish()
    }
}

impl Target {
    /// Returns the receiver at `address`.
    ///
    /// # Errors
    /// [`TargetError::Address`].
    pub fn new(address: &str) -> Result<Target, TargetError> {
        let address = address.trim_end_matches('/').to_owned();
        let endpoint = Endpoint::from_shared(address.clone()).map_err(|_| TargetError::Address)?;
        // The text is checked because the library converts socket files to such an address.
        let is_known = address.starts_with("http://") || address.starts_with("https://");
        let is_bare = matches!(endpoint.uri().path(), "" | "/");
        if is_known && is_bare && endpoint.uri().host().is_some_and(|host| !host.is_empty()) {
            Ok(Target { address, headers: MetadataMap::new(), certificates: None })
        } else {
            Err(TargetError::Address)
        }
    }

    /// Adds `header`, `NAME=VALUE`, to each request.
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

    /// Trusts only the certificates in `pem`.
    pub fn with_certificates(mut self, pem: String) -> Target {
        self.certificates = Some(pem);
        self
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn headers(&self) -> &MetadataMap {
        &self.headers
    }

    /// Returns a channel that connects on first use and after every loss. Call it within a runtime.
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
        // Detects connections that a firewall dropped silently.
        let keep_alive = Duration::from_secs(30);
        Ok(endpoint.connect_timeout(connect).http2_keep_alive_interval(keep_alive).connect_lazy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
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
