//! Why a profile does not begin, end or give results: the answer to every door, in one line for the user.

use std::io;
use std::path::PathBuf;

use sampler_thread::send::delivery::TlsError;

use crate::clock::perf_event::PerfEventError;
use crate::handler::install::SignalError;
use crate::handler::memory::PublishError;
use crate::jvmti::{Jvmti, JvmtiError};
use agent_options::BadRequest;

/// Why a request about a profile is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The request itself is wrong.
    #[error("{0}")]
    Request(String),
    #[error("this JVM is being profiled already; that profile continues, attach with 'stop' to end it")]
    Running,
    #[error("a profile cannot be resumed; write its result, then start another one")]
    Resume,
    #[error("the last profile of this JVM still has samples to deliver; try again in some seconds")]
    Delivering,
    #[error("an internal error has switched the agent off in this JVM; restart the JVM to profile it")]
    Off,
    // In async-profiler's words, which programs compare.
    #[error("Profiler is not active")]
    NotActive,
    #[error("Profiler has not started")]
    NotStarted,
    /// The profile has no result of this kind, or it cannot be read.
    #[error("{0}")]
    NoResult(String),
    #[error("cannot write {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("cannot write file={path}: {error}; choose a writable path")]
    Recording { path: String, error: io::Error },
    #[error("no place for the recording: {0}; name one with file=NAME.tickwalk")]
    Storage(io::Error),
    #[error("the JVM is still starting; try again in some seconds")]
    VmStarts,
    #[error("the JVM is ending")]
    VmEnds,
    /// The VM does not accept the calling thread.
    #[error("{0}")]
    Thread(JvmtiError),
    #[error("unsupported JVM: no JVMTI 1.2 ({0}); Tickwalk needs HotSpot 11 or newer")]
    Jvmti(JvmtiError),
    /// The VM refuses the events of a profile.
    #[error("{0}")]
    Events(JvmtiError),
    #[error("unsupported JVM: {name} ({reason}); Tickwalk needs HotSpot 11 or newer")]
    UnsupportedVm {
        /// `java.vm.name` and version.
        name: String,
        reason: String,
    },
    #[error(
        "mode=jvmti reads the ids of methods as JDK 11 to 25 make them, and this is JDK {0}; leave mode= out"
    )]
    TracesOfLaterJdk(u32),
    #[error("collector=tls:{address}: {error}")]
    Certificates { address: String, error: TlsError },
    #[error(
        "collector={address} is not on this machine: use collector=tls:{address}, or add insecure to send \
         samples unencrypted"
    )]
    Unencrypted { address: String },
    #[error("{0}")]
    Signal(#[from] SignalError),
    #[error("{0}")]
    PerfEvents(PerfEventError),
    #[error("cannot map memory for samples: {0}; raise the limit of virtual memory (ulimit -v)")]
    Memory(io::Error),
    #[error(
        "the CPU clocks of threads cannot be read ({0}): a filter of system calls (seccomp) refuses clock_gettime; allow it"
    )]
    Clock(io::Error),
    #[error(
        "cannot start a thread: {0}; raise the limit of threads (ulimit -u, or pids.max of the control group)"
    )]
    NoThread(io::Error),
    /// No dumps are made at `crashstacks=`, `dumpsignal=` or `dumpcpu=`.
    #[error("{0}")]
    Dumps(String),
    #[error("the profile has ended at once")]
    EndedAtOnce,
}

impl Refusal {
    pub fn unsupported(jvmti: &Jvmti, reason: impl ToString) -> Self {
        let property = |name| jvmti.system_property(name).unwrap_or_else(|| "unknown".to_owned());
        let name = format!("{} {}", property("java.vm.name"), property("java.vm.version"));
        Self::UnsupportedVm { name, reason: reason.to_string() }
    }

    /// Returns the text for a program, which may compare it with async-profiler's.
    pub fn for_programs(&self) -> String {
        match self {
            Self::Running => "Profiler already started".to_owned(),
            other => other.to_string(),
        }
    }
}

impl From<BadRequest> for Refusal {
    fn from(bad: BadRequest) -> Self {
        Self::Request(bad.to_string())
    }
}

impl From<JvmtiError> for Refusal {
    fn from(error: JvmtiError) -> Self {
        if error.code == jni::sys::JNI_EDETACHED { Self::VmStarts } else { Self::Jvmti(error) }
    }
}

impl From<PublishError> for Refusal {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Signal(error) => Self::Signal(error),
            PublishError::Memory(error) => Self::Memory(error),
            PublishError::Thread(error) => Self::NoThread(error),
        }
    }
}
