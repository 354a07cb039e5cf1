//! Access control: a shared token, and TLS beyond the loopback interface.
//!
//! Problem: any peer that reaches a collector could fill its disk with forged profiles, and samples contain class and
//! method names of private programs.
//! Approach: the token of the `Hello` must equal the collector's token, if it has one; an address beyond the loopback
//! interface requires TLS or explicit permission.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

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

/// Why certificate and key cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The file cannot be read, or has no certificate or key in PEM form; with the reason.
    #[error("cannot use {path}: {1}; a readable PEM file is required", path = .0.display())]
    Unusable(PathBuf, String),
    /// The private key does not belong to the certificate.
    #[error("certificate and key do not belong together: {0}")]
    Config(rustls::Error),
}

impl Access {
    /// Sets the certificate chain and its private key, both in PEM form.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn with_certificate(mut self, chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error: rustls::pki_types::pem::Error| CertificateError::Unusable(path, error.to_string())
        };
        let certificates = CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(unusable(chain))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(unusable(key))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
            .map_err(CertificateError::Config)?;
        self.tls = Some(Arc::new(config));
        Ok(self)
    }

    /// Returns whether an agent with this token may send.
    pub(super) fn admits(&self, token: &str) -> bool {
        self.token.as_ref().is_none_or(|own| equal(own.as_bytes(), token.as_bytes()))
    }
}

/// Compares in a time that does not depend on the position of the first difference.
fn equal(own: &[u8], other: &[u8]) -> bool {
    own.len() == other.len() && own.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
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
