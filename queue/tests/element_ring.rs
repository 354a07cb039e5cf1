//! `ElementRing` on one thread: order, bounds, pins. `tests/loom.rs` has the threads.

#![cfg(not(loom))]
#![allow(missing_docs)]

use std::sync::atomic::Ordering;

use queue::{Element, ElementRing};

fn ring(capacity: usize) -> ElementRing<Box<[Element]>> {
    ElementRing::new((0..capacity).map(|_| Element::default()).collect())
}

fn pushed(ring: &ElementRing<Box<[Element]>>, value: u64) -> bool {
    ring.push([value, 0, 0, 0], [value, 0, 0])
}

fn value(element: Option<&Element>) -> Option<u64> {
    element.map(|element| element.shown()[0].load(Ordering::Relaxed))
}

fn taken(ring: &ElementRing<Box<[Element]>>, overrides_pins: bool) -> Vec<u64> {
    ring.claim(overrides_pins);
    core::iter::from_fn(|| {
        let first = value(ring.first());
        ring.release();
        first
    })
    .collect()
}

#[test]
fn elements_come_in_order_and_a_full_ring_refuses() {
    let ring = ring(3);
    for round in 0..5 {
        let values = [round, round + 10, round + 20];
        assert!(values.iter().all(|&value| pushed(&ring, value)) && !pushed(&ring, 99) && ring.is_full());
        assert_eq!((value(ring.pin(0)), value(ring.pin(-1))), (Some(round), Some(round + 20)));
        assert_eq!((value(ring.pin(2)), value(ring.pin(-3))), (Some(round + 20), Some(round)));
        assert!(ring.pin(3).is_none() && ring.pin(-4).is_none());
        ring.unpin();
        assert_eq!(taken(&ring, false), values);
        assert!(ring.is_empty() && ring.pin(0).is_none() && ring.pin(-1).is_none());
        ring.unpin();
    }
}

#[test]
fn a_pinned_element_and_those_behind_it_stay() {
    let ring = ring(4);
    (0..4).for_each(|value| assert!(pushed(&ring, value)));
    let element = ring.pin(2).expect("an element");
    element.shown()[3].store(77, Ordering::Relaxed);
    assert_eq!(taken(&ring, false), [0, 1]);
    assert_eq!((ring.len(), value(ring.peek(0)), value(ring.peek(-1))), (2, Some(2), Some(3)));
    let pins = ring.pins();
    assert!(ring.pin(0).is_some() && ring.pins() != pins, "a renewed pin is seen");
    assert_eq!(ring.claim(true), 2);
    assert!(ring.pin(0).is_none(), "claimed");
    assert_eq!(ring.first().map(|element| element.shown()[3].load(Ordering::Relaxed)), Some(77));
}
