//! Profiles that a program starts, ends and reads by itself: async-profiler's Java API, and C functions.
//!
//! Problem: JMH and servers embed async-profiler by its Java API, and expect results in the process: texts, pages,
//! flight recordings. The agent writes recordings.
//! Approach: a start without a destination records into a file without a name; results are made from the
//! recording by the crate `profile`. [`execute`] runs requests and answers them, [`attached`] those of an attach.
//! Invariant: nothing here runs unless the program calls it; nothing is left on the disk but the files it names.

pub mod attached;
#[allow(unsafe_code, reason = "functions for C and Java programs")]
pub mod c;
pub mod execute;
#[allow(unsafe_code, reason = "functions for C and Java programs")]
pub mod java;
pub mod messages;
