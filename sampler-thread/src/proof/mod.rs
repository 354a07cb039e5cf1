//! Which names and code of the VM are still those of the time of a sample.

pub mod code_freeing;
pub mod lifetime;
pub mod pause_wait;
pub mod redefinition;
pub mod self_test;
pub(crate) mod stub_places;
pub mod unloading;
