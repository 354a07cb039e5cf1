//! Messages for the sender of a request: to the file that it names, else to the log.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use profile::export::whole_file::Readers;

use agent_options::Request;

use crate::guest::log;

/// Prints which parts of a request have no effect.
pub fn warn(request: &Request) {
    request.warning_lines().iter().for_each(|line| tell(request.messages.as_deref(), line));
}

/// Writes a line for the sender of a request: to its file, else to the log.
pub fn tell(messages: Option<&Path>, line: &str) {
    match messages {
        Some(path) => append(path, &format!("tickwalk: {line}\n")),
        None => log::print(line),
    }
}

/// Adds a text to the file of messages.
pub fn append(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(Readers::Owner.mode()).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
        log::print(&format!(
            "cannot write {}: {error}; the message was: {}",
            path.display(),
            text.trim_end()
        ));
    }
}
