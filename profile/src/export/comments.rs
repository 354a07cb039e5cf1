//! The account of a session as sentences, for formats with comments.

use crate::query::process::ProcessProfile;
use crate::query::summary::Summary;

/// Returns the account of CPU time and the warnings, one sentence per line.
///
/// They cover the whole session, even if the export has only a part of it.
pub fn comments(profile: &ProcessProfile) -> Vec<String> {
    let summary = Summary::new(profile);
    let hello = profile.hello();
    let jvm = format!("{} {}, process {} on {}", hello.jvm_name, hello.jvm_version, hello.pid, hello.host);
    let mut comments = vec![format!("Tickwalk: {}", summary.sentence()), jvm, hello.command.clone()];
    comments.extend(profile.session().mode().remark().map(str::to_owned));
    comments.retain(|comment| !comment.is_empty());
    comments.extend(summary.warnings(profile).into_iter().map(|warning| format!("warning: {warning}")));
    comments
}
