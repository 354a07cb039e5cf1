//! Chooses which of several JVMs is reported: the one that used most CPU time.
//!
//! Problem: a wrapper may start a launcher JVM before the JVM of the program, so the order of connections means
//! nothing.
//! Approach: sort by the CPU time of the processes; the busiest gets the name of the recording that the user asked for.

use std::fs;
use std::path::{Path, PathBuf};

use collector::ingest::SessionReport;
use profile::query::process::ProcessProfile;
use profile::query::summary::Summary;

use crate::source::read_recording;

#[derive(Clone, Debug)]
pub struct Recorded {
    pub report: SessionReport,
    /// CPU time of the process while it was profiled, in nanoseconds.
    pub cpu_ns: u64,
}

/// Sorts the sessions, the busiest first, and renames the recordings so that the busiest one's is `output`.
///
/// A recording that cannot be renamed keeps its name.
pub fn busiest_first(sessions: Vec<SessionReport>, output: &Path) -> Vec<Recorded> {
    if let [_] = &sessions[..] {
        return sessions.into_iter().map(|report| Recorded { report, cpu_ns: 0 }).collect();
    }
    let recorded = sessions.into_iter().map(|report| Recorded { cpu_ns: cpu_ns(&report.path), report });
    let mut recorded: Vec<Recorded> = recorded.collect();
    // A stable sort: equal ones stay in the order of their connections.
    recorded.sort_by_key(|one| std::cmp::Reverse(one.cpu_ns));
    let first = recorded.iter().position(|one| one.report.path == output);
    if let Some(first) = first.filter(|first| *first > 0)
        && let Some(free) = free_name(output, &recorded[first].report)
        && fs::rename(output, &free).is_ok()
    {
        recorded[first].report.path = free;
        if fs::rename(&recorded[0].report.path, output).is_ok() {
            recorded[0].report.path = output.to_owned();
        }
    }
    recorded
}

/// Returns the CPU time of a recorded process; 0 if its recording cannot be read.
fn cpu_ns(path: &Path) -> u64 {
    let summary =
        read_recording(path).and_then(|recording| Ok(Summary::new(&ProcessProfile::whole(&recording)?)));
    summary.map_or(0, |summary| summary.process_cpu_ns)
}

/// Returns a free name beside `output` for the recording of another process; `None` if `output` is no file but a pipe,
/// for example.
fn free_name(output: &Path, report: &SessionReport) -> Option<PathBuf> {
    let stem = output.file_stem()?.to_str()?;
    let (pid, id) = (report.hello.pid, report.hello.session_id);
    let names = [format!("{stem}-{pid}.tickwalk"), format!("{stem}-{pid}-{id:016x}.tickwalk")];
    let is_file = fs::symlink_metadata(output).is_ok_and(|file| file.is_file());
    names.into_iter().map(|name| output.with_file_name(name)).find(|path| is_file && !path.exists())
}
