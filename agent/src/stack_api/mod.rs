//! The stack-walk API: C programs walk the calling thread's live stack, also inside signal handlers.
//!
//! Problem: three proposals for a better AsyncGetCallTrace exist, and no stock JVM has one.
//! Approach: `libtickwalk.so` exports their functions ([`iterator`], [`trace`], [`callback`], [`info`]). A walk
//! ([`walk`]) runs the sampler thread's walker over the live stack, and keeps decoded code in a memo ([`memos`]) that
//! it takes for its duration. With `mode=api`, [`start`] prepares everything and publishes it ([`api`]).
//! Invariants: once published, exported functions allocate nothing, take no lock, keep errno and make no load that
//! could fault (`design/stack-walk-api.md` lists the loads and the reasons). Nothing they reach is freed while a walk
//! may use it. No signal or timer is used, and no thread starts before a client registers a queue ([`queues`],
//! [`queue_drain`]). Headers: `agent/include/`.

#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod api;
pub mod callback;
pub mod elements;
pub mod entry;
pub mod info;
pub mod iterator;
pub mod memos;
pub mod queue_drain;
pub mod queues;
pub mod start;
pub mod subject;
pub mod threads;
pub mod trace;
pub mod unloading;
pub mod unserved;
pub mod walk;
