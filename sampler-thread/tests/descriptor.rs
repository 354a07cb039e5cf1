//! Files and sockets whose numbers come to stand for something else.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use sampler_thread::descriptor::{Lost, OwnedDescriptor};

/// Lets the number of `own` stand for `other`, as a program does that closes and opens.
#[allow(unsafe_code, reason = "a test that closes a descriptor under its owner")]
fn reuse(own: &impl AsFd, other: &File) {
    // SAFETY: dup2 changes no memory; both descriptors are open.
    let made = unsafe { libc::dup2(other.as_raw_fd(), own.as_fd().as_raw_fd()) };
    assert_eq!(made, own.as_fd().as_raw_fd());
}

#[test]
fn a_reused_descriptor_is_neither_written_nor_closed() {
    let dir = tempfile::tempdir().expect("a folder");
    let foreign = dir.path().join("foreign");
    let mut own = OwnedDescriptor::new(File::create(dir.path().join("own")).expect("a file")).expect("open");
    own.write_all(b"first").expect("written");
    let number = own.as_fd().as_raw_fd();
    reuse(&own, &File::create(&foreign).expect("a file"));
    let error = own.write_all(b"second").expect_err("it is lost");
    assert_eq!(error.to_string(), Lost.to_string());
    drop(own);
    let link = std::fs::read_link(format!("/proc/self/fd/{number}")).expect("still open");
    assert_eq!(link, foreign);
    assert_eq!(std::fs::read(&foreign).expect("readable"), b"");
    assert_eq!(std::fs::read(dir.path().join("own")).expect("readable"), b"first");
}

/// A file that is opened again gets the number of its lost descriptor, if nothing else has it.
#[test]
fn a_lost_descriptor_does_not_close_its_successor() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("log");
    let lost = OwnedDescriptor::new(File::create(&path).expect("a file")).expect("open");
    let number = lost.as_fd().as_raw_fd();
    reuse(&lost, &File::open("/dev/null").expect("a device"));
    assert_eq!(lost.get().err(), Some(Lost));
    reuse(&lost, &File::options().append(true).open(&path).expect("the same file"));
    assert_eq!(lost.get().err(), Some(Lost));
    drop(lost);
    let link = std::fs::read_link(format!("/proc/self/fd/{number}")).expect("still open");
    assert_eq!(link, path);
}

#[test]
fn two_sockets_are_told_apart() {
    let pair = || UnixStream::pair().expect("a pair").0;
    let own = OwnedDescriptor::new(pair()).expect("open");
    assert!(own.get().is_ok());
    let foreign = File::from(OwnedFd::from(pair()));
    reuse(&own, &foreign);
    assert_eq!(own.get().err(), Some(Lost));
}

#[test]
fn an_intact_descriptor_is_closed_by_the_drop() {
    let own = OwnedDescriptor::open("/dev/null").expect("a device");
    let number = own.as_fd().as_raw_fd();
    let before = std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
    assert!(before.is_some());
    drop(own);
    // Other tests may have used the number again, for something else than the device.
    assert_ne!(std::fs::read_link(format!("/proc/self/fd/{number}")).ok(), before);
}
