//! The CPU clocks of threads: what expires on them, and when.
//!
//! A [`timer`] or a [`perf_event`], whose [`descriptors`] a handler uses, expires on a [`grid`] of periods; [`drift`]
//! corrects a counter's clock. [`tick`] measures the kernel's tick, [`time_source`] chooses the source of time stamps.

#[allow(unsafe_code, reason = "raw system calls of perf events")]
pub mod descriptors;
pub mod drift;
pub mod grid;
#[allow(unsafe_code, reason = "raw system calls of perf events")]
pub mod perf_event;
pub mod tick;
pub(crate) mod time_source;
#[allow(unsafe_code, reason = "raw timer system calls")]
pub mod timer;
