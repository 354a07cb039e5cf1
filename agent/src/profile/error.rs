//! The reasons why profiling cannot start, each with a text of one line for the user.

use std::io;

use sampler_thread::send::delivery::TlsError;

use crate::clock::perf_event::PerfEventError;
use crate::handler::install::SignalError;
use crate::jvmti::{Jvmti, JvmtiError};

/// Why profiling cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The VM is being created.
    #[error("the JVM is still starting; try again in some seconds")]
    Starting,
    /// The VM has reported its end.
    #[error("the JVM is ending")]
    Ending,
    /// The VM offers no usable JVMTI.
    #[error("unsupported JVM: no JVMTI 1.2 ({0}); Tickwalk needs HotSpot 11 or newer")]
    Jvmti(JvmtiError),
    /// The VM is not a HotSpot whose layout is known.
    #[error("unsupported JVM: {name} ({reason}); Tickwalk needs HotSpot 11 or newer")]
    UnsupportedVm {
        /// `java.vm.name` and version.
        name: String,
        /// The missing feature.
        reason: String,
    },
    /// The ids of methods are no addresses.
    #[error(
        "mode=jvmti reads the ids of methods as JDK 11 to 25 make them, and this is JDK {0}; leave mode= out"
    )]
    TracesOfLaterJdk(u32),
    /// The recording file cannot be written.
    #[error("cannot write file={path}: {error}; choose a writable path")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The certificates for the collector cannot be used.
    #[error("collector=tls:{address}: {error}")]
    Certificates {
        /// The collector's address.
        address: String,
        /// Why.
        error: TlsError,
    },
    /// Samples would cross a network unencrypted.
    #[error(
        "collector={address} is not on this machine: use collector=tls:{address}, or add insecure to send \
                 samples unencrypted"
    )]
    Unencrypted {
        /// The collector's address.
        address: String,
    },
    /// No signal can be used.
    #[error("{0}")]
    Signal(SignalError),
    /// The kernel grants no perf events.
    #[error("{0}")]
    PerfEvents(PerfEventError),
    /// Memory for queues and copies could not be mapped.
    #[error("cannot map memory for samples: {0}; raise the limit of virtual memory (ulimit -v)")]
    Memory(io::Error),
    /// CPU clocks cannot be read.
    #[error(
        "the CPU clocks of threads cannot be read ({0}): a filter of system calls (seccomp) refuses clock_gettime; allow it"
    )]
    Clock(io::Error),
    /// A thread of the profile could not be started.
    #[error(
        "cannot start a thread: {0}; raise the limit of threads (ulimit -u, or pids.max of the control group)"
    )]
    Thread(io::Error),
}

impl From<JvmtiError> for StartError {
    fn from(error: JvmtiError) -> Self {
        if error.code == jni::sys::JNI_EDETACHED { Self::Starting } else { Self::Jvmti(error) }
    }
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
