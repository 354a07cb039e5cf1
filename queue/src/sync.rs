//! Atomics and cells: those of `core`, or loom's instrumented ones under `cfg(loom)`.
//!
//! Problem: loom explores the interleavings of a model only if every shared access goes through its types.
//! Approach: the whole crate takes its atomics and cells from here.
//! Loom's constructors are not `const`, so constructors are wrapped in `constructor!`, which drops the `const`
//! in the model; arrays of atomics come from `array_of!` for the same reason.
//!
//! Sources: `crossbeam-utils/src/lib.rs` (`primitive`), `tokio/src/loom/std/unsafe_cell.rs`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

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
