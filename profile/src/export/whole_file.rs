//! Files that are replaced at once, when their new content is complete.
//!
//! Problem: a file that is written in place is truncated first. After a bad source, a full disk or Ctrl-C, the old
//! file, or the source itself, is lost.
//! Approach: the content is written to a temporary file in the same folder, which is renamed when it is complete.
//! Pipes and devices are written directly.
//! Invariant: after an error the file is unchanged, and no temporary file is left.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Beginning of the names of temporary files.
const PREFIX: &str = ".tickwalk-";

/// Readers of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Its writer only, because profiles have names of private programs; also if it replaces a file of another user.
    Owner,
    /// Everybody whom the umask allows, or who can read the file that is replaced.
    Umask,
}

impl Readers {
    /// Returns the permissions of a new file, before the umask.
    pub fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Umask => 0o666,
        }
    }
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The file cannot be written.
    #[error("{0}")]
    File(io::Error),
    /// The content cannot be made.
    #[error("{0}")]
    Content(E),
}

/// A file that gets its name when it is complete; if it is dropped before, nothing is left.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    readers: Readers,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A temporary file in the same folder.
    Beside(NamedTempFile),
    /// A pipe or a device.
    Itself(File),
}

impl WholeFile {
    /// Creates a file that will be at `path`. Of a link, the target is replaced; a dangling link is replaced itself.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: &Path, readers: Readers) -> io::Result<Self> {
        if is_special(path) {
            let content = Content::Itself(File::create(path)?);
            return Ok(Self { path: path.to_owned(), readers, content });
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let content = Content::Beside(beside(&path, readers)?);
        Ok(Self { path, readers, content })
    }

    pub fn file(&self) -> &File {
        match &self.content {
            Content::Beside(file) => file.as_file(),
            Content::Itself(file) => file,
        }
    }

    /// Calls `before` with the path, and moves the file there. It gets the permissions of the file that it replaces
    /// and its owner unless the new one is private.
    ///
    /// # Errors
    /// If moving or `before` fails; the file at the path is then unchanged.
    pub fn finish(self, before: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let Content::Beside(new) = self.content else { return Ok(()) };
        if let Ok(old) = fs::metadata(&self.path) {
            let others = if self.readers == Readers::Owner { 0o077 } else { 0 };
            new.as_file().set_permissions(Permissions::from_mode(old.mode() & !others))?;
            if self.readers == Readers::Umask {
                // Refused unless this is the superuser; the file then belongs to its writer.
                let _ = fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
            }
        }
        before(&self.path)?;
        new.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

/// Writes the file at `path`. An existing file is replaced once the content is complete.
///
/// # Errors
/// [`WriteError::Content`] if `write` fails for another reason than the file.
pub fn write<E>(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), E>,
) -> Result<(), WriteError<E>> {
    replace(path, readers, write, |_| Ok(()))
}

/// Writes like [`write()`], and calls `before` with the path just before the new file is moved there.
///
/// # Errors
/// As [`write()`], and if `before` fails.
pub fn replace<E>(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), E>,
    before: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), WriteError<E>> {
    let new = WholeFile::create(path, readers).map_err(WriteError::File)?;
    fill(new.file(), write)?;
    new.finish(before).map_err(WriteError::File)
}

/// Checks that a file can be written to `path`; an existing file is not changed.
///
/// # Errors
/// If it cannot.
pub fn check(path: &Path) -> io::Result<()> {
    match is_special(path) {
        // Opening a pipe would wait for its reader.
        true => Ok(()),
        false if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        false => WholeFile::create(path, Readers::Owner).map(drop),
    }
}

/// Checks that files can be created in `folder`.
///
/// # Errors
/// If they cannot; the error does not name the folder.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    create_in(folder, Readers::Owner).map(drop)
}

/// Passes `out` to `write`, and distinguishes errors of `out` from other errors.
///
/// # Errors
/// [`WriteError::File`] if `out` failed, else [`WriteError::Content`] if `write` did.
pub fn fill<W: Write + Send, E>(
    out: W,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<(), E>,
) -> Result<(), WriteError<E>> {
    let mut out = BufWriter::new(Watched { out, failure: None });
    let written = write(&mut out);
    let flushed = out.flush();
    let failure = out.get_mut().failure.take();
    match (failure, written, flushed) {
        (Some(failure), ..) | (None, Ok(()), Err(failure)) => Err(WriteError::File(failure)),
        (None, Err(error), _) => Err(WriteError::Content(error)),
        (None, Ok(()), Ok(())) => Ok(()),
    }
}

