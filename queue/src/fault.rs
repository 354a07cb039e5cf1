//! Deliberate faults, with which the loom tests show that they would notice a real one.
//!
//! [`Fault`] names each ordering that the proofs rest on. `with_fault` weakens one of them inside a model, and
//! `tests/loom.rs` asserts that loom then finds the race. Outside of loom [`ordering`] returns its argument and
//! compiles to nothing.

use crate::sync::Ordering;

/// An ordering or step that the correctness of this crate depends on, and that a loom test may break.
///
/// The table in the crate documentation says what each ordering pairs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The tail of the model ring, which publishes requests.
    #[cfg(loom)]
    RingTail,
    /// The head of the model ring, which publishes free slots.
    #[cfg(loom)]
    RingHead,
    /// Publication of the ring ends by `ThreadQueue::install`.
    Install,
    /// Publication of an offered ring's producer end by `Drain::offer`.
    Offer,
    /// The change of `ThreadQueue::state` after the handler has left a ring for the offered one.
    Adopt,
    /// The second look of the drain into the old ring, after it has seen that change.
    SecondLook,
    /// Hand-over of the consumer end from one drain to the next.
    Drain,
    /// Publication of a request by `ReadySet::mark`.
    Ready,
    /// The store of the flag by the handler, whatever the flag is.
    ReadyAlways,
    /// The exchange by which the drain clears the flag.
    ReadyTake,
    /// The accesses to `FreeList::word` that take and return a slab.
    FreeList,
    /// The tag in `FreeList::word`, which changes with each exchange.
    FreeListTag,
    /// Publication of a slab's bytes.
    Filled,
    /// The generation that invalidates handles of a slab's former content.
    Generation,
    /// The fences between a side's own word and the other's in `ElementRing`.
    Pin,
}

/// Returns whether a loom model runs under `with_fault` with this fault; false outside of loom.
#[inline(always)]
pub(crate) fn is_broken(fault: Fault) -> bool {
    #[cfg(loom)]
    return BROKEN.get() == Some(fault);
    #[cfg(not(loom))]
    {
        let _ = fault;
        false
    }
}

/// The order `full`, unless a loom test has broken `fault`.
#[inline(always)]
pub(crate) fn ordering(fault: Fault, full: Ordering) -> Ordering {
    if is_broken(fault) { Ordering::Relaxed } else { full }
}

// Loom runs all threads of a model as coroutines on the thread that called it, so a thread-local covers
// one model and leaves the tests that run beside it alone.
#[cfg(loom)]
std::thread_local! {
    static BROKEN: core::cell::Cell<Option<Fault>> = const { core::cell::Cell::new(None) };
}

/// Runs `model` with `fault` in force.
#[cfg(loom)]
pub fn with_fault<R>(fault: Fault, model: impl FnOnce() -> R) -> R {
    /// Ends the fault even when the model panics, which is what the tests expect of it.
    struct EndFault;
    impl Drop for EndFault {
        fn drop(&mut self) {
            BROKEN.set(None);
        }
    }
    BROKEN.set(Some(fault));
    let _end = EndFault;
    model()
}
