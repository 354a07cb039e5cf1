//! Why a JVM cannot be attached to, each with its remedy.

use std::fmt;
use std::io;
use std::time::Duration;

use super::room::Limit;

/// Time limit for the JVM to start its attach thread and open its socket.
pub const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest argument in bytes that every JDK release accepts.
pub const LONGEST_ARGUMENT: usize = 1024;

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub i32);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("in a pid namespace that is not seen here"),
            pid => write!(f, "{pid}"),
        }
    }
}

/// Why attaching failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("there is no process {0}; 'tickwalk list' shows the JVMs")]
    NoProcess(i32),
    #[error("process {0} belongs to user {1}; run tickwalk as that user or as the superuser")]
    NotAllowed(i32, String),
    #[error(
        "process {0} hides its files from its own user: it cannot be dumped (PR_SET_DUMPABLE), or its program file has \
         capabilities; run tickwalk as the superuser, in a container with CAP_SYS_PTRACE"
    )]
    Hidden(i32),
    #[error("process {0} is not a HotSpot JVM: it has no libjvm.so; 'tickwalk list' shows the JVMs")]
    NoJvm(i32),
    #[error(
        "process {0} is not a HotSpot JVM: it has no thread named VM Thread; 'tickwalk list' shows the JVMs"
    )]
    NoVmThread(i32),
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
        "JVM {0} did not answer the request within {1:?}: it is stopped, or its attach thread hangs, for example in malloc; \
         continue it, or look at it with a debugger (gdb -p {0})"
    )]
    NoAnswer(i32, Duration),
    #[error(
        "cannot attach to JVM {pid}: another process ({peer}) listens on /tmp/.java_pid{inner_pid}; they share /tmp, and \
         have the same id in different pid namespaces; give each a /tmp of its own, or start the JVM with \
         -agentpath:PATH/libtickwalk.so"
    )]
    OtherJvm { pid: i32, inner_pid: i32, peer: Peer },
    #[error(
        "process {0} sent a longer answer than a JVM does, so it was ignored; 'tickwalk list' shows the JVMs"
    )]
    LongAnswer(i32),
    #[error("JVM {pid} needs {threads} more threads, and {limit}")]
    NoThreads { pid: i32, threads: u64, limit: Limit },
    #[error(
        "the agent's path or options are longer than {LONGEST_ARGUMENT} bytes or contain a zero byte; \
                    shorten them"
    )]
    BadArgument,
    #[error("JVM {0} is already being profiled; 'tickwalk stop {0}' ends that profile")]
    Profiled(i32),
    #[error("the last profile of JVM {0} still has samples to deliver; try again in some seconds")]
    Ending(i32),
    #[error("the agent in JVM {0} did not report its status in time; try again")]
    NoStatus(i32),
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
        "cannot make a temporary directory for JVM {0}: {1}; let its user write there, or copy the library into its file system \
         and pass that path with --agent"
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
