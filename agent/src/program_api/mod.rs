//! Profiles that a program starts, ends and reads by itself: async-profiler's Java API, and C functions.
//!
//! Problem: JMH and servers embed async-profiler by its Java API, and expect results in the process: texts, pages, flight
//! recordings. The agent writes recordings.
//! Approach: a start without a destination records into a file without a name ([`storage`]); results are made from the
//! recording by the crate `profile`. [`command`] reads async-profiler's commands, [`execute`] runs them, [`profile`] and
//! [`results`] have the operations, which the C functions use as well; [`thread_filter`] keeps the samples of chosen threads.
//! Invariant: nothing here runs unless the program asks for it; nothing is left on the disk but the files it names.

#[allow(unsafe_code, reason = "functions for C and Java programs")]
pub mod c;
pub mod command;
pub mod execute;
#[allow(unsafe_code, reason = "functions for C and Java programs")]
pub mod java;
pub mod profile;
