//! Running JVMs: whether they can be attached to, and requests to the agents in them.
//!
//! [`process`] reads `/proc`, [`foreign`] other files; [`perf_data`] and [`flags`] read what a JVM publishes and its
//! options; [`attach`] implements the attach protocol over [`socket`]s and checks with [`room`] that the JVM can
//! start threads; [`identity`] and [`workplace`] cross users and mount namespaces; [`agent`] chooses the library.

pub mod agent;
pub mod attach;
pub mod errors;
mod flags;
pub mod foreign;
pub mod identity;
pub mod list;
mod perf_data;
pub mod process;
mod room;
pub mod socket;
pub mod target;
pub mod workplace;
