//! Access control: a shared token, and TLS beyond the loopback interface.
//!
//! Otherwise any peer that reaches a collector could fill its disk with forged profiles, and read names of private
//! programs on the way. The token of the `Hello` must equal the collector's, if it has one; an address beyond the
//! loopback interface requires TLS or explicit permission.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;

use super::certificate::{Certificate, CertificateError};

/// Conditions for agents that send.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Shared secret of agents and collector; `None` accepts any token.
    pub token: Option<String>,
    /// Certificate and key for TLS addresses.
    pub tls: Option<Arc<ServerConfig>>,
    /// Permits unencrypted addresses beyond the loopback interface.
    pub insecure: bool,
}

impl Access {
    /// Sets the certificate chain and its private key, both in PEM form. They are read again when the files change.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn with_certificate(mut self, chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = Certificate::read(chain, key, Arc::clone(&provider))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Config)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificate));
        self.tls = Some(Arc::new(config));
        Ok(self)
    }

    /// Returns whether an agent with this token may send.
    pub(super) fn admits(&self, token: &str) -> bool {
        self.token.as_ref().is_none_or(|own| equal(own.as_bytes(), token.as_bytes()))
    }
}

/// Compares in a time that does not depend on the position of the first difference.
pub(crate) fn equal(own: &[u8], other: &[u8]) -> bool {
    own.len() == other.len() && own.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_token_is_admitted() {
        let with = |token: Option<&str>| Access { token: token.map(str::to_owned), ..Access::default() };
        assert!(with(None).admits("anything"));
        assert!(with(Some("abc")).admits("abc"));
        for wrong in ["", "ab", "abd", "abcd", "Abc"] {
            assert!(!with(Some("abc")).admits(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_unreadable_certificate_is_named_in_the_error() {
        let missing = Path::new("/nowhere/cert.pem");
        let error = Access::default().with_certificate(missing, missing).expect_err("no such file");
        assert!(error.to_string().starts_with("cannot use /nowhere/cert.pem: "), "{error}");
    }
}
