//! Queues: a [`thread_queue`] hands [`request`]s over through an [`spsc`] ring of a [`capacity`] that [`sizing`]
//! follows. The stack-walk API has an [`element_ring`].

pub(crate) mod capacity;
pub(crate) mod element_ring;
pub(crate) mod request;
pub(crate) mod sizing;
pub(crate) mod spsc;
pub(crate) mod thread_queue;
