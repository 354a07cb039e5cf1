//! The reasons why profiling cannot start, each with a text of one line for the user.

use std::io;

use sampler_thread::send::delivery::TlsError;

use crate::jvmti::{Jvmti, JvmtiError};
use crate::signal::SignalError;

/// Why profiling cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The VM offers no usable JVMTI.
    Jvmti(JvmtiError),
    /// The VM is not a HotSpot whose layout is known.
    UnsupportedVm {
        /// `java.vm.name` and version.
        name: String,
        /// The missing feature.
        reason: String,
    },
    /// The recording file cannot be written.
    File {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The certificates for the collector cannot be used.
    Certificates {
        /// The collector's address.
        address: String,
        /// Why.
        error: TlsError,
    },
    /// Samples would cross a network unencrypted.
    Unencrypted {
        /// The collector's address.
        address: String,
    },
    /// No signal can be used.
    Signal(SignalError),
    /// Memory for queues and copies could not be mapped.
    Memory(io::Error),
    /// The sampler thread could not be started.
    Thread(io::Error),
}

impl StartError {
    /// The VM is not supported for this reason.
    pub fn unsupported(jvmti: &Jvmti, reason: String) -> Self {
        let property = |name| jvmti.system_property(name).unwrap_or_else(|| "unknown".to_owned());
        Self::UnsupportedVm {
            name: format!("{} {}", property("java.vm.name"), property("java.vm.version")),
            reason,
        }
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Jvmti(error) => {
                write!(f, "unsupported JVM: no JVMTI 1.2 ({error}); Tickwalk needs HotSpot 11 or newer")
            }
            Self::UnsupportedVm { name, reason } => {
                write!(f, "unsupported JVM: {name} ({reason}); Tickwalk needs HotSpot 11 or newer")
            }
            Self::File { path, error } => {
                write!(f, "cannot write file={path}: {error}; choose a writable path")
            }
            Self::Certificates { address, error } => write!(f, "collector=tls:{address}: {error}"),
            Self::Unencrypted { address } => write!(
                f,
                "collector={address} is not on this machine: use collector=tls:{address}, or add insecure to send \
                 samples unencrypted"
            ),
            Self::Signal(error) => write!(f, "{error}"),
            Self::Memory(error) => {
                write!(
                    f,
                    "cannot map memory for samples: {error}; raise the limit of virtual memory (ulimit -v)"
                )
            }
            Self::Thread(error) => {
                write!(f, "cannot start the sampler thread: {error}; raise the limit of threads (ulimit -u)")
            }
        }
    }
}

impl std::error::Error for StartError {}
