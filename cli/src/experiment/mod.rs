//! Experiments that anyone can repeat: the best queue sizes, and the error of measured CPU times.
//!
//! Problem: the figures of a profiler prove nothing without a known reference, and advice about queue sizes holds only
//! for the machine it was measured on.
//! Approach: a Java program with known work (`workload/`, embedded as a class file because many JVMs come without a
//! compiler) runs under the agent of this installation, once per cell of a grid; the recordings are read and shown as a
//! table, as pictures and as a page.
//! Invariant: each reported figure comes from a recording or from the kernel; a failed cell has no figures.
//!
//! These modules belong to the command and not to the collector, because the collector never starts JVMs; see
//! `design/queue-sizes.md`.

pub mod chart;
pub mod grid;
pub mod jvm;
pub mod page;
pub mod queue;
pub mod waste;
