//! What tells a Tickwalk stream from other bytes, and one version of it from another.
//!
//! Rule: fields may be added within a version, since protobuf readers skip what they do not know; whatever
//! changes the meaning of an existing field raises [`WIRE_VERSION`], and a collector refuses a version it does
//! not know instead of guessing.

use std::fmt;

use crate::v1::Hello;

/// Version of the messages an agent of this release writes.
pub const WIRE_VERSION: u32 = 2;

/// Oldest version a collector of this release reads.
pub const OLDEST_WIRE_VERSION: u32 = 1;

/// First field of every [`Hello`]: "TWLK" in memory order of its little-endian encoding.
pub const MAGIC: u32 = 0x4b4c_5754;

/// Why a [`Hello`] is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionError {
    /// The magic number is another one: this is not a Tickwalk stream.
    BadMagic(u32),
    /// The stream is of this wire version, which is none from [`OLDEST_WIRE_VERSION`] to [`WIRE_VERSION`].
    Unsupported(u32),
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            VersionError::BadMagic(magic) => write!(f, "magic number {magic:#010x} is not Tickwalk's"),
            VersionError::Unsupported(theirs) => write!(
                f,
                "wire version {theirs} is not supported, this side speaks versions {OLDEST_WIRE_VERSION} to {WIRE_VERSION}; use agent and \
                 collector of the same release"
            ),
        }
    }
}

impl std::error::Error for VersionError {}

/// Checks that a peer that introduced itself with `hello` can be understood.
///
/// # Errors
/// The first of magic number and version that differs.
pub fn check(hello: &Hello) -> Result<(), VersionError> {
    if hello.magic != MAGIC {
        return Err(VersionError::BadMagic(hello.magic));
    }
    if !(OLDEST_WIRE_VERSION..=WIRE_VERSION).contains(&hello.wire_version) {
        return Err(VersionError::Unsupported(hello.wire_version));
    }
    Ok(())
}
