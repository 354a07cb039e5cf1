//! Output: reports to standard output or a file, log events to standard error.

pub mod browser;
pub mod colour;
pub mod progress;
pub mod sudo;
pub mod table;

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use nix::unistd::AccessFlags;
use profile::characters::shown_lines;
use profile::export::whole_file::{self, Readers, WriteError, is_special};
use profile::source::recording::keep_existing;
use tempfile::TempDir;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Sends log events of `level` and above to standard error; `TICKWALK_LOG` overrides `level` with another one, or with
/// levels by module as in `warn,collector=debug`.
pub fn start_log(level: Level) {
    let wanted = std::env::var("TICKWALK_LOG").ok();
    let (filter, error) = match wanted.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        result => {
            // It reports each attempt of a request to a lake that is away.
            let filter = Targets::new().with_default(level).with_target("object_store", Level::WARN);
            (filter, result.and_then(Result::err))
        }
    };
    // In files and in the journal, the codes of colours would remain.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(colour::is_shown(&io::stderr()))
        // Reporting them would panic where standard error is closed.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    if let Some(error) = error {
        tracing::warn!(
            "TICKWALK_LOG is ignored: {error}; write a level, or levels by module as in warn,collector=debug"
        );
    }
}

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub fn print<E: Into<anyhow::Error>>(
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), E>,
) -> anyhow::Result<()> {
    match whole_file::fill(io::stdout(), write) {
        Err(WriteError::File(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => in_context(result, || "cannot write to standard output".to_owned()),
    }
}

/// Writes lines to standard error. Errors are ignored: its reader may be gone (`2>&1 | head`).
macro_rules! tell {
    ($($message:tt)*) => {
        $crate::output::write_message(&format!($($message)*))
    };
}
pub(crate) use tell;

/// Writes the lines of [`tell!`].
pub fn write_message(lines: &str) {
    let mut lines = shown_lines(lines).into_owned();
    if colour::is_shown(&io::stderr()) {
        lines = colour::painted(&lines);
    }
    let _ = writeln!(io::stderr(), "{lines}");
}

/// Writes warnings to standard error, a line each.
pub fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| tell!("warning: {warning}"));
}

/// Writes the file at `path`. An existing file is replaced once the new one is complete.
///
/// # Errors
/// If the file cannot be written, and those of `write`; the file is as it was before then.
pub fn write_file<E: Into<anyhow::Error>>(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), E>,
) -> anyhow::Result<()> {
    let is_new = !path.exists();
    in_context(whole_file::write(path, readers, write), || format!("cannot write {}", path.display()))?;
    // A public file that is replaced keeps its owner.
    if is_new || readers == Readers::Owner {
        sudo::hand_over(path);
    }
    Ok(())
}

/// Writes an answer to a file and says so, or to standard output, with colours if that is a terminal.
pub fn write_answer(path: Option<&Path>, answer: &[u8]) -> anyhow::Result<()> {
    match (path, std::str::from_utf8(answer)) {
        (Some(path), _) => {
            write_file(path, Readers::Umask, |out| out.write_all(answer))?;
            tell!("written      {}", path.display());
            Ok(())
        }
        (None, Ok(text)) if colour::is_shown(&io::stdout()) => {
            print(|out| out.write_all(colour::painted(text).as_bytes()))
        }
        _ => print(|out| out.write_all(answer)),
    }
}

/// Writes the recording at `path`, and keeps an existing file as `FILE.1`.
///
/// # Errors
/// As [`write_file`], and if the existing file cannot be renamed.
pub fn write_beside_existing<E: Into<anyhow::Error>>(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), E>,
) -> anyhow::Result<()> {
    let written = whole_file::replace(path, Readers::Owner, write, keep_existing);
    in_context(written, || format!("cannot write {}", path.display()))?;
    sudo::hand_over(path);
    Ok(())
}

/// Adds `context` to errors of the file; other errors have their own.
fn in_context<E: Into<anyhow::Error>>(
    written: Result<(), WriteError<E>>,
    context: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    written.map_err(|error| match error {
        WriteError::File(error) => anyhow::Error::new(error).context(context()),
        WriteError::Content(error) => error.into(),
    })
}

/// Beginning of the names of private directories. The agent removes the directory of a command that was killed.
const PREFIX: &str = "tickwalk-";

/// Makes directories that only their user can enter, whatever the umask allows.
pub fn private_directory() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).permissions(Permissions::from_mode(0o700));
    builder
}

/// Creates a directory that is deleted on drop.
pub fn temporary_directory() -> anyhow::Result<TempDir> {
    let directory = private_directory().tempdir();
    directory.context("cannot create a temporary directory; set TMPDIR to a writable one")
}

/// Returns the file that `--output` names; `-` stands for standard output, as no file does.
pub fn named_file(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| *path != Path::new("-"))
}

/// Refuses `-`.
pub fn check_named(path: &Path) -> anyhow::Result<()> {
    named_file(Some(path)).map(drop).context("standard output (-) cannot take this; name a file")
}

/// Checks that a file can be written to `path`; callers check before they start a program.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    check_named(path)?;
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    if !directory.is_dir() {
        bail!("cannot write {}: create the directory {} first", path.display(), directory.display());
    }
    if path.is_dir() {
        bail!("cannot write {}: it is a directory; name a file in it", path.display());
    }
    // An existing file need not be writable, because it is renamed. The rights of a directory are not enough to know:
    // /proc.
    let (checked, attempt) = match is_special(path) {
        true => (path, nix::unistd::access(path, AccessFlags::W_OK).map_err(io::Error::from)),
        false => (directory, whole_file::check(path)),
    };
    attempt.with_context(|| format!("cannot write {}: {} is not writable", path.display(), checked.display()))
}
