//! The certificate of TLS addresses, read again when its files change.
//!
//! Certificates are valid for weeks, and a collector runs for months. So each handshake compares length, time and
//! number of both files with those that were read last. If files cannot be used, such as a new chain beside the old
//! key, the certificate remains until they change again.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Why certificate and key cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    #[error("cannot use {path}: {1}; a readable PEM file is required", path = .0.display())]
    Unusable(PathBuf, String),
    #[error("certificate and key do not belong together: {0}")]
    Config(rustls::Error),
}

/// Inode, length and time of the last change of the files of the chain and of the key.
type Stamp = [(u64, u64, i64, i64); 2];

/// The certificate chain and its key.
#[derive(Debug)]
pub(super) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    current: Mutex<(Option<Stamp>, Arc<CertifiedKey>)>,
}

impl Certificate {
    pub(super) fn read(
        chain: &Path,
        key: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, CertificateError> {
        let stamp = stamp(chain, key).ok();
        let current = Mutex::new((stamp, Arc::new(load(chain, key, &provider)?)));
        Ok(Certificate { chain: chain.to_owned(), key: key.to_owned(), provider, current })
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut current = self.current.lock();
        // Files that are missing for a moment are looked at again at the next handshake.
        let stamp = stamp(&self.chain, &self.key).ok().or(current.0);
        if stamp != current.0 {
            current.0 = stamp;
            match load(&self.chain, &self.key, &self.provider) {
                Ok(changed) => {
                    tracing::info!(chain = %self.chain.display(), "the certificate has changed and was read again");
                    current.1 = Arc::new(changed);
                }
                Err(error) => {
                    tracing::warn!(%error, "the changed certificate cannot be used; the previous one stays");
                }
            }
        }
        Some(Arc::clone(&current.1))
    }
}

fn stamp(chain: &Path, key: &Path) -> io::Result<Stamp> {
    let of = |path| fs::metadata(path).map(|file| (file.ino(), file.len(), file.mtime(), file.mtime_nsec()));
    Ok([of(chain)?, of(key)?])
}

fn load(chain: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::pki_types::pem::Error| CertificateError::Unusable(path, error.to_string())
    };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unusable(chain))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(unusable(key))?;
    CertifiedKey::from_der(certificates, key, provider).map_err(CertificateError::Config)
}
