//! Magic number and version of a Tickwalk stream.
//!
//! Rule: fields may be added within a version, since protobuf readers skip unknown fields. A change of the meaning of
//! an existing field raises [`WIRE_VERSION`], and a collector refuses an unknown version.

use crate::v1::Hello;

/// Version of the messages that this release writes and reads.
pub const WIRE_VERSION: u32 = 1;

/// First field of every [`Hello`]: "TWLK" in memory order of its little-endian encoding.
pub const MAGIC: u32 = 0x4b4c_5754;

/// Why a [`Hello`] is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// The magic number, which is not [`MAGIC`].
    #[error("magic number {0:#010x} is not {MAGIC:#010x}: this is not a Tickwalk stream")]
    BadMagic(u32),
    /// The wire version, which is not [`WIRE_VERSION`].
    #[error(
        "wire version {0} is not supported, only version {WIRE_VERSION} is; use agent and collector of the same release"
    )]
    Unsupported(u32),
}

/// Checks magic number and wire version of `hello`.
///
/// # Errors
/// The first of the two that differs from this release's.
pub fn check(hello: &Hello) -> Result<(), VersionError> {
    if hello.magic != MAGIC {
        return Err(VersionError::BadMagic(hello.magic));
    }
    if hello.wire_version != WIRE_VERSION {
        return Err(VersionError::Unsupported(hello.wire_version));
    }
    Ok(())
}
