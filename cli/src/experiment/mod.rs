//! Experiments that anyone can repeat: how queues should be sized, and whether CPU time is measured truly.
//!
//! Problem: a profiler's own figures prove nothing where nobody knows the truth, and advice about queue sizes holds for
//! the machine it was found on.
//! Approach: a Java program whose work is known (`workload/`, embedded as a class file, for many JVMs come without a
//! compiler) runs under the agent of this installation, once per cell of a grid; recordings are read back and laid out
//! as a table, as pictures and as a page.
//! Invariant: what is reported was read from a recording or from the kernel; nothing is filled in for a cell that
//! failed.
//!
//! These modules are part of the command, not of the collector, because they start JVMs with the agent, which the
//! collector never does; see `design/queue-sizes.md`.

pub mod chart;
pub mod grid;
pub mod jvm;
pub mod page;
pub mod queue;
pub mod waste;
