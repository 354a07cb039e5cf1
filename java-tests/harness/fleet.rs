//! Agents without JVMs: the example `fleet` of the collector replays recordings of real ones.

use std::collections::BTreeMap;
use std::process::Command;

use crate::binaries;
use crate::process::run;

/// CPU time and samples of sessions as their agents account for them, by id.
pub type Sessions = BTreeMap<String, [u64; 2]>;

/// Runs agents for a second in which twenty pass for them; a collector acknowledges everything.
///
/// # Panics
/// If something is not acknowledged; the message holds the agents' errors.
pub fn run_agents(address: &str, agents: u32) -> Sessions {
    let mut command = Command::new(binaries::example("fleet"));
    command.args([address, &agents.to_string(), "1", "20"]);
    let finished = run(command, |_| ());
    assert_eq!(finished.exit_code(), 0, "{}", finished.stderr);
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    serde_json::from_value(report["sessions"].clone()).expect("sessions")
}
