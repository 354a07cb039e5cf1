//! The CPU clocks of threads.
//!
//! A [`timer`], or a [`perf_event`] that signals by its [`descriptors`], expires on a [`grid`] of periods; [`drift`]
//! corrects perf events. [`tick`] measures the kernel's tick, [`time_source`] chooses the source of time stamps.

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
