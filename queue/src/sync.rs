//! Atomics and cells: those of `core`, or loom's instrumented ones under `cfg(loom)`.
//!
//! Problem: loom explores the interleavings of a model only if every shared access goes through its types.
//! Approach: the whole crate takes its atomics and cells from here.
//! Loom's constructors are not `const`, so constructors are wrapped in `constructor!`, which drops the `const`
//! in the model; arrays of atomics come from `array_of!` for the same reason.
//!
//! A loom test proves little unless it is seen to fail.
//! [`Fault`] names each ordering the proofs rest on; `with_fault` weakens one of them inside a model, and
//! `tests/loom.rs` asserts that loom then finds the race.
//! Outside of loom [`ordering`] returns its argument and compiles to nothing.
//!
//! Sources: `crossbeam-utils/src/lib.rs` (`primitive`), `tokio/src/loom/std/unsafe_cell.rs`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// `core::cell::UnsafeCell` with loom's closure interface, so that loom can see when an access begins and ends.
#[cfg(not(loom))]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Lends the pointer for exclusive access; the caller's `unsafe` block states why it is exclusive.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// Something the correctness of this crate rests on, and which a loom test may break on purpose.
///
/// The table in the crate documentation says what each ordering pairs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The ring's tail, behind which the requests are; of the ring that stands in for heapless's.
    #[cfg(loom)]
    RingTail,
    /// The ring's head, behind which the slots are free; likewise.
    #[cfg(loom)]
    RingHead,
    /// Publication of the ring ends by `ThreadQueue::install`.
    Install,
    /// Publication of an offered ring's producer end by `Drain::offer`.
    Offer,
    /// The change of state by which the handler tells that it has left a ring for the offered one.
    Adopt,
    /// That the drain looks into the old ring again after it has seen that change.
    SecondLook,
    /// Hand-over of the consumer end from one drain to the next.
    Drain,
    /// The flag by which a handler tells the drain of a request.
    Ready,
    /// That the handler sets the flag without looking at it.
    ReadyAlways,
    /// That the drain clears the flag by an exchange.
    ReadyTake,
    /// The head of a slab class's free list.
    FreeList,
    /// The tag that keeps a recycled free-list head from looking unchanged.
    FreeListTag,
    /// Publication of a slab's bytes.
    Filled,
    /// The generation that tells a handle of a slab's former content from one of its present content.
    Generation,
}

/// The order `full`, unless a loom test has broken `fault`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn ordering(_fault: Fault, full: Ordering) -> Ordering {
    full
}

/// True inside a loom model that runs under [`with_fault`] with this fault.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn is_broken(_fault: Fault) -> bool {
    false
}

#[cfg(loom)]
pub(crate) use model::{is_broken, ordering};

#[cfg(loom)]
pub(crate) mod model {
    use super::{Fault, Ordering};
    use core::cell::Cell;

    // Loom runs all threads of a model as coroutines on the thread that called it, so a thread-local covers
    // one model and leaves the tests that run beside it alone.
    std::thread_local! {
        static BROKEN: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Runs `model` with `fault` in force.
    pub fn with_fault<R>(fault: Fault, model: impl FnOnce() -> R) -> R {
        /// Ends the fault even when the model panics, which is what the tests expect of it.
        struct Mend;
        impl Drop for Mend {
            fn drop(&mut self) {
                BROKEN.set(None);
            }
        }
        BROKEN.set(Some(fault));
        let _mend = Mend;
        model()
    }

    pub(crate) fn is_broken(fault: Fault) -> bool {
        BROKEN.get() == Some(fault)
    }

    pub(crate) fn ordering(fault: Fault, full: Ordering) -> Ordering {
        if is_broken(fault) { Ordering::Relaxed } else { full }
    }
}

/// Declares a constructor that is `const` except under loom, whose atomics have no `const` constructor.
macro_rules! constructor {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),*) -> Self $body:block) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visibility const fn $name($($argument: $type),*) -> Self $body

        #[cfg(loom)]
        $(#[$attribute])*
        $visibility fn $name($($argument: $type),*) -> Self $body
    };
}
pub(crate) use constructor;

/// An array of values that are not `Copy`; `const` except under loom.
macro_rules! array_of {
    ($value:expr) => {{
        #[cfg(not(loom))]
        let array = [const { $value }; _];
        #[cfg(loom)]
        let array = core::array::from_fn(|_| $value);
        array
    }};
}
pub(crate) use array_of;
