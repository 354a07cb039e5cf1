//! Requests by an attach: the answer goes to the socket of the command, or to the files of async-profiler's launcher.
//!
//! Problem: an attach returns a number only. The launcher names a file for the answer and one for messages, shows both
//! and removes them.
//! Invariant: an answer is written to the program's output only if no file or socket is named for it.
//! Source: async-profiler 4.5, the texts that `asprof` sends.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jni::sys::{JNI_EINVAL, JNI_ERR, JNI_OK, jint};
use profile::export::whole_file::Readers;

use super::execute;
use super::messages::{append, tell, warn};
use crate::dumps::print;
use crate::guest::log;
use crate::jvmti::vm::Vm;
use crate::profile::{Refusal, state, status};
use agent_options::{Action, Request};

/// Return code to the launcher for a wrong text.
pub const WRONG_ARGUMENTS: jint = 100;
/// Return code to the launcher for a request that failed.
const FAILED: jint = 200;

/// Carries out a request that is no start, and returns the code for the attach.
pub fn answer(vm: Vm, request: &Request) -> jint {
    warn(request);
    if let Some(reply) = &request.reply {
        let answered = match request.action {
            Action::Stacks => print::answer(vm, reply),
            _ => status::answer(reply),
        };
        // A command that does not listen any more needs no answer.
        return answered.map_or(JNI_ERR, |()| JNI_OK);
    }
    match execute::answer(vm, request).and_then(|answer| deliver(request, &answer)) {
        Ok(()) => JNI_OK,
        Err(refusal) => failed(request, &refusal),
    }
}

/// Writes the answer to where its sender reads it.
fn deliver(request: &Request, answer: &[u8]) -> Result<(), Refusal> {
    let is_text = !matches!(request.action, Action::Stop | Action::Dump);
    match &request.file {
        Some(path) if is_text => {
            let written = create(path).and_then(|mut file| file.write_all(answer));
            written.map_err(|error| Refusal::File { path: path.clone(), error })
        }
        Some(_) => Ok(()),
        None => {
            confirm(request, &String::from_utf8_lossy(answer));
            Ok(())
        }
    }
}

/// Writes an answer that has no file of its own. In the program's output only answers to questions appear.
pub fn confirm(request: &Request, answer: &str) {
    let is_question = matches!(request.action, Action::Status | Action::List | Action::Version);
    match &request.messages {
        Some(_) if request.is_quiet => {}
        Some(path) => append(path, answer),
        None if is_question => answer.lines().for_each(log::print),
        None => {}
    }
}

/// Reports why a request failed, and returns the code for the attach.
fn failed(request: &Request, refusal: &Refusal) -> jint {
    if request.messages.is_some() {
        tell(request.messages.as_deref(), &refusal.for_programs());
        return FAILED;
    }
    if !matches!(refusal, Refusal::NotActive) {
        log::print(&refusal.to_string());
        return JNI_ERR;
    }
    if !state::vm_ends() {
        log::print("no profile runs in this JVM, so there is nothing to stop");
    }
    JNI_EINVAL
}

fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(Readers::Owner.mode());
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}
