//! Opens a page in the browser of the desktop.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use super::tell;

/// Opens the page at `path`; a machine without a browser gets a message and no error, because the page is written.
pub fn open(path: &Path) {
    let opened = Command::new("xdg-open")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let cause = match opened {
        Ok(status) if status.success() => return,
        Ok(status) => format!("xdg-open failed ({status})"),
        Err(error) if error.kind() == ErrorKind::NotFound => "this machine has no xdg-open".to_owned(),
        Err(error) => format!("xdg-open cannot be run ({error})"),
    };
    tell!("tickwalk: {cause}, so the page was not opened; open {} in a browser", path.display());
}
