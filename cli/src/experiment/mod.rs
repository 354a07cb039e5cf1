//! Experiments that anyone can repeat: the best queue sizes, and the error of measured CPU times.
//!
//! Problem: the figures of a profiler prove nothing without a known reference, and advice about queue sizes holds only
//! for the machine it was measured on.
//! Approach: a Java program with known work (`workload/`, embedded as a class file because many JVMs come without a
//! compiler) runs under the agent of this installation, once per cell of a grid. The figures of the recordings are
//! written as CSV and JSON, and `page.html` draws them.
//! Invariant: each reported figure comes from a recording or from the kernel; a failed cell has no figures.

pub mod grid;
pub mod jvm;
pub mod queue;
pub mod waste;
