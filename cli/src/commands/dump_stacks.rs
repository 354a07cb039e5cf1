//! `tickwalk dump-stacks`: prints the stacks of all threads of a running JVM, native and Java frames.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use profile::characters::shown_lines;

use crate::jvm::agent;
use crate::jvm::attach::Jvm;
use crate::jvm::errors::AttachError;
use crate::jvm::identity::Owner;
use crate::jvm::socket;
use crate::jvm::target::Target;
use crate::jvm::workplace::Workplace;
use crate::launch::agent_library;
use crate::options::values::Time;
use crate::output;

/// Beginning of an answer without a dump.
const ERROR: &str = "error: ";
/// Most bytes of a dump: those of 10,000 threads with 100 frames each.
const MAX_DUMP: usize = 256 << 20;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tickwalk dump-stacks 4321
  tickwalk dump-stacks --timeout 5s 4321           for a JVM that may hang

Each frame is a line: symbol+0xOFFSET (0xADDRESS [module+0xOFFSET]), or Class.method(File.java:LINE) [kind] (...) for Java.
Each thread is stopped while its stack is copied; the last line says for how long. No safepoint is needed, so a VM that
hangs in one can be dumped, as long as it answers attach requests. A profile may run at the same time.")]
pub struct Arguments {
    /// Agent library [default: TICKWALK_AGENT, or libtickwalk.so near this program]
    #[arg(long, value_name = "PATH")]
    agent: Option<std::path::PathBuf>,
    /// Time limit for the answer of the JVM
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Time,
    /// Process id of the JVM, or a part of its command such as the main class or jar
    #[arg(value_name = "PID|NAME")]
    jvm: Target,
}

/// Returns whether the name is held by a user who may attach to the JVM; any other user could hold it to prevent dumps.
fn is_held_by_a_command(name: &str, owner: Owner) -> bool {
    let holder = socket::connect_to_name(name).and_then(|stream| socket::peer_user(&stream));
    holder.is_ok_and(|user| [0, owner.user, Owner::own().user].contains(&user))
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let pid = arguments.jvm.pid()?;
    let library = agent_library::find(arguments.agent.as_deref())?;
    let jvm = Jvm::find(pid)?.answering_within(arguments.timeout.0);
    // The JVM answers one request after the other, so a second dump would only wait.
    let name = format!("tickwalk-dump-stacks-{pid}");
    let only = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?).ok();
    if only.is_none() && is_held_by_a_command(&name, jvm.owner()) {
        bail!("another command is dumping the stacks of JVM {pid}; try again when it is done");
    }
    let no_directory = |error| AttachError::NoDirectory(pid, error);
    let workplace = Workplace::for_socket(jvm.process(), jvm.owner()).map_err(no_directory)?;
    let (listener, path) = workplace.listen("stacks").map_err(no_directory)?;
    // The agent writes the dump before it answers the request, and a dump is larger than a socket's buffer.
    let (process, deadline) = (jvm.process(), Instant::now() + arguments.timeout.0);
    let read = move || {
        let stream = socket::accept(&listener, process, deadline)?;
        socket::read(&stream, MAX_DUMP, deadline)
    };
    let reader = std::thread::Builder::new().spawn(read).context("cannot start a thread")?;
    agent::call(&jvm, &library, &format!("stacks,reply={}", path.display()))?;
    let text = reader.join().ok().context("cannot read the stacks")?.context("cannot read the stacks")?;
    let text = shown_lines(&text);
    if let Some(reason) = text.strip_prefix(ERROR) {
        bail!("JVM {pid}: {}", reason.trim_end());
    }
    output::print(|out| write!(out, "{text}"))?;
    Ok(ExitCode::SUCCESS)
}
