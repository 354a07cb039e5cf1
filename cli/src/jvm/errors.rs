//! Why a JVM cannot be attached to, each with its remedy.

use std::io;
use std::time::Duration;

/// Time limit for the JVM to open its socket; it has to start its attach thread first.
pub const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest argument in bytes that every JDK release accepts.
pub const LONGEST_ARGUMENT: usize = 1024;

/// Why attaching failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("there is no process {0}; 'tickwalk list' shows the JVMs")]
    NoProcess(i32),
    #[error("process {0} belongs to user {1}; run tickwalk as that user or as the superuser")]
    NotAllowed(i32, String),
    #[error("process {0} is not a HotSpot JVM: it has no libjvm.so; 'tickwalk list' shows the JVMs")]
    NoJvm(i32),
    #[error(
        "JVM {0} uses the C library musl (Alpine Linux), and the agent needs glibc; run the program on \
         an image with glibc"
    )]
    Musl(i32),
    #[error(
        "cannot attach to JVM {0}: it does not handle SIGQUIT; if it is still starting, try again; \
                if it runs with -Xrs, start it without"
    )]
    NoSignal(i32),
    #[error(
        "cannot attach to JVM {0}: it runs with -XX:+DisableAttachMechanism; start it without, or with \
         -agentpath:PATH/libtickwalk.so"
    )]
    Disabled(i32),
    #[error("JVM {0} did not answer within {limit} s; if it is stopped, continue it",
                limit = SOCKET_TIMEOUT.as_secs())]
    NoSocket(i32),
    #[error(
        "JVM {0} did not answer the request within {1:?}: it is stopped, or its thread for attachments hangs, for example in \
         malloc; continue it, or look at it with a debugger (gdb -p {0})"
    )]
    NoAnswer(i32, Duration),
    #[error(
        "the agent's path or options are longer than {LONGEST_ARGUMENT} bytes or contain a zero byte; \
                    shorten them"
    )]
    BadArgument,
    #[error("JVM {0} is already being profiled; 'tickwalk stop {0}' ends that profile")]
    Profiled(i32),
    #[error("no profile runs in JVM {0}")]
    NotProfiled(i32),
    #[error(
        "JVM {0} loads no agents while it runs (-XX:-EnableDynamicAgentLoading); start it without that option, or with \
         -agentpath:PATH/libtickwalk.so"
    )]
    NoDynamicLoading(i32),
    #[error("the JVM refused the agent: {0}")]
    Refused(String),
    #[error(
        "cannot make a directory for JVM {0} among its temporary files: {1}; let its user write there, or put a copy of the \
         library into its file system and name that path with --agent"
    )]
    NoDirectory(i32, io::Error),
    #[error("the connection to the JVM failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for AttachError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}
