//! The tests of the walker in one program, which builds faster than many.
//!
//! `replay`, `garbage` and `no_alloc` are programs of their own: the package `stackwalk-aarch64` has them as well.

mod attached_jvm;
mod cache;
mod called;
mod committed;
mod crossings;
mod every_instruction;
mod frozen;
mod interrupted;
mod native;
mod reads;
mod record_frozen;
mod routines;
mod signals;
mod stub_routines;
mod support;
