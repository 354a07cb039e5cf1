//! The stack-walk API: walks of the calling thread's live stack, for C programs, inside signal handlers.
//!
//! Problem: three proposals for a better AsyncGetCallTrace exist, and no stock JVM has one.
//! Approach: `libtickwalk.so` exports their functions ([`iterator`], [`trace`], [`callback`], [`info`]). A walk ([`walk`])
//! runs the walker of the sampler thread over the live stack of the calling thread, with decoded code from a memo
//! ([`memos`]) that it takes for its duration. [`start`] prepares everything with `mode=api`, or
//! when the library is preloaded ([`preloaded`]), and publishes it ([`api`]).
//! Invariants: between the publication and the end of the process, exported functions allocate nothing, take no lock, keep
//! errno and make no load that could fault (`design/stack-walk-api.md` lists the loads and the reasons). Nothing that they
//! reach is freed while a walk may use it. No signal and no timer is used, and no thread before a client registers a queue
//! ([`queues`], [`queue_drain`]).
//! Headers: `agent/include/`.

pub mod api;
pub mod callback;
mod created_vm;
pub mod elements;
pub mod entry;
pub mod errno;
pub mod info;
pub mod iterator;
pub mod memos;
pub mod preloaded;
pub mod queue_drain;
pub mod queues;
pub mod start;
pub mod subject;
pub mod threads;
pub mod trace;
pub mod unloading;
pub mod unserved;
pub mod walk;
