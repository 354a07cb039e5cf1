//! Who may talk to whom.

use proto::v1::Hello;
use proto::version::{MAGIC, VersionError, WIRE_VERSION, check};

#[test]
fn only_this_magic_and_known_versions_pass() {
    let hello = |magic, wire_version| Hello { magic, wire_version, ..Default::default() };
    assert_eq!(check(&hello(MAGIC, WIRE_VERSION)), Ok(()));
    assert_eq!(check(&hello(MAGIC, 1)), Ok(()), "recordings of the first release");
    assert_eq!(check(&hello(0, WIRE_VERSION)), Err(VersionError::BadMagic(0)));
    assert_eq!(check(&hello(MAGIC, 3)), Err(VersionError::Unsupported(3)));
    assert_eq!(check(&hello(MAGIC, 0)), Err(VersionError::Unsupported(0)));
}

#[test]
fn magic_reads_twlk_in_memory() {
    assert_eq!(&MAGIC.to_le_bytes(), b"TWLK");
}
