//! How requests come from the queues of the threads to the sampler, and how large queues and pool are.

pub(crate) mod intake;
pub(crate) mod next_sweep;
pub mod pace;
mod pool_size;
mod queue_sizes;
pub mod traces;
