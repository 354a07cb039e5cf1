//! From queues to lists of requests: when queues are drained, and how large queues and pool are.

pub(crate) mod intake;
pub(crate) mod next_sweep;
pub mod pace;
mod pool_size;
mod queue_sizes;
pub mod traces;
