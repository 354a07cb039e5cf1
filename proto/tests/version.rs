//! Which streams are accepted.

use proto::v1::Hello;
use proto::version::{MAGIC, VersionError, WIRE_VERSION, check};

#[test]
fn other_magic_numbers_and_versions_are_refused() {
    let hello = |magic, wire_version| Hello { magic, wire_version, ..Default::default() };
    assert_eq!(check(&hello(MAGIC, WIRE_VERSION)), Ok(()));
    assert_eq!(check(&hello(0, WIRE_VERSION)), Err(VersionError::BadMagic(0)));
    assert_eq!(check(&hello(MAGIC, 2)), Err(VersionError::Unsupported(2)));
    assert_eq!(check(&hello(MAGIC, 0)), Err(VersionError::Unsupported(0)));
}

#[test]
fn magic_reads_twlk_in_memory() {
    assert_eq!(&MAGIC.to_le_bytes(), b"TWLK");
}
