//! The account of a session as sentences, for formats that have comments.

use crate::process::ProcessProfile;
use crate::summary::Summary;

/// Returns the account of CPU time and the warnings, one sentence a line.
///
/// They are of the whole session, also where an export holds a part of it.
pub fn comments(profile: &ProcessProfile) -> Vec<String> {
    let summary = Summary::new(profile);
    let hello = profile.hello();
    let jvm = format!("{} {}, process {} on {}", hello.jvm_name, hello.jvm_version, hello.pid, hello.host);
    let mut comments = vec![format!("Tickwalk: {}", summary.sentence()), jvm, hello.command.clone()];
    comments.retain(|comment| !comment.is_empty());
    comments.extend(summary.warnings(profile).into_iter().map(|warning| format!("warning: {warning}")));
    comments
}
