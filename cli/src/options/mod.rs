//! Values and groups of options that several verbs share.

pub mod agent_flags;
pub mod collector;
pub mod forward;
pub mod values;
