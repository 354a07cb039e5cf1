//! The encoding of every kind of message, as bytes: released agents and recordings depend on it.
//!
//! `TICKWALK_REGENERATE=1 cargo test -p proto --test golden` rewrites the files. After a release, a change of an
//! existing file requires a new wire version.

mod support;

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use proto::framing::{decode_frame, encode_frame};
use proto::v1::{Acknowledgement, CollectorMessage, Reject, collector_message::Body};

fn check<M: prost::Message + Default + PartialEq + Debug>(name: &str, message: &M) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("bin");
    let mut bytes = Vec::new();
    encode_frame(message, &mut bytes).expect("small message");
    if std::env::var_os("TICKWALK_REGENERATE").is_some_and(|value| value == "1") {
        fs::write(&path, &bytes).expect("write golden file");
    }
    let golden = fs::read(&path).expect("golden file");
    assert_eq!(bytes, golden, "encoding of {name} changed");
    assert_eq!(decode_frame::<M>(&golden).as_ref(), Ok(message), "decoding of {name} changed");
}

#[test]
fn agent_messages_keep_their_bytes() {
    for (name, message) in support::agent_messages() {
        check(name, &message);
    }
}

#[test]
fn collector_messages_keep_their_bytes() {
    let acknowledgement = Body::Acknowledgement(Acknowledgement { sequence: 300 });
    check("acknowledgement", &CollectorMessage { body: Some(acknowledgement) });
    let reject = Body::Reject(Reject { reason: "wire version 9 is not supported".into() });
    check("reject", &CollectorMessage { body: Some(reject) });
}
