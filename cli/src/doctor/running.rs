//! The JVMs that run here, and whether they can be attached to.

use super::limits::has_private_tmp;
use super::{Finding, Status};
use crate::jvm::list::{self, Row, State};
use crate::jvm::process::Process;

const SUBJECT: &str = "JVM";

/// Most JVMs that are reported one by one.
const MOST_JVMS: usize = 20;

const SHOWN_CHARACTERS: usize = 60;

pub(super) fn examine() -> Vec<Finding> {
    let rows = match list::jvms() {
        Ok(rows) => rows,
        Err(error) => {
            let fix = "mount /proc, without hidepid= for this user";
            return vec![Finding::warn(SUBJECT, format!("/proc cannot be read: {error}"), fix)];
        }
    };
    let mut findings: Vec<Finding> = rows.iter().take(MOST_JVMS).map(finding).collect();
    if rows.len() > MOST_JVMS {
        let found = format!("{} more; 'tickwalk list' shows them", rows.len() - MOST_JVMS);
        findings.push(Finding::ok(SUBJECT, found));
    }
    findings
}

fn finding(row: &Row) -> Finding {
    let program: String = row.program.chars().take(SHOWN_CHARACTERS).collect();
    let place = row.container.as_ref().map_or(String::new(), |place| format!(" in {place}"));
    let mounts = Process::of(row.pid).mounts();
    let tmp = if has_private_tmp(&mounts) { ", with a /tmp of its own (PrivateTmp=yes)" } else { "" };
    let found = |state: &str| format!("{} {program}{place}{tmp}: {state}", row.pid);
    let warn = |state: &str, fix: &str| Finding::warn(SUBJECT, found(state), fix);
    match row.state {
        State::Idle => {
            Finding { status: Status::Ok, subject: SUBJECT, found: found("can be profiled"), fix: None }
        }
        State::Profiled => Finding::ok(SUBJECT, found("is being profiled")),
        State::Undumpable => Finding::ok(
            SUBJECT,
            found(
                "can be profiled; it is undumpable (PR_SET_DUMPABLE), so whether a profile is running cannot be seen",
            ),
        ),
        State::OtherUser => warn("belongs to another user", "run tickwalk as that user or as the superuser"),
        State::AttachDisabled => warn(
            "runs with -XX:+DisableAttachMechanism",
            "start it with -agentpath:libtickwalk.so=start=no, or without that option",
        ),
        State::NoSignal => warn(
            "does not handle SIGQUIT",
            "wait until it has started; if it runs with -Xrs, load the agent by -agentpath",
        ),
        State::Musl => warn("uses the C library musl", "use an image with glibc"),
    }
}
