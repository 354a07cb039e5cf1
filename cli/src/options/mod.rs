//! Values and groups of options that several verbs share.

/// The options of the agent, of which some are flags here.
#[path = "../../../agent/src/options/table.rs"]
#[allow(dead_code, reason = "ranges and forms are for the agent's messages and the table in README.md")]
mod agent_options;

pub mod agent_flags;
pub mod collector;
pub mod forward;
pub mod values;
