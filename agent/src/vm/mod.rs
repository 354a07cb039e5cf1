//! What is read and tested of the VM itself: its tables, the fields of its threads and stack chunks, a first walk.

#[allow(unsafe_code, reason = "raw function tables of the VM")]
pub mod chunks;
pub mod self_test;
pub(crate) mod tables;
pub(crate) mod thread_layout;