/// Keeps the first error of a writer.
struct Watched<W> {
    out: W,
    failure: Option<io::Error>,
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.watch(&written);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.watch(&flushed);
        flushed
    }
}

impl<W> Watched<W> {
    fn watch<T>(&mut self, outcome: &io::Result<T>) {
        let failed = outcome.as_ref().err().filter(|error| error.kind() != io::ErrorKind::Interrupted);
        if let (None, Some(error)) = (&self.failure, failed) {
            let copy = error.raw_os_error().map(io::Error::from_raw_os_error);
            self.failure = Some(copy.unwrap_or_else(|| error.kind().into()));
        }
    }
}

/// Creates a temporary file in the folder of `path`.
fn beside(path: &Path, readers: Readers) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    create_in(folder.unwrap_or(Path::new(".")), readers)
}

/// Creates a temporary file in `folder`, whose name is random.
fn create_in(folder: &Path, readers: Readers) -> io::Result<NamedTempFile> {
    // The crate's own errors would name the temporary file and hide the system's error number.
    let mode = readers.mode();
    let open = |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path);
    tempfile::Builder::new().prefix(PREFIX).make_in(folder, open)
}

/// Returns whether `path` is something other than a file or directory, such as a pipe or /dev/null.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn content(folder: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read_to_string(entry.path()).expect("text"))
        };
        let mut files: Vec<_> = entries.map(file).collect();
        files.sort();
        files
    }

    fn text(content: &'static str) -> impl FnOnce(&mut (dyn Write + Send)) -> Result<(), String> {
        move |out| out.write_all(content.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        write(&path, Readers::Umask, text("first")).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("rights");
        write(&path, Readers::Umask, text("second")).expect("written");
        assert_eq!(content(folder.path()), [("a".to_owned(), "second".to_owned())]);
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn private_files_are_readable_by_their_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        write(&path, Readers::Owner, text("private")).expect("written");
        let mode = || fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("rights");
        write(&path, Readers::Owner, text("again")).expect("written");
        assert_eq!(mode(), 0o600, "also if others could read the file that is replaced");
    }

    #[test]
    fn only_public_files_keep_the_owner_of_the_one_that_they_replace() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        for (readers, is_kept) in [(Readers::Umask, true), (Readers::Owner, false)] {
            fs::write(&path, "old").expect("written");
            if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
                // Only the superuser writes files of several owners.
                return;
            }
            write(&path, readers, text("new")).expect("written");
            assert_eq!(fs::metadata(&path).expect("a file").uid() == 65534, is_kept, "{readers:?}");
            fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn an_error_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, "good").expect("written");
        let failed = write(&path, Readers::Umask, |out| {
            out.write_all(&[b'x'; 100_000]).map_err(|error| error.to_string())?;
            Err("the source is missing".to_owned())
        });
        assert!(matches!(failed, Err(WriteError::Content(error)) if error == "the source is missing"));
        assert_eq!(content(folder.path()), [("a".to_owned(), "good".to_owned())]);
        let refused =
            replace(&path, Readers::Umask, text("new"), |_| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(matches!(refused, Err(WriteError::File(_))));
        assert_eq!(content(folder.path()), [("a".to_owned(), "good".to_owned())]);
    }

    #[test]
    fn errors_of_the_file_and_of_the_content_are_distinguished() {
        let failed = write(Path::new("/dev/full"), Readers::Umask, |out| {
            out.write_all(&[b'x'; 100_000]).map_err(|error| format!("cannot continue: {error}"))
        });
        let Err(WriteError::File(error)) = failed else { panic!("{failed:?}") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let missing = write(Path::new("/nowhere/a"), Readers::Umask, text("x"));
        assert!(matches!(missing, Err(WriteError::File(error)) if error.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn links_keep_pointing_at_their_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        fs::write(&path, "old").expect("written");
        symlink(&path, &link).expect("a link");
        write(&link, Readers::Umask, text("new")).expect("written");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("text"), "new");
    }

    #[test]
    fn a_check_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, "good").expect("written");
        check(&path).expect("it can be written");
        check(Path::new("/dev/null")).expect("it can be written");
        assert_eq!(content(folder.path()), [("a".to_owned(), "good".to_owned())]);
        assert!(check(folder.path()).is_err() && check(Path::new("/nowhere/a")).is_err());
    }

    #[test]
    fn a_folder_is_checked_whatever_it_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(".tickwalk")).expect("a folder");
        check_folder(folder.path()).expect("files can be created");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left");
        let error = check_folder(Path::new("/nowhere")).expect_err("no such folder");
        assert!(error.raw_os_error().is_some() && !error.to_string().contains("nowhere"), "{error}");
    }
}
