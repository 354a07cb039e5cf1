//! Memory of a queue's ring.

use core::ops::Deref;

use queue::{Element, ElementRing};

/// A ring of elements. Words that are kept: handle of the snapshot and its length; marks of classes and of code.
pub type Ring = ElementRing<Elements>;

/// Elements that are freed with their ring.
pub struct Elements(Box<[Element]>);

impl Deref for Elements {
    type Target = [Element];

    fn deref(&self) -> &[Element] {
        &self.0
    }
}

/// Makes an empty ring.
pub fn new_ring(elements: u32) -> *mut Ring {
    let elements = Elements((0..elements).map(|_| Element::default()).collect());
    Box::into_raw(Box::new(ElementRing::new(elements)))
}

/// Frees a ring.
///
/// # Safety
/// [`new_ring`] made it, and nothing uses it any more.
pub unsafe fn free(ring: *mut Ring) {
    // SAFETY: by the caller's promise.
    drop(unsafe { Box::from_raw(ring) });
}
