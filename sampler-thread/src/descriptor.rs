//! Files and sockets whose descriptors the program may close, and reuse for something else.
//!
//! Problem: a program may close all descriptors from 3 on, as daemons do, and then open its own files. A profiler that
//! still writes to its numbers writes into the files of the program.
//! Approach: before each use, device and inode of the number are compared with those at the beginning (some 100 ns),
//! and a mark where the kernel gives all files of a kind the same inode.
//! Invariant: a number that stands for something else is neither used nor closed, and a descriptor that was lost stays
//! lost: the next one of the same file may get its number.
//! Limit: the program may still reuse the number between the comparison and the use that follows it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::fstat;

/// The program has closed the descriptor, and may use its number for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the program has closed a descriptor that is not its own")]
pub struct Lost;

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> Self {
        Self::other(lost)
    }
}

/// A file or socket with an identity.
pub trait Identify: AsFd {
    /// Returns a number that differs among files with the same device and inode; 0 where each has its own inode.
    ///
    /// # Errors
    /// If the number stands for a file of another kind.
    fn mark(&self) -> io::Result<u64> {
        Ok(0)
    }
}

impl Identify for File {}
impl Identify for OwnedFd {}
impl Identify for UnixStream {}

/// Identity of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    mark: u64,
}

impl Identity {
    fn of(file: &impl Identify) -> io::Result<Self> {
        let status = fstat(file)?;
        Ok(Self { device: status.st_dev, inode: status.st_ino, mark: file.mark()? })
    }
}

/// An open file or socket.
#[derive(Debug)]
pub struct OwnedDescriptor<T: Identify> {
    /// Present until the drop.
    inner: Option<T>,
    identity: Identity,
    is_lost: AtomicBool,
}

impl<T: Identify> OwnedDescriptor<T> {
    /// Takes what was just opened.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn new(inner: T) -> io::Result<Self> {
        let identity = Identity::of(&inner)?;
        Ok(Self { inner: Some(inner), identity, is_lost: AtomicBool::new(false) })
    }

    /// Returns the file or socket, to be used at once.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn get(&self) -> Result<&T, Lost> {
        self.inner.as_ref().filter(|inner| self.is_own(inner)).ok_or(Lost)
    }

    fn is_own(&self, inner: &T) -> bool {
        // Relaxed: the number may be lost at any moment, and no other memory depends on it.
        let is_own = !self.is_lost.load(Ordering::Relaxed)
            && Identity::of(inner).is_ok_and(|present| present == self.identity);
        if !is_own {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        is_own
    }
}

impl OwnedDescriptor<File> {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }
}

impl<T: Identify> Drop for OwnedDescriptor<T> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if !self.is_own(&inner) {
            // The program would lose its own file.
            std::mem::forget(inner);
        }
    }
}

impl<T: Identify> Read for OwnedDescriptor<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.get()?.read(buffer)
    }
}

impl<T: Identify> Write for OwnedDescriptor<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.get()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Only for waiting, which changes nothing; [`OwnedDescriptor::get`] checks the file before its use.
impl<T: Identify> AsFd for OwnedDescriptor<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // It is present until the drop.
        #[expect(clippy::expect_used, reason = "the field is emptied by the drop alone")]
        self.inner.as_ref().expect("present until the drop").as_fd()
    }
}
