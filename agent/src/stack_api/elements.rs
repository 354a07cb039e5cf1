//! The ring of a queue, on the heap.

use queue::{Element, ElementRing};

/// A ring of elements. Each keeps handle and length of its stack copy, and the marks of classes and of code.
pub type Ring = ElementRing<Box<[Element]>>;

/// Makes an empty ring.
pub fn new_ring(elements: u32) -> *mut Ring {
    Box::into_raw(Box::new(ElementRing::new((0..elements).map(|_| Element::default()).collect())))
}

/// Frees a ring.
///
/// # Safety
/// [`new_ring`] made it, and nothing uses it any more.
pub unsafe fn free(ring: *mut Ring) {
    // SAFETY: the caller passes a ring of `new_ring`, once.
    drop(unsafe { Box::from_raw(ring) });
}
